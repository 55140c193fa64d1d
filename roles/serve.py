"""Serve: instances as systemd units and as compose projects, switched only when what runs is not what is planned."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyinfra import host
from pyinfra.api import deploy

from llamaherd.converge.engines import image_steps
from llamaherd.converge.serving import project_steps, removal_steps, unit_steps
from llamaherd.converge.steps import Step
from llamaherd.keys import read_key
from llamaherd.observe import Seen
from llamaherd.operations import converge
from llamaherd.planned import InstancePlan, Plan


@deploy("serve")
def apply(plan: Plan) -> None:
    """What goes comes first: it may hold a port that another instance is to have."""
    converge(name="instances no longer declared", plan=plan, steps=lambda seen: removal_steps(plan, seen))
    converge(name="images", plan=plan, steps=lambda seen: _images(plan, seen))
    for instance in host.loop(plan.instances):
        converge(
            name=f"{instance.name} ({instance.backend})",
            plan=plan,
            steps=partial(_switch, instance),
        )


def _images(plan: Plan, seen: Seen) -> Sequence[Step]:
    return [step for image in plan.images for step in image_steps(image, seen)]


def _switch(instance: InstancePlan, seen: Seen) -> Sequence[Step]:
    key = read_key(instance.api_key) if instance.api_key else None
    return (unit_steps if instance.backend == "systemd" else project_steps)(instance, seen, key)
