"""WSL: what `.wslconfig` and wsl.conf are to say, and scripts that Windows is to run."""

from __future__ import annotations

from functools import partial

from pyinfra.api import deploy

from llamaherd.converge.wsl import wsl_notes, wsl_steps
from llamaherd.deploy.operations import converge
from llamaherd.plan import Plan


@deploy("wsl")
def apply(plan: Plan) -> None:
    """Early: what waits for a restart of WSL is better known before hours of building than after."""
    if plan.wsl:
        converge(
            name=".wslconfig, wsl.conf and scripts",
            plan=plan,
            steps=partial(wsl_steps, plan),
            notes=partial(wsl_notes, plan),
        )
