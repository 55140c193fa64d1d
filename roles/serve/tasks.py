"""Serve: instances as systemd units and as compose projects, switched only when what runs is not what is planned."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyinfra import host
from pyinfra.api import deploy
from pyinfra.context import ctx_host

from llamaherd.converge.engines import image_steps
from llamaherd.converge.models import missing_files
from llamaherd.converge.ports import handover_steps, lacks
from llamaherd.converge.serving import project_steps, removal_steps, unit_steps, well
from llamaherd.converge.steps import RunScript
from llamaherd.deploy.operations import converge, settle
from llamaherd.deploy.reasons import noted
from llamaherd.diagnostics.findings import UserError
from llamaherd.host.dial import reached
from llamaherd.host.reach import doors
from llamaherd.host.state import HostState
from llamaherd.inventory.keys import read_key
from llamaherd.inventory.schema import Connect
from llamaherd.plan import InstancePlan, Plan


@deploy("serve")
def apply(plan: Plan) -> None:
    """What goes comes first: it may hold a port that another instance is to have.

    What fails keeps only those down that need it; in the end the host has failed all the same.
    """
    converge(
        name="instances no longer declared",
        plan=plan,
        steps=lambda seen: removal_steps(plan, seen),
        _ignore_errors=True,
        _continue_on_error=True,
    )
    converge(
        name="images",
        plan=plan,
        steps=lambda seen: _images(plan, seen),
        _ignore_errors=True,
        _continue_on_error=True,
    )
    if len(plan.instances) > 1:
        converge(
            name="ports that change hands",
            plan=plan,
            steps=lambda seen: handover_steps(plan, seen, staying=_lacking(plan, seen)),
            _ignore_errors=True,
            _continue_on_error=True,
        )
    for instance in host.loop(plan.instances):
        converge(
            name=f"{instance.name} ({instance.backend})",
            plan=plan,
            steps=partial(_switch, plan, instance),
            _ignore_errors=True,
        )
    if any(instance.endpoint.for_others for instance in plan.instances):
        converge(
            name="reached from here",
            plan=plan,
            steps=lambda _: (),
            notes=partial(_shut, plan),
            _ignore_errors=True,
            _continue_on_error=True,
        )
    settle(name="all that was declared")


def _shut(plan: Plan, seen: HostState) -> list[str]:
    """What others cannot use, or may not be able to, though it serves on its host: a firewall there is not ours."""
    if not host.state.is_executing:
        return []
    connect = Connect.model_validate(host.data.rig_connect)
    found = reached(connect, doors(plan, well(plan, seen)), seen.addresses)
    return [f"{name}: {reach.detail}" for name, reach in found.items() if reach.doubt or not reach.ok]


def _images(plan: Plan, seen: HostState) -> Sequence[RunScript]:
    failed = bool(noted(ctx_host.get()))
    return [
        step
        for image in plan.images
        if not failed or seen.builds.get(image.build) == "done"
        for step in image_steps(image, seen)
    ]


def _switch(plan: Plan, instance: InstancePlan, seen: HostState) -> Sequence[RunScript]:
    if lack := _lacking(plan, seen).get(instance.name):
        raise UserError(
            f"{instance.name} is left as it is: {lack}", "the reason is above; `herd up` goes on once that is mended"
        )
    key = read_key(instance.endpoint.key) if instance.endpoint.key else None
    return (unit_steps if instance.backend == "systemd" else project_steps)(instance, seen, key)


def _lacking(plan: Plan, seen: HostState) -> dict[str, str]:
    """What instances lack, by their names, where something has failed in this run: else all of it is there by now."""
    if not noted(ctx_host.get()):
        return {}
    missing = {model.name for model in plan.models if missing_files(model, seen)}
    found = {instance.name: lacks(instance, plan, seen, missing) for instance in plan.instances}
    return {name: lack for name, lack in found.items() if lack}
