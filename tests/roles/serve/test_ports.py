"""Ports that change hands between instances: who is stopped so that another can start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from roles.serve.ports import handover_changes, lacks
from tests.support.rigs import cpu_rig, planned

NAMES = ("a", "b", "c")


def plan_of(ports: dict[str, tuple[int, str]]) -> Plan:
    """A rig of instances on these ports, with these backends."""
    rig = cpu_rig()
    like = rig["instances"]["drafter"]
    rig["instances"] = {name: {**like, "port": port, "backend": backend} for name, (port, backend) in ports.items()}
    return planned(rig)


def seen_of(ports: dict[str, tuple[int, str]]) -> HostState:
    """A host where these serve."""
    from llamaherd.host.serving import ContainerState, UnitState

    seen = HostState()
    for name, (port, backend) in ports.items():
        if backend == "systemd":
            seen.units[f"llama-{name}"] = UnitState("active", "enabled", False, "1", "spec", port)
        else:
            seen.containers[f"llama-{name}"] = ContainerState("running", "healthy", "1", "spec", port)
    return seen


def stopped(then: str, now: str, staying: tuple[str, ...] = ()) -> list[str]:
    """Who is stopped, given the last digit of each one's port, and `'` behind those in containers."""

    def read(text: str) -> dict[str, tuple[int, str]]:
        ports = {}
        for name, word in zip(NAMES, text.split(), strict=False):
            if word != "-":
                ports[name] = (9000 + int(word.rstrip("'")), "compose" if word.endswith("'") else "systemd")
        return ports

    steps = handover_changes(plan_of(read(now)), seen_of(read(then)), staying)
    for step in steps:
        assert "systemctl stop" in step.script or "docker stop" in step.script
    return [name for step in steps for name in NAMES if f"stopping llama-{name}:" in step.script]


@pytest.mark.parametrize(
    ("then", "now", "who"),
    [
        ("1 2", "1 2", []),
        ("1 2", "2 1", ["b", "a"]),
        ("1 2", "2 3", ["b"]),
        ("1 2", "3 1", ["a"]),
        ("1 2", "3 4", []),
        ("1 2 3", "2 3 1", ["b", "c", "a"]),
        ("1 2 3", "2 1 3", ["b", "a"]),
        ("1 2'", "2 1'", ["b", "a"]),
        ("1' 2'", "2' 1'", ["b", "a"]),
        ("1 -", "2 1'", ["a"]),
        ("- 1", "1 2", ["b"]),
    ],
)
def test_whoever_holds_what_another_is_to_have_is_stopped(then: str, now: str, who: list[str]) -> None:
    assert stopped(then, now) == who


def test_whoever_takes_nothing_over_stops_nobody() -> None:
    assert stopped("1 2", "2 1", staying=("a",)) == ["a"]
    assert stopped("1 2", "2 1", staying=("a", "b")) == []


def test_what_is_stopped_already_is_left_alone() -> None:
    seen = seen_of({"a": (9001, "systemd"), "b": (9002, "systemd")})
    seen.units["llama-b"] = replace(seen.units["llama-b"], active="failed")
    assert handover_changes(plan_of({"a": (9002, "systemd"), "b": (9003, "systemd")}), seen) == []


def test_what_an_instance_lacks_is_named() -> None:
    plan = planned(cpu_rig())
    chat, drafter = plan.instances
    builds = {build.id: "done" for build in plan.builds}
    everything = HostState(builds=builds, images={image.tag for image in plan.images})
    assert lacks(chat, plan, everything, ()) is lacks(drafter, plan, everything, ()) is None
    assert lacks(chat, plan, everything, {"gemma", "moe"}) == f"its model `{chat.model}` is not in the store"
    assert lacks(chat, plan, everything, {drafter.model}) is None
    assert "is not built" in (lacks(chat, plan, HostState(images=everything.images), ()) or "")
    assert lacks(chat, plan, HostState(builds=everything.builds), ()) is None
    assert "is not made" in (lacks(drafter, plan, HostState(builds=everything.builds), ()) or "")
