"""What GPUs are to be held to, what nvidia-smi says of them, and what follows from both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.host.state import HostState, find_gpu
from llamaherd.onhost.hardware import GpuState, parse_gpu, parse_number
from llamaherd.onhost.services import ServiceState
from llamaherd.onhost.verbs import NoInput
from llamaherd.plan import GpuPower, Plan
from llamaherd.role.changes import RunVerb
from roles.base import base_changes
from roles.power import GpuNote, PowerState, inspection_input, power_changes, power_leftovers, power_refusals
from roles.power.onhost import ApplyInput, InspectInput
from tests.support.drifts import Drift, lost
from tests.support.ours import parse_state, refusals, show_plan
from tests.support.power import BOTH, NEW, OLD, held
from tests.support.recording import input_of
from tests.support.rigs import converged, cpu_rig, gpu_rig, planned
from tests.support.states import edited, host_with

PLAN = held(BOTH)
BARE = planned(gpu_rig())
FANS = held({**BOTH, OLD + "fans": "70%"})
CLOCKS = held({NEW + "clocks": {"max": "2400MHz"}})
WSL = held({**BOTH, "host/wsl": {}})

# --- the plan --------------------------------------------------------------------------------------------------------


def test_each_card_has_its_line_in_the_table() -> None:
    assert PLAN.power
    assert PLAN.power.cards == (
        GpuPower(name="new", at="GPU-5090", limit=450, clocks=(210, 2400)),
        GpuPower(name="old", at="GPU-3090", limit=280),
    )
    assert PLAN.power.table.text.splitlines()[2:] == ["new GPU-5090 450 210,2400 -", "old GPU-3090 280 - -"]


@pytest.mark.parametrize(
    ("way", "at"),
    [
        ({"pci": "41:00.0"}, "00000000:41:00.0"),
        ({"pci": "0001:0a:00.0"}, "00000001:0A:00.0"),
        ({"index": 3}, "3"),
        ({}, "1"),
    ],
)
def test_which_card_is_meant_is_said_as_nvidia_smi_says_it(way: dict[str, Any], at: str) -> None:
    declared = {"old": {"model": "RTX 3090", "power_limit": "280W", **way}}
    plan = held({"gpus/cards": {"new": {"model": "RTX 5090", "uuid": "GPU-5090"}, **declared}})
    assert plan.power
    assert [each.at for each in plan.power.cards] == [at]


def test_nothing_is_planned_where_nothing_is_declared() -> None:
    assert (BARE.power, BARE.windows_power, BARE.has_cards) == (None, (), True)
    on_none: dict[str, Any] = {f"instances/{name}/on": [] for name in ("reasoner", "worker", "boxed")}
    bare = planned(gpu_rig(), {"gpus": None, **on_none})
    assert (bare.power, bare.windows_power, bare.has_cards) == (None, (), False)
    assert inspection_input(bare) == InspectInput(notes=False)


def test_under_wsl_it_is_for_windows_to_do() -> None:
    assert (WSL.power, WSL.has_cards) == (None, False)
    assert [(each.name, each.limit) for each in WSL.windows_power] == [("new", 450), ("old", 280)]
    assert "  power      new: 450 W, 210 to 2400 MHz, which is Windows' to set\n" in show_plan(WSL)
    assert inspection_input(WSL) is None


def test_a_plan_shows_what_cards_are_held_to() -> None:
    assert "  power      new: 450 W, 210 to 2400 MHz (GPU-5090)\n             old: 280 W (GPU-3090)\n" in show_plan(
        PLAN
    )
    assert "power" not in show_plan(BARE)


def test_a_fan_speed_is_planned_beside_the_rest_and_alone() -> None:
    assert FANS.power
    assert [each.fans for each in FANS.power.cards] == [None, 70]
    assert FANS.power.table.text.splitlines()[2:] == ["new GPU-5090 450 210,2400 -", "old GPU-3090 280 - 70"]
    assert "             old: 280 W, fans at 70 % (GPU-3090)\n" in show_plan(FANS)
    alone = held({NEW + "fans": 65})
    assert alone.power
    assert alone.power.table.text.splitlines()[2:] == ["new GPU-5090 - - 65"]
    assert "  power      new: fans at 65 % (GPU-5090)\n" in show_plan(alone)


def test_what_sets_fans_is_there_before_what_uses_it_and_also_where_none_are_declared() -> None:
    """It gives them back as well, and a run may end between two files."""
    assert PLAN.power
    assert [file.path for file in PLAN.power.files] == [
        "/opt/llamaherd/libexec/gpu-fans",
        "/opt/llamaherd/libexec/gpu-power",
        "/etc/llamaherd/gpu-power",
        "/etc/systemd/system/llamaherd-gpu-power.service",
    ]


def test_servers_find_their_cards_held() -> None:
    assert PLAN.power
    (before,) = [line for line in PLAN.power.unit.text.splitlines() if line.startswith("Before=")]
    assert before == "Before=docker.service llama-reasoner.service llama-worker.service"


# --- what nvidia-smi says --------------------------------------------------------------------------------------------

# Rows in our order of fields. The figures, and how a missing one is written, are from the place that is named; but the
# speeds of fans are made up, except that of the H100, which is captured like the rest of its row.
ROWS = {
    "H100, captured here (580.159.04)": (
        "GPU-c1482878-234f-2700-f220-209731f11bca, 00000000:00:06.0, Enabled, 700.00, 700.00, 200.00, 700.00, 405, "
        "[N/A], NVIDIA H100 80GB HBM3",
        (True, 700, 700, 200, 700, 405, None),
    ),
    "RTX 4090 (1Panel-dev/1Panel#11910)": (
        "GPU-a, 00000000:01:00.0, Disabled, 450.00, 450.00, 150.00, 450.00, 210, 30, NVIDIA GeForce RTX 4090",
        (False, 450, 450, 150, 450, 210, 30),
    ),
    "RTX 5060 Ti (b00nz/mVolt#39; 180.00 W from a capture with 570.211.01)": (
        "GPU-b, 00000000:05:00.0, Disabled, 180.00, 180.00, 150.00, 180.00, 2745, 0, NVIDIA GeForce RTX 5060 Ti",
        (False, 180, 180, 150, 180, 2745, 0),
    ),
    "RTX 2080 Ti, whose default is an error (Quake4/MindMiner#627)": (
        "GPU-c, 00000000:09:00.0, Enabled, 210.00, [Unknown Error], 100.00, 280.00, 1560, 41, GeForce RTX 2080 Ti",
        (True, 210, None, 100, 280, 1560, 41),
    ),
    "RTX 2080, fields without brackets (Ricks-Lab/gpu-utils#83, 440.64)": (
        "GPU-d, 00000000:0A:00.0, N/A, 200.00, N/A, 105.00, 292.00, 1965, 118, GeForce RTX 2080",
        (None, 200, None, 105, 292, 1965, 118),
    ),
    "GB10, which tells no power (lablup/all-smi#80, 580.126.09)": (
        "GPU-e, 0000000F:01:00.0, Enabled, [N/A], [N/A], [N/A], [N/A], 2405, [N/A], NVIDIA GB10",
        (True, None, None, None, None, 2405, None),
    ),
    "RTX 4080 of a laptop (Dreaming-Codes/nvidia_oc#22)": (
        "GPU-f, 00000000:01:00.0, Disabled, [Not Supported], [Not Supported], 5.00, 175.00, 210, [N/A], "
        "NVIDIA GeForce RTX 4080 Laptop GPU",
        (False, None, None, 5, 175, 210, None),
    ),
    "a name with a comma, which nobody promises not to be": (
        "GPU-g, 00000000:01:00.0, Enabled, 1.00, 1.00, 1.00, 1.00, 210, 30, A, B",
        (True, 1, 1, 1, 1, 210, 30),
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_card_is_read(row: str) -> None:
    line, figures = ROWS[row]
    seen = parse_gpu(line)
    assert (seen.persistent, seen.limit, seen.default, seen.least, seen.most, seen.clock, seen.fan) == figures
    assert line == f"{seen.uuid}, {seen.pci}, {', '.join(line.split(', ')[2:9])}, {seen.name}"


def test_cards_of_mixed_generations_are_told_apart() -> None:
    seen = parse_state(f"card\t{line}" for line, _ in ROWS.values()).gpus.shown
    assert len(seen) == len(ROWS)
    by_pci = find_gpu("0000000f:01:00.0", seen)
    assert by_pci
    assert by_pci.name == "NVIDIA GB10"
    first = find_gpu("0", seen)
    assert first
    assert first.name == "NVIDIA H100 80GB HBM3"
    assert [find_gpu(at, seen) for at in ("8", "GPU-z", "00000000:7F:00.0")] == [None, None, None]


@pytest.mark.parametrize("line", ["", "No devices were found", "GPU-1, 0, Enabled, 1, 1, 1, 1, 1, 1"])
def test_a_line_that_is_no_card_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not 10 fields"):
        parse_gpu(line)


@given(st.text() | st.sampled_from(["nan", "inf", "-inf", "[N/A]", "ERR!", "1e400"]))
def test_whatever_stands_for_a_figure_is_finite_or_none(text: str) -> None:
    value = parse_number(text)
    assert value is None or abs(value) < float("inf")


# --- what is to be done ----------------------------------------------------------------------------------------------


def seen_of(plan: Plan) -> HostState:
    return parse_state(converged(plan, {}))


def restarts(plan: Plan, seen: HostState) -> list[bool]:
    """For each step, whether it starts the unit anew."""
    return [input_of(step, ApplyInput).restart for step in power_changes(plan, seen)]


@pytest.mark.parametrize("plan", [PLAN, FANS, CLOCKS, BARE, WSL], ids=["both", "fans", "clocks", "bare", "wsl"])
def test_nothing_is_done_where_all_is_as_planned(plan: Plan) -> None:
    assert power_changes(plan, seen_of(plan)) == []
    assert power_refusals(plan, seen_of(plan)) == []
    assert list(base_changes(plan, seen_of(plan))) == []


def test_a_virgin_host_gets_the_files_and_the_unit() -> None:
    (step,) = power_changes(PLAN, host_with(shown=seen_of(PLAN).gpus.shown))
    assert step.says == "holding new to 450 W, 210 to 2400 MHz; old to 280 W"
    assert PLAN.power
    assert [each.path for each in input_of(step, ApplyInput).files] == [file.path for file in PLAN.power.files]


def card_is(**values: Any) -> Drift:
    """The 3090 is otherwise."""
    return _gpu_is("GPU-3090", **values)


def newer_is(**values: Any) -> Drift:
    """The 5090 is otherwise."""
    return _gpu_is("GPU-5090", **values)


def _gpu_is(uuid: str, **values: Any) -> Drift:
    return lambda seen: edited(
        seen, shown=tuple(replace(each, **values) if each.uuid == uuid else each for each in seen.gpus.shown)
    )


def note_is(uuid: str, *words: str) -> Drift:
    """Our note of a GPU is otherwise, or, without words, not there."""

    def drift(seen: HostState) -> HostState:
        power = PowerState.of(seen)
        others = {each: held for each, held in power.held.items() if each != uuid}
        return seen.with_parts(replace(power, held={**others, uuid: GpuNote(*words)} if words else others))

    return drift


def unit_is(*values: Any) -> Drift:
    """The unit is otherwise, or, without values, not there."""
    unit = ServiceState(*values) if values else None
    return lambda seen: seen.with_parts(replace(PowerState.of(seen), unit=unit))


DRIFTS: dict[str, tuple[Drift, list[bool]]] = {
    "somebody set another limit": (card_is(limit=350.0), [True]),
    "a limit is a rounding off": (card_is(limit=279.99), []),
    "a limit is not told any more": (card_is(limit=None), [True]),
    "a card was booted anew": (note_is("GPU-3090"), [True]),
    "a run was killed at a card": (note_is("GPU-3090", "?", "?", "?"), [True]),
    "a note was cut off": (note_is("GPU-3090", "280"), [True]),
    "another limit was held": (note_is("GPU-3090", "300", "-", "on"), [True]),
    "fans are held that are not declared": (note_is("GPU-3090", "280", "-", "on", "70"), [True]),
    "fans may be held that are not declared": (note_is("GPU-3090", "280", "-", "on", "?"), [True]),
    "a note is of before there were fans": (note_is("GPU-3090", "280", "-", "on"), []),
    "fans of which nothing is declared run fast": (card_is(fan=90.0), []),
    "a card without fans": (card_is(fan=None), []),
    "clocks are held that are not declared": (note_is("GPU-3090", "280", "210,900", "on"), [True]),
    "other clocks are held": (note_is("GPU-5090", "450", "210,900", "on"), [True]),
    "a card is held that is not declared": (note_is("GPU-7777", "100", "-", "on"), [True]),
    "a card forgets when it idles": (card_is(persistent=False), [True]),
    "a card runs above its lock": (newer_is(clock=2700.0), [True]),
    "a card runs a step above its lock": (newer_is(clock=2415.0), []),
    "a card of which nothing is declared of clocks runs fast": (card_is(clock=2700.0), []),
    "a limit was refused, clocks stand in": (note_is("GPU-5090", "refused", "210,2400", "on"), []),
    "a limit was refused, nothing stands in": (note_is("GPU-3090", "refused", "-", "on"), [True]),
    "the unit is gone": (unit_is(), [True]),
    "the unit failed": (unit_is("failed", "enabled", False, ""), [True]),
    "the unit is not enabled": (unit_is("active", "disabled", False, ""), [False]),
    "the unit is to be read anew": (unit_is("active", "enabled", True, ""), [False]),
    "the table is gone": (lost("/etc/llamaherd/gpu-power"), [False]),
    "the program is gone": (lost("/opt/llamaherd/libexec/gpu-power"), [False]),
    "the program for fans is gone": (lost("/opt/llamaherd/libexec/gpu-fans"), [False]),
}


@pytest.mark.parametrize("case", DRIFTS)
def test_a_drift_is_mended_and_the_unit_started_only_for_cards(case: str) -> None:
    drift, steps = DRIFTS[case]
    seen = seen_of(PLAN)
    seen = drift(seen)
    assert restarts(PLAN, seen) == steps


@pytest.mark.parametrize(
    ("drift", "steps"),
    [
        (card_is(fan=73.0), []),
        (card_is(fan=67.0), []),
        (card_is(fan=74.0), [True]),
        (card_is(fan=66.0), [True]),
        (card_is(fan=118.0), [True]),
        (card_is(fan=0.0), [True]),
        (note_is("GPU-3090", "280", "-", "on"), [True]),
        (note_is("GPU-3090", "280", "-", "on", "60"), [True]),
        (note_is("GPU-3090", "280", "-", "on", "?"), [True]),
    ],
)
def test_a_fan_speed_that_is_not_held_is_drift(drift: Any, steps: list[bool]) -> None:
    seen = seen_of(FANS)
    seen = drift(seen)
    assert restarts(FANS, seen) == steps


def test_a_limit_that_is_held_and_no_longer_declared_is_drift() -> None:
    seen = seen_of(CLOCKS)
    seen = note_is("GPU-5090", "450", "210,2400", "on")(seen)
    assert restarts(CLOCKS, seen) == [True]


def test_persistence_that_a_card_does_not_keep_is_asked_for_once() -> None:
    seen = seen_of(PLAN)
    seen = card_is(persistent=False)(seen)
    seen = note_is("GPU-3090", "280", "-", "refused")(seen)
    assert power_changes(PLAN, seen) == []


def test_what_is_no_longer_declared_is_given_back_once() -> None:
    seen = parse_state([*converged(BARE, {}), "power\tactive\tenabled\tno"])
    (change,) = power_leftovers(BARE, seen)
    assert power_changes(BARE, seen) == []
    assert change.how == RunVerb("power.remove", NoInput(), change.says)
    seen = unit_is()(seen)
    assert power_leftovers(BARE, seen) == []
    assert inspection_input(BARE) == InspectInput(notes=False)


def test_what_was_held_is_given_back_where_no_card_is_declared_any_more() -> None:
    plan = planned(cpu_rig())
    assert inspection_input(plan) == InspectInput(notes=False)
    (step,) = power_leftovers(plan, parse_state([*converged(plan, {"chat": "key"}), "power\tinactive\tenabled\tno"]))
    assert step.how == RunVerb("power.remove", NoInput(), step.says)


@pytest.mark.parametrize(
    ("changes", "seen", "message", "way_out"),
    [
        (
            {OLD + "power_limit": "80W"},
            {},
            "GPU `old` (NVIDIA GeForce RTX 3090) takes a power limit of 100 to 366 W, but the inventory declares 80 W",
            "write `power_limit: 100W`",
        ),
        (
            {OLD + "power_limit": "400W"},
            {},
            "of 100 to 366 W, but the inventory declares 400 W",
            "write `power_limit: 366W`",
        ),
        (
            {OLD + "power_limit": "280W"},
            {"limit": None},
            "GPU `old` (NVIDIA GeForce RTX 3090) takes no power limit",
            "`clocks: {max: 1800MHz}`",
        ),
        (
            {OLD + "fans": "70%"},
            {"fan": None, "name": "NVIDIA H100 80GB HBM3"},
            "GPU `old` (NVIDIA H100 80GB HBM3) has no fans that can be set",
            "take `fans` out",
        ),
        (
            {OLD + "power_limit": "280W", OLD + "uuid": "GPU-7777"},
            {},
            "GPU `old` (GPU-7777) is not in this host",
            "there is NVIDIA GeForce RTX 3090 (GPU-3090 at 0000:02:00.0), NVIDIA GeForce RTX 5090 (GPU-5090 at",
        ),
    ],
)
def test_what_a_card_cannot_be_held_to_stops_the_run(
    changes: dict[str, Any], seen: dict[str, Any], message: str, way_out: str
) -> None:
    old = GpuState("GPU-3090", "00000000:02:00.0", True, 350, 350, 100, 366, 210, 30, "NVIDIA GeForce RTX 3090")
    new = GpuState("GPU-5090", "00000000:01:00.0", True, 575, 575, 400, 600, 210, 30, "NVIDIA GeForce RTX 5090")
    plan = held(changes)
    host = edited(seen_of(plan), shown=(replace(old, **seen), new))
    (problem,) = refusals(plan, host, {})
    assert message in problem.message
    assert way_out in problem.help


def test_a_limit_that_a_laptop_does_not_tell_is_no_problem_beside_clocks() -> None:
    seen = seen_of(PLAN)
    seen = newer_is(limit=None, least=None, most=None)(seen)
    assert power_refusals(PLAN, seen) == []


def test_a_host_without_a_driver_stops_the_run() -> None:
    (problem,) = power_refusals(PLAN, parse_state(["driver\tthere is no nvidia-smi"]))
    assert str(problem) == (
        "power limits, clocks or fans are declared, and NVIDIA's driver does not respond: there is no nvidia-smi\n"
        "  help: install it, so that `nvidia-smi` shows the GPUs, or take `power_limit`, `clocks` and `fans` out"
    )


def test_a_note_that_cannot_be_is_refused() -> None:
    with pytest.raises(UnexpectedLineError, match="the note about a GPU has more than 4 words"):
        parse_state(["held\tGPU-1\ta\tb\tc\td\te"])
