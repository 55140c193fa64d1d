"""Which two servers are compared: both planned as for `herd up`, from the inventory with some keys changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from llamaherd.bench.arms.units import LISTEN, Arm, arms_port
from llamaherd.diagnostics.findings import Finding, UserError
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.settings import Setting, with_settings
from llamaherd.inventory.yamlfile import Document
from llamaherd.pipeline.load import plans
from llamaherd.pipeline.rollback import keyless, lacks
from llamaherd.plan import InstancePlan, Only, Plan
from llamaherd.role.role import Role

_NAMED = re.compile(r"([^/\s:]+)/([^/\s:]+)")
_NOT_COMPARED = ("port", "listen", "api_key", "backend", "expect", "tune", "drain")
"""Keys that are no arm's own: both listen where nothing else does, as units, and are not held to anything."""


@dataclass(frozen=True)
class Two:
    """Both arms with the plans that they are of, and the declared instances that they stand for."""

    rig: Rig
    a: Arm
    b: Arm
    plan_a: Plan
    plan_b: Plan
    declared: tuple[InstancePlan, ...]
    changed: bool
    """Whether B is something that no inventory declares."""

    @property
    def context(self) -> int:
        """What each request has of it, in both."""
        return min(each.instance.context // max(1, each.instance.endpoint.streams) for each in (self.a, self.b))

    @property
    def asked(self) -> Plan:
        """The plan by which the host is asked what both need."""
        both = {each.folder: each for each in (*self.plan_a.models, *self.plan_b.models)}
        builds = {each.id: each for each in (*self.plan_a.builds, *self.plan_b.builds)}
        return keyless(
            self.plan_b.model_copy(update={"models": tuple(both.values()), "builds": tuple(builds.values())})
        )


def named(word: str) -> tuple[str, str]:
    """The rig and the instance in RIG/INSTANCE. Raises UserError."""
    found = _NAMED.fullmatch(word)
    if not found:
        raise UserError(f"`{word}` names no instance of a rig", "with --run, name RIG/INSTANCE, such as duo/chat")
    return found[1], found[2]


def two_arms(
    inventory: Path,
    roles: Sequence[Role],
    a: str,
    b: str | None,
    settings: Sequence[Setting],
    doubtful: Callable[[Sequence[Finding]], None],
) -> Two:
    """A as it is declared; B another instance of its rig, or the same, with these keys. Raises UserError."""
    rig, one = named(a)
    rig_b, other = named(b) if b else (rig, one)
    if rig_b != rig:
        raise UserError(f"{a} and {b} are on two hosts", "measure each, and compare their results without --run")
    if other == one and not settings:
        raise UserError("A and B are the same", "say what is otherwise about B, `--with KEY=VALUE`, or name another")
    if wrong := next((each for each in settings if each.path[0] in _NOT_COMPARED), None):
        raise UserError(f"`--with {wrong}` is nothing that two arms can differ in", "choose another key")
    usual: list[Finding] = []
    declared, plan = plans(inventory, roles, (rig,), doubtful=usual.extend)[rig]
    both = tuple(unit_instance(plan, rig, each) for each in dict.fromkeys((one, other)))
    port = arms_port(plan, one)
    there = (Setting(("port",), port, f"port={port}"), Setting(("listen",), LISTEN, f"listen={LISTEN}"))

    def planned(name: str, keys: Sequence[Setting]) -> Plan:
        def edit(whole: Document) -> Document:
            return with_settings(whole, name, keys) if whole.data.get("rig") == rig else whole

        def new(found: Sequence[Finding]) -> None:
            if keys != there:
                doubtful([each for each in found if each not in usual])

        return plans(inventory, roles, (rig,), edit=edit, doubtful=new)[rig][1]

    plan_a, plan_b = planned(one, there), planned(other, (*settings, *there))
    title_b = " with ".join([f"{rig}/{other}", *([", ".join(map(str, settings))] if settings else [])])
    return Two(
        declared,
        Arm("A", f"{rig}/{one}", unit_instance(plan_a, rig, one)),
        Arm("B", title_b, unit_instance(plan_b, rig, other)),
        plan_a,
        plan_b,
        both,
        bool(settings),
    )


def unit_instance(plan: Plan, rig: str, name: str) -> InstancePlan:
    """An instance of a plan that is a unit of systemd. Raises UserError."""
    found = next((each for each in plan.instances if each.name == name), None)
    if found is None:
        there = ", ".join(each.name for each in plan.instances) or "none"
        raise UserError(f"{rig} has no instance `{name}`", f"its instances: {there}")
    if found.members:
        raise UserError(
            f"{rig}/{name} is a group, and arms have one model each",
            "leave `group` out of the instance for as long as it is measured",
        )
    if found.backend != "systemd":
        raise UserError(
            f"{rig}/{name} is a container, and arms are units of systemd",
            "declare `backend: systemd` for it to compare it so, or compare two results of `herd bench`",
        )
    return found


def not_there(two: Two, state: HostState) -> str | None:
    """What the host lacks for both, and for each; None where both can be started."""
    for each in two.declared:
        if each.service not in state.units:
            return f"{each.service} is not on its host yet"
    for plan, arm in ((two.plan_a, two.a), (two.plan_b, two.b)):
        part = plan.model_copy(update={"only": Only(instances=(arm.instance.name,))})
        if gone := list(lacks(part, state)):
            return f"the host has no {', no '.join(gone)}, which {arm.title} needs"
    return None
