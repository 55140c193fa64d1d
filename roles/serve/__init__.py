"""The role `serve`: run instances as systemd units and Compose projects, as the plan declares them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from llamaherd.host.state import HostState
from llamaherd.memory.instances import MARGIN, SYSTEM_RAM
from llamaherd.plan import RAM, Estimate, Grows, Holds, InstancePlan, Plan
from llamaherd.reference.cards import usable_memory
from llamaherd.role.preflight import PreflightRow, comma_list
from llamaherd.role.role import Inspection, Role, Verification
from llamaherd.text.numbers import show_mib
from roles.serve.onhost.model import InspectedServers
from roles.serve.onhost.model import VerifiedServers as Verified
from roles.serve.plan import plan
from roles.serve.ports import addresses_missing, between_holders, ports_taken
from roles.serve.state import inspection_input, state_parts
from roles.serve.tasks import tasks
from roles.serve.verify import healthy_names, judge_servers, verification_input

_COLUMNS = ("weights", "kv", "state", "compute", "draft", "cuda", "total", "of")


def describe(plan: Plan, asked: Mapping[str, Estimate | str]) -> list[str]:
    """Return each server, then what all of them hold of GPUs and RAM. `asked`: engines' estimates, by name."""
    return [
        *(f"  image      {image.tag}\n             on {image.base}" for image in plan.images),
        *(line for instance in plan.instances for line in _instance(instance, asked.get(instance.name))),
        *_whole(plan),
    ]


def _instance(instance: InstancePlan, said: Estimate | str | None) -> list[str]:
    server, endpoint = instance.server, instance.endpoint
    program = server.program or str(server.image)
    key = f"API key in {instance.key_file}" if instance.key_file else "no API key"
    return [
        f"  instance   {instance.name}: {instance.backend} as {instance.service}, spec {instance.spec}",
        f"             {endpoint.listen}:{endpoint.port}, {key}, {server.start_seconds} s to load",
        f"             {shlex.join([program, *server.arguments])}",
        f"             in {instance.file.path}",
        *_members(instance),
        *((*_memory(instance.memory), *_growing(instance.memory.grows)) if instance.memory else ()),
        *(_said(said, instance.memory) if said else ()),
    ]


def _members(instance: InstancePlan) -> list[str]:
    """Return the models of a group's server, one at a time."""
    if not instance.members:
        return []
    lines = [f"             has one at a time, by {instance.preset.path}:"] if instance.preset else []
    return lines + [f"             {each.name}: {shlex.join(each.arguments)}" for each in instance.members]


def _memory(estimate: Estimate) -> list[str]:
    """Return what each GPU and the RAM hold, in MiB."""
    # An engine reports cache and state in one figure.
    width = max(len(f"MiB by {estimate.source}"), *(len(each.where) for each in estimate.holds))
    rows: list[tuple[str, ...]] = [(f"MiB by {estimate.source}", *_COLUMNS)]
    for each in estimate.holds:
        figures = (each.weights, each.kv, each.state, each.compute, each.draft, each.cuda, each.total, each.size)
        cells = [f"{figure / (1 << 20):,.0f}" for figure in figures]
        if estimate.source == "engine":
            cells[_COLUMNS.index("state")] = "in kv"
        rows.append((each.where, *cells))
    lines = [f"             {first:{width}}" + "".join(f"{cell:>10}" for cell in cells) for first, *cells in rows]
    return lines + [f"             not sure: {doubt}" for doubt in estimate.doubts]


def _growing(grows: Grows) -> list[str]:
    """Return what a server's RAM gains while it works."""
    parts = [f"{show_mib(grows.prompts)} of saved prompts"] if grows.prompts else []
    parts += ["any amount of saved prompts"] if grows.prompts is None else []
    parts += [f"{show_mib(grows.checkpoints)} of checkpoints"] if grows.checkpoints else []
    return [f"             RAM grows by up to {' and '.join(parts)}"] if parts else []


def _said(said: Estimate | str, ours: Estimate | None) -> list[str]:
    """Return the engine's own estimate, and its difference from the arithmetic."""
    if isinstance(said, str):
        return [f"             MiB by engine: {said}"]
    known = {each.where: each.total for each in ours.holds} if ours else {}
    more = [f"{each.where} {each.total / total - 1:+.1%}" for each in said.holds if (total := known.get(each.where))]
    return _memory(said) + ([f"             engine to arithmetic: {', '.join(more)}"] if more else [])


def _whole(plan: Plan) -> list[str]:
    """Return what all instances together hold of each GPU and the RAM, in MiB, as far as known."""
    held: dict[str, list[Holds]] = {}
    for instance in plan.instances:
        for each in instance.memory.holds if instance.memory else ():
            held.setdefault(each.where, []).append(each)
    if not held:
        return []
    rows: list[tuple[str, ...]] = [("", "instances", "held", "kept", "left", "of")]
    for where, parts in sorted(held.items(), key=lambda item: item[0] == RAM):
        size, total = parts[0].size, sum(each.total for each in parts)
        share = SYSTEM_RAM if where == RAM else size - usable_memory(size) + MARGIN
        figures = (total, share, size - total - share, size)
        rows.append((where, str(len(parts)), *(f"{figure / (1 << 20):,.0f}" for figure in figures)))
    width = max(len(row[0]) for row in rows)
    lines = [f"{first:{width}}" + "".join(f"{cell:>10}" for cell in cells) for first, *cells in rows]
    lines += _grown(plan, sum(each.total for each in held.get(RAM, ())))
    return [f"  {'memory' if not number else '':10} {line}" for number, line in enumerate(lines)]


def _grown(plan: Plan, held: int) -> list[str]:
    """Return what the RAM may hold when all servers have worked for long."""
    grows = [instance.memory.grows for instance in plan.instances if instance.memory]
    known = sum((each.prompts or 0) + each.checkpoints for each in grows)
    if any(each.prompts is None for each in grows):
        return ["RAM may grow without a limit"]
    return [f"RAM may grow to {show_mib(held + known)}"] if known else []


def port_facts(plan: Plan, state: HostState) -> Iterator[PreflightRow]:
    """Yield the row about ports."""
    if plan.instances:
        ports = sorted(instance.endpoint.port for instance in plan.instances)
        ours = [port for port in ports if port in state.system.listening]
        yield PreflightRow("ports", f"{comma_list(ours)} in use" if ours else "free", comma_list(ports))


ROLE = Role(
    name="serve",
    summary="Every instance matches the plan and responds, also after a boot.",
    for_instances=True,
    plan=plan,
    files=lambda plan: (
        *(instance.file.path for instance in plan.instances),
        *(instance.key_file for instance in plan.instances if instance.key_file),
    ),
    texts=lambda plan: (instance.file for instance in plan.instances),
    inspection=Inspection("serve.inspection.inspect", inspection_input, InspectedServers, state_parts),
    refusals=lambda plan, state: (*addresses_missing(plan, state), *ports_taken(plan, state)),
    facts=port_facts,
    unsettled=between_holders,
    tasks=tasks,
    verification=Verification("serve.verification.verify", verification_input, Verified, healthy_names),
    judge=judge_servers,
    describe=describe,
)
