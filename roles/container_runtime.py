"""Container runtime: Docker and its Compose, and cards for containers."""

from __future__ import annotations

from functools import partial

from pyinfra.api import deploy

from llamaherd.converge.runtime import engine_steps, toolkit_steps
from llamaherd.deploy.operations import converge
from llamaherd.plan import Plan


@deploy("container_runtime")
def apply(plan: Plan) -> None:
    """The engine first: what it lacks for cards, only it can tell."""
    if plan.runtime:
        converge(name="Docker and Compose", plan=plan, steps=partial(engine_steps, plan))
    if plan.runtime and plan.runtime.toolkit:
        converge(name="cards for containers", plan=plan, steps=partial(toolkit_steps, plan))
