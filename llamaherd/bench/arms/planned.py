"""Which two servers are compared: both planned as for `herd up`, from the inventory with some keys changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from llamaherd.bench.arms.alone import at_port, names_in
from llamaherd.bench.arms.units import Arm, arms_port
from llamaherd.diagnostics.findings import Finding, UserError
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.settings import Setting, with_settings
from llamaherd.inventory.yamlfile import Document
from llamaherd.pipeline.load import plans
from llamaherd.pipeline.rollback import keyless, lacks
from llamaherd.plan import InstancePlan, Only, Plan
from llamaherd.plan.loaded import names_of, not_one
from llamaherd.role.role import Role

_NAMED = re.compile(r"([^/\s:]+)/([^/\s:]+)")
_NOT_COMPARED = ("port", "listen", "api_key", "backend", "group", "expect", "tune", "drain")
"""Keys that are no arm's own: both listen where nothing else does, as units, and are not held to anything."""


@dataclass(frozen=True)
class Two:
    """Both arms with the plans that they are of, and the declared servers whose instances they stand for."""

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


def _names(a: str, b: str | None, settings: Sequence[Setting]) -> tuple[str, str, str]:
    """The rig, and the instances A and B. Raises UserError where these cannot be compared."""
    rig, one = named(a)
    rig_b, other = named(b) if b else (rig, one)
    if rig_b != rig:
        raise UserError(f"{a} and {b} are on two hosts", "measure each, and compare their results without --run")
    if other == one and not settings:
        raise UserError("A and B are the same", "say what is otherwise about B, `--with KEY=VALUE`, or name another")
    if wrong := next((each for each in settings if each.path[0] in _NOT_COMPARED), None):
        raise UserError(f"`--with {wrong}` is nothing that two arms can differ in", "choose another key")
    return rig, one, other


def two_arms(
    inventory: Path,
    roles: Sequence[Role],
    a: str,
    b: str | None,
    settings: Sequence[Setting],
    doubtful: Callable[[Sequence[Finding]], None],
) -> Two:
    """A as it is declared; B another instance of its rig, or the same, with these keys. Raises UserError."""
    rig, one, other = _names(a, b, settings)
    usual: list[Finding] = []
    declared, plan = plans(inventory, roles, (rig,), doubtful=usual.extend)[rig]
    servers = {each: unit_of(plan, rig, each) for each in (one, other)}
    port = arms_port(plan, one)

    def edit(whole: Document) -> Document:
        return with_settings(whole, other, settings) if whole.data.get("rig") == rig else whole

    def new(found: Sequence[Finding]) -> None:
        doubtful([each for each in found if each not in usual])

    plan_b = plans(inventory, roles, (rig,), edit=edit, doubtful=new)[rig][1] if settings else plan
    title_b = " with ".join([f"{rig}/{other}", *([", ".join(map(str, settings))] if settings else [])])
    return Two(
        declared,
        Arm("A", f"{rig}/{one}", arm_instance(plan, rig, one, port)),
        Arm("B", title_b, arm_instance(plan_b, rig, other, port)),
        plan,
        plan_b,
        tuple({each.name: each for each in servers.values()}.values()),
        bool(settings),
    )


def unit_of(plan: Plan, rig: str, name: str) -> InstancePlan:
    """The unit of systemd that has an instance: its own, or that of its group. Raises UserError."""
    found = next((each for each in plan.instances if name in names_in(each)), None)
    if found is None:
        group = next((each for each in plan.instances if each.name == name), None)
        if group:
            there = ", ".join(names_of(plan))
            raise UserError(f"{rig}/{name} is a group, and arms have one model each", f"name one of {there}")
        raise not_one(plan, name)
    if found.backend != "systemd":
        raise UserError(
            f"{rig}/{name} is a container, and arms are units of systemd",
            "declare `backend: systemd` for it to compare it so, or compare two results of `herd bench`",
        )
    return found


def arm_instance(plan: Plan, rig: str, name: str, port: int, start_seconds: int | None = None) -> InstancePlan:
    """An instance of a plan as an arm that listens at this port. Raises UserError."""
    return at_port(unit_of(plan, rig, name), name, port, start_seconds)


def not_there(two: Two, state: HostState) -> str | None:
    """What the host lacks for both, and for each; None where both can be started."""
    for each in two.declared:
        if each.service not in state.units:
            return f"{each.service} is not on its host yet"
    for plan, arm in ((two.plan_a, two.a), (two.plan_b, two.b)):
        part = plan.model_copy(update={"only": Only(instances=(two.rig.server_of(arm.instance.name),))})
        if gone := list(lacks(part, state)):
            return f"the host has no {', no '.join(gone)}, which {arm.title} needs"
    return None
