"""Whether a server can be measured now: each thing that is in the way, as the meter's first second tells it."""

from __future__ import annotations

from typing import Any

import pytest

from llamaherd.measure.meter.meter import Obstacle, find_gpu, gpus_of, host_snapshot, obstacles
from llamaherd.plan import GpuRef, Plan
from tests.bench.meter_lines import CARD_FIELDS, CARDS, NEW, OLD, SERVER, figures, gpu, readings, seen
from tests.support.rigs import gpu_rig, planned

DECLARED = {"gpus/cards/old/uuid": OLD, "gpus/cards/new/uuid": NEW}
PLAN = planned(gpu_rig(), DECLARED)
HELD = planned(gpu_rig(), {**DECLARED, "gpus/cards/old/power_limit": "280W"})
ON_OLD = next(each for each in PLAN.instances if [gpu.at for gpu in each.server.cards] == [OLD])
LLAMA = [OLD, 77, 7 << 30, "llama-server", "llama-chat.service"]


def found(
    plan: Plan = PLAN, *, lines: tuple[str, ...] = (), first: dict[str, Any] | None = None, **more: Any
) -> list[Obstacle]:
    """What is in the way where a look tells this."""
    instance = next(each for each in plan.instances if each.name == ON_OLD.name)
    server = {"pid": 77, "spec": instance.spec, "started": 5}
    standing = {"server": server, **(first or {})}
    told = readings(gpu(101), gpu(101, NEW), figures(101), lines, seen(102, **more), **standing)
    seen_now = host_snapshot(told)
    assert seen_now
    return list(obstacles(seen_now, plan, instance))


def test_nothing_is_in_the_way_of_a_server_that_is_alone() -> None:
    assert found() == []
    assert found(apps=None) == []


NAME, RIG = ON_OLD.name, PLAN.rig


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"ours": []}, Obstacle("server-down", f"{NAME} does not run", f"`herd up {RIG}` starts it")),
        (
            {"first": {"server": {"pid": 77, "spec": "other", "started": 5}}},
            Obstacle("not-as-planned", f"the running {NAME} differs from the plan", f"`herd plan {RIG}` shows why"),
        ),
        (
            {"listens": False},
            Obstacle("port-taken", f"a program other than {NAME} listens at port {ON_OLD.endpoint.port}"),
        ),
        (
            {"in_flight": 1},
            Obstacle("busy", f"{NAME} serves 1 request of other clients", "wait, or keep its clients away meanwhile"),
        ),
        (
            {"in_flight": 3},
            Obstacle("busy", f"{NAME} serves 3 requests of other clients", "wait, or keep its clients away meanwhile"),
        ),
        (
            {"apps": [LLAMA, [OLD, 900, 3 << 30, "python3", "user@1000.service"]]},
            Obstacle("gpu-shared", f"python3 of user@1000.service is on GPU {OLD} as well, with 3.2 GB"),
        ),
        (
            {"apps": [LLAMA, [OLD, 900, None, "", ""]]},
            Obstacle("gpu-shared", f"process 900 is on GPU {OLD} as well"),
        ),
        (
            {"others": [["cc1plus", "", 0.4], ["cc1plus", "", 0.3]]},
            Obstacle("host-busy", "other programs use 0.7 processors: cc1plus"),
        ),
        (
            {"lines": (figures(101.5, server=SERVER | {"swap": 3_000_000}),)},
            Obstacle("swapped", "3.0 MB of the server lie in swap", "end what else takes RAM there, then restart it"),
        ),
        ({"battery": True}, Obstacle("on-battery", "the machine runs on its battery", "plug it in")),
        (
            {"lines": (gpu(101.5, reasons="0x0000000000000024"),)},
            Obstacle("gpu-slowed", f"GPU {OLD} is slowed now: heat", "let it cool down"),
        ),
        ({"lines": (gpu(101.5, reasons="0x8"),)}, Obstacle("gpu-slowed", f"GPU {OLD} is slowed now: hardware")),
        (
            {"lines": (gpu(101.5, limit="230.00"),)},
            Obstacle(
                "power-held",
                f"GPU {OLD} is limited to 230 W of 350 W, and no limit is declared",
                "declare its `power_limit`, or set it to 350 W",
            ),
        ),
    ],
)
def test_each_thing_that_is_in_the_way_is_told(more: dict[str, Any], expected: Obstacle) -> None:
    assert found(**more) == [expected]


@pytest.mark.parametrize(
    "more",
    [
        {"apps": [LLAMA, [NEW, 900, 3 << 30, "python3", ""]]},
        {"apps": [LLAMA, [OLD, 78, 1, "llama-server", ""]]},
        {"others": [["cron", "", 0.3]]},
        {"battery": False},
        {"in_flight": None, "listens": None},
        {"lines": (figures(101.5, server=SERVER | {"swap": 900_000}),)},
        {"lines": (gpu(101.5, reasons="0x1"),)},
        {"lines": (gpu(101.5, reasons="0x4"),)},
        {"lines": (gpu(101.5, NEW, limit="100.00", reasons="0x40"),)},
        {"lines": (gpu(101.5, limit="[N/A]", reasons="[N/A]"),)},
    ],
)
def test_what_is_nothing_is_not_told(more: dict[str, Any]) -> None:
    """Another GPU's guest, the server's own child, a little of others, a power cap that is at work."""
    assert found(**more) == []


def test_a_server_that_is_not_the_planned_one_is_all_that_is_told() -> None:
    assert [each.code for each in found(ours=[], in_flight=2, battery=True)] == ["server-down"]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("350.00", []),
        ("280.00", []),
        ("279.50", []),
        (
            "230.00",
            [
                Obstacle(
                    "power-held", f"GPU {OLD} is limited to 230 W, but 280 W are declared", f"`herd up {RIG}` sets it"
                )
            ],
        ),
    ],
)
def test_a_limit_below_the_declared_one_is_told(limit: str, expected: list[Obstacle]) -> None:
    assert found(HELD, lines=(gpu(101.5, limit=limit),)) == expected


def test_gpus_are_those_that_the_server_is_on() -> None:
    told = host_snapshot(readings(gpu(101), gpu(101, NEW), figures(101), seen(102, apps=[[NEW, 77, None, "", ""]])))
    assert told
    assert gpus_of(told, [GpuRef(name="old", at=OLD)]) == (NEW,)


@pytest.mark.parametrize(
    ("at", "uuids"),
    [
        (OLD, (OLD,)),
        (NEW.lower(), (NEW,)),
        ("00000000:21:00.0", (NEW,)),
        ("0", (OLD,)),
        ("1", (NEW,)),
        ("2", ()),
        ("GPU-gone", ()),
        ("any", (OLD, NEW)),
    ],
)
def test_else_they_are_those_that_it_was_given(at: str, uuids: tuple[str, ...]) -> None:
    told = host_snapshot(readings(gpu(101), gpu(101, NEW), figures(101), seen(102, apps=None)))
    assert told
    assert gpus_of(told, [GpuRef(name="old", at=at)]) == uuids


def test_gpus_without_an_address_are_found_by_nobody() -> None:
    facts = {"card_fields": CARD_FIELDS, "cards": [each.replace("00000000:01:00.0", "[N/A]") for each in CARDS]}
    told = host_snapshot(readings(gpu(101), seen(102), **facts))
    assert told
    assert find_gpu(told, "0") == NEW


def test_there_is_no_look_before_one_was_told() -> None:
    assert host_snapshot(readings(figures(101))) is None
