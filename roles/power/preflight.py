"""GPU power: limits, clocks and fans of cards, set at every boot by a unit of ours."""

from __future__ import annotations

from functools import partial

from pyinfra.api import deploy

from llamaherd.converge.power import power_steps
from llamaherd.deploy.operations import converge
from llamaherd.plan import Plan


@deploy("gpu_power")
def apply(plan: Plan) -> None:
    """Before servers, which may be slower afterwards, and no longer trip a fuse."""
    if plan.power:
        converge(name="limits, clocks and fans", plan=plan, steps=partial(power_steps, plan))
