"""The programs that hold GPUs, run as on a host. Stand-ins are nvidia-smi, whose GPUs live in a file, and NVML."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llamaherd.host.state import HostState
from llamaherd.layout import POWER_RUN
from llamaherd.onhost.services import ServiceState
from roles.gpus import state_parts as gpu_parts
from roles.power import power_changes, power_checks, probes
from roles.power import state_parts as power_parts
from roles.power.onhost import InspectInput, gpu_power, inspect
from tests.support import nvidia_smi
from tests.support.inspected_host import InspectedHost
from tests.support.power import BOTH, NEW, NEW_CARD, OLD, OLD_CARD, Host, held, host

PLAN = held(BOTH)
LIMIT = held({OLD + "power_limit": "280W"})
LAPTOP = nvidia_smi.card("GPU-5090", "00000000:02:00.0", "NVIDIA GeForce RTX 5090 Laptop GPU", None)
SLY = nvidia_smi.card("GPU-5090", "00000000:02:00.0", "RTX 4070 Laptop GPU", (35.0, 5.0, 95.0), refuses=["limit"])
"""As in NVIDIA/open-gpu-kernel-modules#483: it tells a range, and refuses what is in it."""


@pytest.fixture
def rig(tmp_path: Path) -> Host:
    return host(tmp_path, OLD_CARD, NEW_CARD)


def test_cards_are_held_and_what_holds_them_is_noted(rig: Host) -> None:
    done = rig.run(PLAN, "hold")
    assert (done.returncode, done.stderr) == (0, "")
    assert rig.card("GPU-3090")["limit"] == 280
    assert (rig.card("GPU-5090")["limit"], rig.card("GPU-5090")["lock"]) == (450, [210, 2400])
    assert rig.notes == {"GPU-3090": "280 - on -", "GPU-5090": "450 210,2400 on -"}
    assert "card old is limited to 280 W\n" in done.stdout


def test_a_card_that_is_being_changed_is_noted_as_unknown(rig: Host) -> None:
    for command in (["hold"], ["release"]):
        rig.run(PLAN, *command)
    assert set(rig.state["noted"]) == {"? ? ? -"}
    assert len(rig.changes) == 6


def test_a_second_time_changes_no_limit(rig: Host) -> None:
    rig.run(PLAN, "hold")
    rig.put(*rig.state["cards"])
    assert rig.run(PLAN, "hold").returncode == 0
    # Whether clocks are locked cannot be asked: they are locked again.
    assert rig.changes == ["-lgc 210,2400"]


def test_what_is_no_longer_declared_is_undone(rig: Host) -> None:
    rig.run(PLAN, "hold")
    done = rig.run(held({NEW + "power_limit": "450W"}), "hold")
    assert (done.returncode, done.stderr) == (0, "")
    assert rig.card("GPU-3090") == OLD_CARD
    assert (rig.card("GPU-5090")["limit"], rig.card("GPU-5090")["lock"]) == (450, None)
    assert rig.notes == {"GPU-5090": "450 - on -"}
    assert "card GPU-3090 has its default limit again, 350 W" in done.stdout


def test_release_gives_all_of_it_back_once(rig: Host) -> None:
    rig.run(PLAN, "hold")
    assert rig.run(PLAN, "release").returncode == 0
    assert [rig.card("GPU-3090"), rig.card("GPU-5090")] == [OLD_CARD, NEW_CARD]
    assert rig.notes == {}
    rig.edit("GPU-3090", limit=300.0)
    assert rig.run(PLAN, "release").returncode == 0
    assert (rig.changes, rig.card("GPU-3090")["limit"]) == ([], 300)


def test_what_others_set_on_cards_that_are_not_declared_is_left_alone(rig: Host) -> None:
    rig.edit("GPU-5090", limit=500.0, lock=[300, 900])
    rig.run(LIMIT, "hold")
    assert rig.changes == ["-pl 280"]


@pytest.mark.parametrize("note", ["? ? ? ?", "? ? ?", "280", ""], ids=["unknown", "older", "cut off", "empty"])
def test_a_run_that_was_killed_between_is_made_good(rig: Host, note: str) -> None:
    rig.edit("GPU-3090", limit=280.0, lock=[210, 900])
    (rig.folder / "notes").mkdir()
    (rig.folder / "notes" / "GPU-3090").write_text(note)
    assert rig.run(held({NEW + "power_limit": "450W"}), "hold").returncode == 0
    assert rig.card("GPU-3090") == OLD_CARD
    assert set(rig.notes) == {"GPU-5090"}


def test_a_card_that_forgets_is_kept_loaded(rig: Host) -> None:
    rig.edit("GPU-3090", persistence="Disabled")
    rig.run(LIMIT, "hold")
    assert rig.changes == ["-pm 1", "-pl 280"]
    rig.edit("GPU-3090", persistence="Disabled", refuses=["persistence"])
    done = rig.run(LIMIT, "hold")
    assert (done.returncode, rig.notes["GPU-3090"]) == (0, "280 - refused -")
    assert "card old forgets its limit when nothing uses it" in done.stdout


@pytest.mark.parametrize(
    ("cards", "changes", "says", "notes"),
    [
        pytest.param(
            [OLD_CARD, LAPTOP],
            {NEW + "power_limit": "120W", NEW + "clocks": {"max": "1800MHz"}},
            "card new takes no power limit; its clocks are held instead",
            {"GPU-5090": "refused 210,1800 on -"},
            id="a laptop that tells no limit",
        ),
        pytest.param(
            [OLD_CARD, SLY],
            {NEW + "power_limit": "80W", NEW + "clocks": {"max": "1800MHz"}},
            "card new takes no power limit; its clocks are held instead",
            {"GPU-5090": "refused 210,1800 on -"},
            id="a laptop that tells one",
        ),
    ],
)
def test_where_a_limit_is_refused_clocks_stand_in(
    tmp_path: Path, cards: list[Any], changes: dict[str, Any], says: str, notes: dict[str, str]
) -> None:
    rig = host(tmp_path, *cards)
    done = rig.run(held(changes), "hold")
    assert (done.returncode, done.stderr) == (0, "")
    assert says in done.stdout
    assert rig.card("GPU-5090")["lock"] == [210, 1800]
    assert rig.notes == notes


@pytest.mark.parametrize(
    ("card", "changes", "says"),
    [
        ({}, {OLD + "power_limit": "80W"}, "card old takes a power limit of 100 to 366 W, not 80 W"),
        ({}, {OLD + "power_limit": "400W"}, "card old takes a power limit of 100 to 366 W, not 400 W"),
        ({"limit": None}, {OLD + "power_limit": "280W"}, "card old takes no power limit; declare its `clocks`"),
        ({"refuses": ["limit"]}, {OLD + "power_limit": "280W"}, "card old takes no power limit; declare its `clocks`"),
        (
            {"refuses": ["clocks"]},
            {OLD + "clocks": {"max": "1800MHz"}},
            "card old cannot be limited to 210,1800 MHz: Setting locked GPU clocks is not supported",
        ),
        (
            {"refuses": ["everything"]},
            {OLD + "power_limit": "280W"},
            "card old cannot be limited to 280 W: Failed to set power management limit for GPU 00000000:01:00.0: Insu",
        ),
        ({}, {OLD + "uuid": "GPU-7777", OLD + "power_limit": "280W"}, "there is no card GPU-7777, which is to be old"),
    ],
)
def test_what_a_card_does_not_take_fails_and_leaves_the_others_held(
    rig: Host, card: dict[str, Any], changes: dict[str, Any], says: str
) -> None:
    rig.edit("GPU-3090", **card)
    done = rig.run(held(changes | {NEW + "power_limit": "450W"}), "hold")
    assert done.returncode == 1
    assert says in done.stderr
    assert rig.card("GPU-5090")["limit"] == 450
    assert rig.notes["GPU-5090"] == "450 - on -"


def test_a_limit_that_is_out_of_range_leaves_the_note_of_the_one_before(rig: Host) -> None:
    rig.run(LIMIT, "hold")
    rig.run(held({OLD + "power_limit": "80W"}), "hold")
    assert (rig.notes["GPU-3090"], rig.card("GPU-3090")["limit"]) == ("280 - on -", 280)


@pytest.mark.parametrize(
    "way",
    [{"uuid": "gpu-3090"}, {"pci": "01:00.0"}, {"pci": "0000:01:00.0"}, {"index": 0}],
    ids=["uuid", "short address", "address", "number"],
)
def test_a_card_is_found_however_it_is_given(rig: Host, way: dict[str, Any]) -> None:
    rig.put(NEW_CARD, OLD_CARD)  # numbers go by addresses, not by the order that is printed
    which = {"uuid": None} | ({"uuid": "GPU-3090"} if "uuid" in way else way)
    plan = held({OLD + key: value for key, value in which.items()} | {OLD + "power_limit": "280W"})
    assert rig.run(plan, "hold").returncode == 0
    assert (rig.card("GPU-3090")["limit"], rig.card("GPU-5090")["limit"]) == (280, 575)


@pytest.mark.parametrize("command", ["hold", "release"])
def test_a_driver_that_does_not_answer_is_said_and_forgets_nothing(rig: Host, command: str) -> None:
    rig.run(LIMIT, "hold")
    rig.put(broken="Failed to initialize NVML: Driver/library version mismatch")
    done = rig.run(LIMIT, command)
    assert done.returncode == 1
    assert "Driver/library version mismatch" in done.stderr
    assert rig.notes == {"GPU-3090": "280 - on -"}


def test_the_note_of_a_card_that_was_taken_out_goes(rig: Host) -> None:
    rig.run(PLAN, "hold")
    rig.put(NEW_CARD)
    assert rig.run(held({NEW + "power_limit": "450W"}), "hold").returncode == 0
    assert set(rig.notes) == {"GPU-5090"}


# --- fans ------------------------------------------------------------------------------------------------------------

FANS = held({OLD + "fans": "70%"})
WARM = held({OLD + "fans": "70%", OLD + "power_limit": "280W", NEW + "power_limit": "450W"})


def test_fans_are_held_before_a_limit_and_alone(rig: Host) -> None:
    done = rig.run(WARM, "hold")
    assert (done.returncode, done.stderr) == (0, "")
    assert rig.changes == ["-pl 450", "fan 0 70", "fan 1 70", "-pl 280"]
    assert rig.notes == {"GPU-3090": "280 - on 70", "GPU-5090": "450 - on -"}
    assert "the fans of card old are held at 70 %\n" in done.stdout
    assert set(rig.state["noted"]) == {"? ? ? -", "? ? ? ?"}
    assert rig.run(FANS, "hold").returncode == 0
    assert rig.notes == {"GPU-3090": "- - on 70"}
    assert rig.card("GPU-3090") == {**OLD_CARD, "fans": [70, 70]}


@pytest.mark.parametrize(
    ("plan", "command", "notes"),
    [
        (LIMIT, "hold", {"GPU-3090": "280 - on -"}),
        (held({NEW + "power_limit": "450W"}), "hold", {"GPU-5090": "450 - on -"}),
        (LIMIT, "release", {}),
    ],
    ids=["a limit stays", "another card stays", "nothing stays"],
)
def test_fans_that_are_no_longer_declared_are_given_back_once(
    rig: Host, plan: Any, command: str, notes: dict[str, str]
) -> None:
    rig.run(WARM, "hold")
    done = rig.run(plan, command)
    assert (done.returncode, done.stderr) == (0, "")
    assert (rig.card("GPU-3090")["fans"], rig.notes) == ([None, None], notes)
    assert "are the driver's own to control again\n" in done.stdout
    rig.edit("GPU-3090", fans=[55, 55])
    assert rig.run(plan, command).returncode == 0
    assert rig.card("GPU-3090")["fans"] == [55, 55]


@pytest.mark.parametrize("note", ["280 - on", "280 - on -", "? ? ? -", "? ? ?"])
def test_fans_of_which_nothing_was_declared_are_left_alone(rig: Host, note: str) -> None:
    """Whether a note is of before there were fans, or of a run that was killed: somebody else may hold them."""
    rig.edit("GPU-3090", fans=[55, 55])
    (rig.folder / "notes").mkdir()
    (rig.folder / "notes" / "GPU-3090").write_text(note)
    assert rig.run(LIMIT, "hold").returncode == 0
    assert rig.run(LIMIT, "release").returncode == 0
    assert rig.card("GPU-3090")["fans"] == [55, 55]


@pytest.mark.parametrize("note", ["? ? ? ?", "280 - on ?", "280", ""], ids=["killed", "refused", "cut off", "empty"])
def test_fans_that_may_be_held_are_given_back(rig: Host, note: str) -> None:
    rig.edit("GPU-3090", fans=[70, None])
    (rig.folder / "notes").mkdir()
    (rig.folder / "notes" / "GPU-3090").write_text(note)
    assert rig.run(LIMIT, "hold").returncode == 0
    assert (rig.card("GPU-3090")["fans"], rig.notes["GPU-3090"]) == ([None, None], "280 - on -")


def test_a_table_of_before_there_were_fans_is_understood(rig: Host) -> None:
    rig.run(LIMIT, "hold")
    (rig.folder / "table").write_text("old GPU-3090 250 -\n")
    done = rig.call("hold", str(rig.folder / "table"))
    assert (done.returncode, done.stderr, rig.notes) == (0, "", {"GPU-3090": "250 - on -"})


@pytest.mark.parametrize(
    ("card", "says", "note"),
    [
        ({"fan_range": [75, 100]}, "card GPU-3090 takes fan speeds of 75 to 100 %, not 70 %", "280 - on -"),
        ({"fans": []}, "card GPU-3090 has no fans that can be set", "280 - on -"),
        (
            # The first one may be held by then.
            {"fan_errors": {"nvmlDeviceSetFanSpeed_v2 1": 3}},
            "nvmlDeviceSetFanSpeed_v2 of card GPU-3090 failed: Not Supported",
            "280 - on ?",
        ),
        (
            {"fan_errors": {"nvmlDeviceSetFanSpeed_v2": 4}},
            "nvmlDeviceSetFanSpeed_v2 of card GPU-3090 failed: Insufficient Permissions",
            "280 - on ?",
        ),
    ],
    ids=["out of range", "no fans", "one fan", "an error"],
)
def test_fans_that_are_refused_fail_and_leave_the_rest_held(
    rig: Host, card: dict[str, Any], says: str, note: str
) -> None:
    rig.edit("GPU-3090", **card)
    done = rig.run(WARM, "hold")
    assert (done.returncode, done.stderr) == (1, f"the fans of card old are not held at 70 %: {says}\n")
    assert (rig.card("GPU-3090")["limit"], rig.card("GPU-5090")["limit"]) == (280, 450)
    assert rig.notes == {"GPU-3090": note, "GPU-5090": "450 - on -"}
    rig.edit("GPU-3090", fan_errors={})
    assert rig.run(LIMIT, "hold").returncode == 0
    assert rig.notes["GPU-3090"] == "280 - on -"


def test_fans_that_do_not_go_back_are_said_and_tried_again(rig: Host) -> None:
    rig.run(WARM, "hold")
    rig.edit("GPU-3090", fan_errors={"nvmlDeviceSetDefaultFanSpeed_v2": 999})
    done = rig.run(LIMIT, "hold")
    assert done.returncode == 1
    assert "the fans of card old do not go back to the driver's own control: nvmlDeviceSetDefaultFan" in done.stderr
    assert rig.notes["GPU-3090"] == "280 - on 70"


def test_a_host_without_the_program_for_fans_says_so(rig: Host) -> None:
    (rig.folder / "gpu-fans").unlink()
    assert rig.run(LIMIT, "hold").returncode == 0
    done = rig.run(FANS, "hold")
    assert done.returncode == 1
    assert (
        f"the fans of card old are not held at 70 %: {rig.folder}/gpu-fans cannot be started: No such file"
        in done.stderr
    )


def test_anything_else_is_refused(rig: Host) -> None:
    assert rig.run(PLAN, "off").returncode == 1
    assert rig.changes == []


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (None, "[Errno 2] No such file or directory"),
        ("old GPU-3090 280", "invalid line `old GPU-3090 280`"),
        ("old GPU-3090 $(id) - -", "invalid line `old GPU-3090 $(id) - -`"),
        ("old", "invalid line `old`"),
        ("old GPU-3090 280 $(id);- -", "invalid line `old GPU-3090 280 $(id);- -`"),
        ("old GPU-3090 280 - - -", "invalid line `old GPU-3090 280 - - -`"),
    ],
)
def test_a_table_that_cannot_be_read_releases_nothing(rig: Host, table: str | None, reason: str) -> None:
    rig.run(LIMIT, "hold")
    rig.put(*rig.state["cards"])
    file = rig.folder / "other"
    if table is not None:
        file.write_text(table)
    done = rig.call("hold", str(file))
    assert (done.returncode, done.stdout, rig.changes) == (1, "", [])
    assert done.stderr.startswith(f"the table of GPUs cannot be read: {reason}")
    assert rig.notes == {"GPU-3090": "280 - on -"}


def test_a_driver_that_hangs_does_not_hang_the_boot(rig: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its child holds the pipe, in a session of its own."""
    rig.run(LIMIT, "hold")
    script = f"#!/bin/sh\nsetsid sleep 30 & echo $! >>{rig.folder}/pids; wait\n"
    (rig.folder / "bin" / "nvidia-smi").write_text(script)
    monkeypatch.setattr(gpu_power, "SECONDS", 0.4)
    began = time.monotonic()
    for command, reason in (("hold", "nvidia-smi shows no card"), ("release", "card GPU-3090 cannot be queried")):
        done = rig.run(LIMIT, command)
        assert (done.returncode, done.stderr) == (1, f"{reason}: no response from nvidia-smi within 0 s\n")
    assert time.monotonic() - began < 20
    assert rig.notes == {"GPU-3090": "280 - on -"}
    for pid in (rig.folder / "pids").read_text().split():
        os.kill(int(pid), 9)


def test_output_without_end_is_cut_off(rig: Host) -> None:
    (rig.folder / "bin" / "nvidia-smi").write_text("#!/bin/sh\nexec yes 'the driver'\n")
    assert rig.run(LIMIT, "hold").stderr == "nvidia-smi shows no card: the driver\n"


def test_no_shell_reads_a_table(rig: Host) -> None:
    (rig.folder / "table").write_text(f"$(id) `touch${{IFS}}{rig.folder}/x` 280 - -\n'a\" GPU-3090 - 1,2 -\n")
    done = rig.call("hold", str(rig.folder / "table"))
    assert (done.returncode, (rig.folder / "x").exists()) == (1, False)
    assert f"there is no card `touch${{IFS}}{rig.folder}/x`, which is to be $(id)\n" in done.stderr


@pytest.mark.parametrize("refuses", ["clocks", "everything", "limit"])
def test_what_does_not_go_back_keeps_its_note(rig: Host, refuses: str) -> None:
    rig.run(PLAN, "hold")
    rig.edit("GPU-5090", refuses=[refuses])
    done = rig.run(PLAN, "release")
    says = {
        "clocks": (0, "", {}),
        "limit": (0, "", {}),
        "everything": (1, "does not go back to its own clocks: ", {"GPU-5090": "450 210,2400 on -"}),
    }
    code, reason, notes = says[refuses]
    assert (done.returncode, rig.notes) == (code, notes)
    assert reason in done.stderr
    if code:
        assert "card GPU-5090 does not go back to its default limit: Failed to set power" in done.stderr


def test_the_file_itself_holds(rig: Host) -> None:
    """As the unit starts it: by its path, with the program for fans beside it."""
    plan = held({OLD + "power_limit": "280W", OLD + "fans": "70%"})
    assert plan.power
    program = rig.folder / "gpu-power"
    for path, text in ((program, plan.power.program.text), (rig.folder / "gpu-fans.py", plan.power.fans.text)):
        path.write_text(text)
    (rig.folder / "table").write_text(plan.power.table.text)
    program.chmod(0o755)
    env = {**rig.environment, "PATH": f"{rig.folder / 'bin'}:/usr/bin:/bin"}
    command = [str(program), "hold", str(rig.folder / "table")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    printed = "the fans of card old are held at 70 %\ncard old is limited to 280 W\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")
    assert rig.notes == {"GPU-3090": "280 - on 70"}


# --- program, inspection and verification together --------------------------------------------------------------------


def looked(rig: Host, plan: Any) -> Any:
    """What our look at the host makes of it, the unit being up."""
    notes = {f"{POWER_RUN}/{uuid}": f"{note}\n" for uuid, note in rig.notes.items()}
    (power,) = power_parts(inspect(InspectInput(notes=plan.power is not None), InspectedHost(texts=notes)))
    up = replace(power, unit=ServiceState("active", "enabled", False, ""))
    return HostState.of(*gpu_parts(rig.gpus()), up)


def steps(rig: Host, plan: Any) -> list[str]:
    """What is to be done to the GPUs; their files are another matter."""
    return [step.says for step in power_changes(plan, looked(rig, plan)) if step.says]


def verified(rig: Host, plan: Any) -> dict[str, tuple[bool, str]]:
    """What verification says of each GPU."""
    answers = rig.probe(probes(plan))
    return {each.name: (each.ok, each.detail) for each in power_checks(plan.power, answers) if each.name != "unit"}


def test_what_was_held_is_seen_as_planned_and_verified(rig: Host) -> None:
    assert steps(rig, PLAN) == ["holding new to 450 W, 210 to 2400 MHz; old to 280 W"]
    rig.run(PLAN, "hold")
    assert steps(rig, PLAN) == []
    assert verified(rig, PLAN) == {
        "old": (True, "may draw 280 W"),
        "new": (True, "may draw 450 W; limited to 210 to 2400 MHz"),
    }


@pytest.mark.parametrize(
    ("drift", "card", "detail"),
    [
        (
            {"limit": 350.0},
            "old",
            "may draw 350 W, declared are 280 W: another program changed it; `herd up` restores it",
        ),
        (
            {"limit": 575.0},
            "new",
            "may draw 575 W, declared are 450 W: another program changed it; `herd up` restores it",
        ),
        ({"clock": 2800}, "new", "runs at 2800 MHz, expected are 210 to 2400 MHz: `herd up`"),
    ],
)
def test_a_drift_is_seen_said_and_mended(rig: Host, drift: dict[str, Any], card: str, detail: str) -> None:
    rig.run(PLAN, "hold")
    rig.edit({"old": "GPU-3090", "new": "GPU-5090"}[card], **drift)
    assert steps(rig, PLAN)
    assert verified(rig, PLAN)[card] == (False, detail)
    rig.run(PLAN, "hold")
    if "clock" not in drift:  # a GPU that was above its lock slows down by itself
        assert steps(rig, PLAN) == []


@pytest.mark.parametrize("told", [[45, 45], [None, None], [74, 74]], ids=["another", "its own", "a little more"])
def test_fans_that_somebody_else_sets_are_seen_said_and_mended(rig: Host, told: list[int | None]) -> None:
    rig.run(FANS, "hold")
    assert steps(rig, FANS) == []
    assert verified(rig, FANS) == {"old": (True, "fans at 70 %")}
    rig.edit("GPU-3090", fans=told)
    assert steps(rig, FANS) == ["holding old to fans at 70 %"]
    said = (
        f"its fans run at {told[0] or 30} %, declared are 70 %: another was set, or it is too hot; `herd up` sets ours"
    )
    assert verified(rig, FANS) == {"old": (False, said)}
    rig.run(FANS, "hold")
    assert steps(rig, FANS) == []
    rig.edit("GPU-3090", fans=[67, 73])
    assert (steps(rig, FANS), verified(rig, FANS)["old"]) == ([], (True, "fans at 67 %"))


@pytest.mark.parametrize("laptop", [LAPTOP, SLY], ids=["tells no limit", "tells one"])
def test_a_laptop_that_refuses_is_not_asked_again_at_every_run(tmp_path: Path, laptop: Any) -> None:
    rig = host(tmp_path, OLD_CARD, laptop)
    plan = held({NEW + "power_limit": "80W", NEW + "clocks": {"max": "1800MHz"}})
    rig.run(plan, "hold")
    assert steps(rig, plan) == []
    said = "takes no power limit, its clocks are held instead; limited to 210 to 1800 MHz"
    assert verified(rig, plan) == {"new": (True, said)}


def test_a_driver_that_does_not_answer_is_seen(rig: Host) -> None:
    rig.put(broken="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
    assert "couldn't communicate" in looked(rig, LIMIT).gpus.problem
    assert verified(rig, LIMIT)["old"][1].startswith("NVIDIA-SMI has failed")
    (rig.folder / "bin" / "nvidia-smi").unlink()
    assert looked(rig, LIMIT).gpus.problem == "there is no nvidia-smi"
