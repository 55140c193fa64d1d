"""What is done so that every instance runs, in this order. What fails keeps only those down that need it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.state import HostState
from llamaherd.inventory.api_keys import read_key
from llamaherd.plan import InstancePlan, Plan
from llamaherd.role.changes import Change
from llamaherd.role.dial import reached
from llamaherd.role.preflight import comma_list
from llamaherd.role.reach import doors
from llamaherd.role.role import Run, Task
from llamaherd.store.files import missing_files
from roles.serve.blue_green import candidate_input, fits_side_by_side
from roles.serve.changes import estimate_downtime, gated_switch, project_changes, serving_instances, unit_changes
from roles.serve.exchange import Member, cut_off_changes, exchange_change, exchanging
from roles.serve.plan import image_changes
from roles.serve.ports import held_by_other, lacks
from roles.serve.removal import (
    coming_instances,
    removal_changes,
    removals_after,
    replaced_servers,
    stray_key_changes,
    undeclared_parts,
    unused_key_changes,
)


def tasks(plan: Plan) -> Iterator[Task]:
    """Yield removals first: they may hold what another instance needs. If new servers come, removals wait."""
    yield Task("servers that change together", lambda state, _: cut_off_changes(state), alone=True, goes_on=True)
    yield Task("instances no longer declared", partial(_removals, plan), alone=True, goes_on=True)
    yield Task("images", partial(_images, plan), alone=True, goes_on=True)
    for instance in plan.instances:
        yield Task(f"{instance.name} ({instance.backend})", partial(_switch, plan, instance), alone=True)
    if any(instance.endpoint.for_others for instance in plan.instances):
        yield Task("reached from here", lambda *_: (), notes=partial(_shut, plan), alone=True, goes_on=True)


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


def _switch(plan: Plan, instance: InstancePlan, state: HostState, run: Run) -> Sequence[Change]:
    """Return the change of a server. The first of servers that change together has the change of all."""
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
    changes = unit_changes if instance.backend == "systemd" else project_changes
    room = not partners and fits_side_by_side(plan, instance, state)
    found = changes(
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
