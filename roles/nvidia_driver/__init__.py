"""NVIDIA's driver: its packages, what keeps them, and the module in the kernel, by a reboot where nothing less does."""

from __future__ import annotations

from functools import partial

from pyinfra.api import deploy

from llamaherd.converge.driver import driver_steps, load_steps, reboot_steps
from llamaherd.deploy.operations import converge
from llamaherd.plan import Plan


@deploy("nvidia_driver")
def apply(plan: Plan) -> None:
    """A look for each: what the one did decides on the next."""
    if plan.driver:
        converge(name="packages", plan=plan, steps=partial(driver_steps, plan))
        converge(name="loaded", plan=plan, steps=partial(load_steps, plan))
        converge(name="reboot, if only that loads it", plan=plan, steps=partial(reboot_steps, plan))
