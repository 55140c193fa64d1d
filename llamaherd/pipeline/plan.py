"""Make the plan of a rig from the parts of its roles, select a part of it by names, and show it as text. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from llamaherd.diagnostics.findings import UserError
from llamaherd.diagnostics.spelling import completed_name, misspelled_name
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.fleet_file import FleetFile
from llamaherd.lock import Lock
from llamaherd.lock.apply import pinned
from llamaherd.memory.facts import RigFacts
from llamaherd.plan import Estimate, Holds, ModelPlan, Only, Plan
from llamaherd.role.changes import Change
from llamaherd.role.role import PlanFields, Planning, PlanPart, Role, Task
from llamaherd.text.numbers import show_mib

KINDS = ("instance", "role")
"""Prefixes, followed by a colon, of names that are both an instance and a role."""

_GROUND = ("packages", "files", "repositories")
"""Fields of a plan that combine the parts of all roles, and that base applies."""


def choose_parts(names: Sequence[str], rigs: Mapping[str, Rig], roles: Sequence[Role]) -> dict[str, Only]:
    """Return the selected part of each rig that has one. Raises UserError for an unknown or ambiguous name."""
    there = {
        "instance": {server for rig in rigs.values() for server in rig.servers},
        "role": {role.thing for role in roles},
    }
    wanted: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name in names:
        kind, bare = _kind_of(name, there, rigs)
        wanted[kind] += [bare] * (bare not in wanted[kind])
    found = {
        rig.rig: Only(
            instances=tuple(name for name in wanted["instance"] if name in rig.servers), roles=tuple(wanted["role"])
        )
        for rig in rigs.values()
    }
    return {name: only for name, only in found.items() if only.names}


def _kind_of(name: str, there: Mapping[str, Collection[str]], rigs: Mapping[str, Rig]) -> tuple[str, str]:
    before, _, after = name.rpartition(":")
    bare = after if before in KINDS else name
    kinds = [kind for kind in KINDS if bare in there[kind] and before in ("", kind)]
    if len(kinds) == 1:
        return kinds[0], bare
    if kinds:
        raise UserError(
            f"--only {name}: there is an instance and a role of this name",
            " or ".join(f"`--only {kind}:{name}`" for kind in kinds),
        )
    if group := next((rig.instances[bare].group for rig in rigs.values() if bare in rig.instances), None):
        raise UserError(f"--only {name}: it is one of group `{group}`, whose server is one", f"`--only {group}`")
    known = sorted({*there["instance"], *there["role"]})
    meant = misspelled_name(bare, known) or completed_name(bare, known)
    lists = [f"{kind}s: {', '.join(sorted(there[kind]))}" for kind in KINDS if there[kind]]
    raise UserError(
        f"--only {name}: there is no such instance or role",
        " ".join([*([f"did you mean `{meant}`?"] if meant else []), "; ".join(lists)]),
    )


def needed_plan(whole: Plan, alone: Plan, names: Collection[str], models: Iterable[ModelPlan] = ()) -> Plan:
    """Return what these instances need of a rig's plan; `alone` is the plan of the rig without other instances.

    `models` are needed in addition to those that they serve: a search may try them.

    Instances and builds are those of the whole plan: all servers share the processors, and a build is for all its GPUs.
    """
    instances = tuple(each for each in whole.instances if each.name in names)
    builds = {each.build for each in instances}
    folders = {folder for each in instances for folder in each.server.folders} | {each.folder for each in models}
    images = {each.server.image for each in instances}
    return alone.model_copy(
        update={
            "instances": instances,
            "builds": tuple(each for each in whole.builds if each.id in builds),
            "models": tuple(each for each in whole.models if each.folder in folders),
            "images": tuple(each for each in whole.images if each.tag in images),
            "driver": None,
            "power": None,
            "windows_power": (),
            "wsl": None,
            "parts": {},
            "only": Only(instances=tuple(names)),
        }
    )


def part_for(plan: Plan, role: Role) -> Plan | None:
    """Return the plan that a role applies; None if it takes no part in the run."""
    if plan.whole(role.thing):
        return plan
    if role.for_instances and plan.only and plan.only.instances:
        return plan.only.needs or plan
    return None


def role_parts(plan: Plan, roles: Iterable[Role]) -> Iterator[tuple[Role, Plan]]:
    """Yield the roles that take part, each with the plan that it applies."""
    for role in roles:
        if (part := part_for(plan, role)) is not None:
            yield role, part


def refusing_parts(plan: Plan, roles: Iterable[Role]) -> Iterator[tuple[Role, Plan]]:
    """Yield the roles that may refuse a run: those that take part, and base."""
    for role in roles:
        part = part_for(plan, role) or (plan if role.ground else None)
        if part is not None:
            yield role, part


def tasks_of(plan: Plan, role: Role) -> Iterator[Task]:
    """Yield the tasks of a role, in order. In a run that is limited to the role, one removes its earlier work."""
    part = part_for(plan, role)
    if part is None:
        return
    yield from role.tasks(part)
    if plan.only and plan.whole(role.thing):
        yield Task("what is not declared any more", lambda state, _: tuple(role.leftovers(plan, state)))


def leftovers(plan: Plan, roles: Iterable[Role], state: HostState) -> list[Change]:
    """Return the changes that remove earlier work of roles, which base carries out in a run of all roles."""
    return [] if plan.only else [change for role in roles for change in role.leftovers(plan, state)]


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
    chosen = [role for role in roles if role.thing in only.roles]
    fields = tuple(field for role in chosen for field in (*parts[role.name].fields, *(_GROUND if role.ground else ())))
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
        cores=rig.host.cpu.cores,
        amx=rig.host.cpu.amx,
        packages=tuple(sorted(frozenset().union(*(part.packages for part in parts.values())))),
        files=tuple(file for part in parts.values() for file in part.files),
        repositories=tuple(dict.fromkeys(each for part in parts.values() for each in part.repositories)),
        parts={name: part.own for name, part in parts.items() if part.own is not None},
        **fields,
    )
    return planned, parts


def summarize_plan(
    rig: Rig, plan: Plan, roles: Sequence[Role], estimates: Mapping[str, Estimate | str] | None = None
) -> str:
    """Return what a plan serves, where, and with how much memory; `estimates` is as for `show_plan`."""
    lines = [f"{plan.rig} ({plan.os})"]
    for instance in plan.instances:
        server, names = instance.server, ", ".join(each.model for each in instance.members) or instance.model
        address = rig.connect.host if instance.endpoint.for_others else instance.endpoint.local_address
        where = instance.endpoint.url(address=address)
        lines.append(f"  {instance.name:10} {where}{'' if instance.endpoint.for_others else ' on the host alone'}")
        key = "API key" if server.key else "no API key"
        streams = f"{instance.endpoint.streams} stream{'s' * (instance.endpoint.streams != 1)}"
        lines.append(f"{'':13}{names} on {instance.engine}, context {instance.context:,}, {streams}, {key}")
        found = (estimates or {}).get(instance.name) or instance.memory
        if isinstance(found, str):
            lines.append(f"{'':13}memory by its engine: {found}")
        elif found is not None:
            held = ", ".join(f"{each.where} {_mib(each.total, each.size)}" for each in found.holds)
            lines.append(f"{'':13}memory{' by its engine' * (found.source == 'engine')}: {held}")
    lines += _whole_memory(plan)
    for role in roles:
        # What instances need is shown as the instances. Of the rest, a line each.
        described = () if role.for_instances else role.describe(plan, estimates or {})
        lines += [line for line in described if line[:2].isspace() and not line[2:3].isspace()]
    return "\n".join(lines) + "\n"


def _whole_memory(plan: Plan) -> list[str]:
    """Return what all servers together hold of each GPU and of RAM, if there are several."""
    held: dict[str, list[Holds]] = {}
    for each in (each for instance in plan.instances if instance.memory for each in instance.memory.holds):
        held.setdefault(each.where, []).append(each)
    shared = {where: parts for where, parts in held.items() if len(parts) > 1}
    texts = [f"{where} {_mib(sum(each.total for each in parts), parts[0].size)}" for where, parts in shared.items()]
    return [f"  {'together':10} {', '.join(texts)}"] if texts else []


def _mib(held: int, size: int) -> str:
    """Return bytes of a whole in the unit of `nvidia-smi`."""
    return f"{held / (1 << 20):,.0f} of {show_mib(size)}"


def show_plan(plan: Plan, roles: Sequence[Role], estimates: Mapping[str, Estimate | str] | None = None) -> str:
    """Return the whole plan as text; `estimates` is the memory of instances by their engines, by name."""
    lines = (line for role in roles for line in role.describe(plan, estimates or {}))
    return "\n".join([f"rig {plan.rig} ({plan.os})", *lines]) + "\n"
