"""Make the plan of a rig from the parts of its roles, and show it as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.fleet_file import FleetFile
from llamaherd.lock import Lock
from llamaherd.lock.apply import pinned
from llamaherd.memory.facts import RigFacts
from llamaherd.pipeline.selection import filled_fields, needed_plan
from llamaherd.plan import Estimate, Only, Plan
from llamaherd.role.role import PlanFields, Planning, PlanPart, Role


def plan(
    facts: RigFacts,
    lock: Lock,
    roles: Sequence[Role],
    rigs: Mapping[str, Rig] = MappingProxyType({}),
    only: Only | None = None,
    fleet: FleetFile | None = None,
    measured: Mapping[str, float] = MappingProxyType({}),
) -> Plan:
    """Return the desired state of a rig's host, or of the part in `only`. Raises NotLockedError.

    `rigs` are those of the fleet by name, from which models may be fetched; an unreadable rig is left out. `fleet` is
    the content of `fleet.yaml`. `measured` are tokens a second of servers, by `RIG.INSTANCE`.
    """
    rig = pinned(facts.rig, lock)
    whole, parts = _planned(roles, Planning(rig, facts, lock, rigs, PlanFields(), fleet, measured))
    if only is None:
        return whole
    needs = None
    if only.instances:
        names = [name for server in only.instances for name in rig.servers[server]]
        alone = rig.model_copy(update={"instances": {name: rig.instances[name] for name in names}})
        planning = Planning(alone, facts, lock, rigs, PlanFields())
        own = _planned(roles, planning)[0]
        needs = needed_plan(whole, own, only.instances, own.models)
    fields = filled_fields((role, parts[role.name]) for role in roles if role.thing in only.roles)
    return whole.model_copy(update={"only": only.model_copy(update={"needs": needs, "fields": fields})})


def _planned(roles: Sequence[Role], planning: Planning) -> tuple[Plan, Mapping[str, PlanPart]]:
    """Return the plan of a pinned rig, and each role's part of it."""
    rig, fields = planning.rig, planning.planned
    parts: dict[str, PlanPart] = {}
    for role in roles:
        part = role.plan(replace(planning, planned=fields))
        fields = {**fields, **part.fields}
        parts[role.name] = part
    planned = Plan(
        rig=rig.rig,
        os=rig.host.os,
        ram=rig.host.ram,
        amx=rig.host.cpu.amx,
        packages=tuple(sorted(frozenset().union(*(part.packages for part in parts.values())))),
        files=tuple(file for part in parts.values() for file in part.files),
        repositories=tuple(dict.fromkeys(each for part in parts.values() for each in part.repositories)),
        parts={name: part.own for name, part in parts.items() if part.own is not None},
        **fields,
    )
    return planned, parts


def show_plan(plan: Plan, roles: Sequence[Role], asked: Mapping[str, Estimate | str] | None = None) -> str:
    """Return the whole plan as text; `asked` is the memory of instances by their engines, by name."""
    lines = (line for role in roles for line in role.describe(plan, asked or {}))
    return "\n".join([f"rig {plan.rig} ({plan.os})", *lines]) + "\n"
