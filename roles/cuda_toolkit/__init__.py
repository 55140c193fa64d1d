"""CUDA toolkit: the one that engines are built with, installed without any part of a driver."""

from __future__ import annotations

from functools import partial

from pyinfra.api import deploy

from llamaherd.converge.toolkit import toolkit_steps
from llamaherd.deploy.operations import converge
from llamaherd.plan import Plan


@deploy("cuda_toolkit")
def apply(plan: Plan) -> None:
    """Before engines, which are compiled with it."""
    if plan.toolkit:
        converge(name=f"CUDA {plan.toolkit.version}", plan=plan, steps=partial(toolkit_steps, plan))
