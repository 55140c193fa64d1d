"""The role `serve`: run instances as systemd units and Compose projects, as the plan declares them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.state import HostState
from llamaherd.inventory.api_keys import read_key
from llamaherd.memory.instances import MARGIN, SYSTEM_RAM
from llamaherd.plan import RAM, Estimate, Grows, Holds, InstancePlan, Plan
from llamaherd.reference.cards import usable_memory
from llamaherd.role.changes import Change
from llamaherd.role.dial import reached
from llamaherd.role.preflight import PreflightRow, comma_list
from llamaherd.role.reach import doors
from llamaherd.role.role import Inspection, Role, Run, Task, Verification
from llamaherd.store.files import missing_files
from llamaherd.text.numbers import show_hours, show_mib
from roles.serve.blue_green import candidate_input, fits_side_by_side
from roles.serve.changes import estimate_downtime, gated_switch, server_changes, serving_instances
from roles.serve.exchange import Member, cut_off_changes, exchange_change, exchanging
from roles.serve.onhost.model import InspectedServers
from roles.serve.onhost.model import VerifiedServers as Verified
from roles.serve.plan import image_changes, plan
from roles.serve.ports import addresses_missing, between_holders, held_by_other, lacks, ports_taken
from roles.serve.removal import (
    coming_instances,
    removal_changes,
    removals_after,
    replaced_servers,
    stray_key_changes,
    undeclared_parts,
    unused_key_changes,
)
from roles.serve.state import inspection_input, state_parts
from roles.serve.verify import healthy_names, judge_servers, verification_input


def tasks(plan: Plan) -> Iterator[Task]:
    """Yield removals first: they may hold what another instance needs. If new servers come, removals wait."""
    yield Task("servers that change together", lambda state, _: cut_off_changes(state), alone=True, continues=True)
    yield Task("instances no longer declared", partial(_removals, plan), alone=True, continues=True)
    yield Task("images", partial(_images, plan), alone=True, continues=True)
    for instance in plan.instances:
        name, notes = f"{instance.name} ({instance.backend})", partial(_paused, plan, instance)
        yield Task(name, partial(_switch, plan, instance), notes=notes, alone=True)
    if any(instance.endpoint.for_others for instance in plan.instances):
        yield Task("reached from here", lambda *_: (), notes=partial(_shut, plan), alone=True, continues=True)


def _removals(plan: Plan, state: HostState, _: Run) -> list[Change]:
    others = [each.name for each in undeclared_parts(plan, state)]
    return [
        *removal_changes(plan, state, waiting=bool(coming_instances(plan, state))),
        *stray_key_changes(plan, state, others),
    ]


def _images(plan: Plan, state: HostState, run: Run) -> list[Change]:
    return [
        change
        for image in plan.images
        if not run.failed or state.engines.builds.get(image.build) == "done"
        for change in image_changes(image, state)
    ]


def _paused(plan: Plan, instance: InstancePlan, state: HostState, _: Run) -> list[str]:
    """Return one sentence about a server that is paused: a run leaves it so."""
    left = state.pause_left(instance.service)
    if left is None:
        return []
    resume = f"`herd resume {plan.rig}/{instance.name}`"
    return [f"{instance.name} stays paused for {show_hours(left)} more; {resume} starts it"]


def _switch(plan: Plan, instance: InstancePlan, state: HostState, run: Run) -> Sequence[Change]:
    """Return the change of a server. The first of servers that change together has the change of all."""
    if state.pause_left(instance.service) is not None:
        return []
    members = exchanging(plan, state).get(instance.name, (instance,))
    if members[0] is not instance:
        return []
    switch = _alone(plan, instance, state, run) if len(members) == 1 else _together(plan, members, state, run)
    unread = [change for each in members for change in unused_key_changes(each, state)]
    return [*switch, *unread, *removals_after(plan, members, state, run)]


def _alone(
    plan: Plan,
    instance: InstancePlan,
    state: HostState,
    run: Run,
    *,
    partners: Sequence[str] = (),
) -> list[Change]:
    """Return the changes that apply one planned instance; `partners` change together with it. Raise UserError."""
    if lack := _lacking(plan, state, run).get(instance.name):
        above = "the reason is above; `herd up` goes on once that is mended"
        raise UserError(
            f"{instance.name} is left as it is: {lack}",
            above if run.failed else f"`herd up --only {instance.name}` brings all that it needs",
        )
    if other := held_by_other(plan, instance, state):
        raise UserError(
            f"{instance.name} is left as it is: {other} has its port {instance.endpoint.port}, and is to stay",
            "`herd up --only serve` changes both, or choose another port",
        )
    key = read_key(instance.endpoint.key) if instance.endpoint.key else None
    room = not partners and fits_side_by_side(plan, instance, state)
    found = server_changes(
        instance,
        state,
        key,
        retry=run.retry,
        candidate=candidate_input(plan, instance) if room else None,
        going=replaced_servers(plan, instance, state),
        partners=partners,
    )
    gate = None if run.retry else gated_switch(instance, state, key)
    return [
        replace(each, away=estimate_downtime(plan, instance, state, room, gate), gated=gate)
        if each.action == "restart"
        else each
        for each in found
    ]


def _together(plan: Plan, members: Sequence[InstancePlan], state: HostState, run: Run) -> list[Change]:
    """Return the change of servers that exchange something. Raise UserError if one cannot change."""
    found = []
    for instance in members:
        partners = [each.service for each in members if each is not instance]
        try:
            found += [Member(instance, each) for each in _alone(plan, instance, state, run, partners=partners)]
        except UserError as error:
            raise UserError(
                f"{error.message}; {comma_list(partners)} would change together with it", error.help
            ) from None
    if not found:
        return []
    going = {each.service: each for instance in members for each in replaced_servers(plan, instance, state)}
    taken = {each.service for instance in members for each in replaced_servers(plan, instance, state) if each.port}
    return [exchange_change(plan, found, [replace(going[name], port=name in taken) for name in sorted(going)], state)]


def _shut(plan: Plan, state: HostState, run: Run) -> list[str]:
    """Return instances that other machines cannot reach, though they serve on their host."""
    # A firewall there is not ours.
    if not run.executing:
        return []
    found = reached(run.connect, doors(plan, serving_instances(plan, state)), state.system.addresses)
    return [f"{name}: {reach.detail}" for name, reach in found.items() if reach.doubt or not reach.ok]


def _lacking(plan: Plan, state: HostState, run: Run) -> dict[str, str]:
    """Return what instances lack, by their names, if a part of this run has failed, or it is for servers alone."""
    # Else all of it is there by now, or comes in this run.
    alone = plan.only is not None and plan.whole("serve") and {"engines", "models"}.isdisjoint(plan.only.roles)
    if not (run.failed or alone):
        return {}
    missing = {model.name for model in plan.models if missing_files(model, state)}
    found = {instance.name: lacks(instance, plan, state, missing) for instance in plan.instances}
    return {name: lack for name, lack in found.items() if lack}


_COLUMNS = ("weights", "kv", "state", "compute", "draft", "cuda", "total", "of")


def describe(plan: Plan, estimates: Mapping[str, Estimate | str]) -> list[str]:
    """Return each server, then what all of them hold of GPUs and RAM. `estimates` are those of engines, by name."""
    return [
        *(f"  image      {image.tag}\n             on {image.base}" for image in plan.images),
        *(line for instance in plan.instances for line in _instance(instance, estimates.get(instance.name))),
        *_whole(plan),
    ]


def _instance(instance: InstancePlan, output: Estimate | str | None) -> list[str]:
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
        *(_engine_estimate(output, instance.memory) if output else ()),
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


def _engine_estimate(output: Estimate | str, ours: Estimate | None) -> list[str]:
    """Return the engine's own estimate, and its difference from the arithmetic."""
    if isinstance(output, str):
        return [f"             MiB by engine: {output}"]
    known = {each.where: each.total for each in ours.holds} if ours else {}
    more = [f"{each.where} {each.total / total - 1:+.1%}" for each in output.holds if (total := known.get(each.where))]
    return _memory(output) + ([f"             engine to arithmetic: {', '.join(more)}"] if more else [])


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
