"""Engines: built from their pinned sources, each in a folder named by its build id."""

from __future__ import annotations

from functools import partial

from pyinfra import host
from pyinfra.api import deploy

from llamaherd.converge.engines import build_steps
from llamaherd.deploy.operations import converge
from llamaherd.plan import Plan


@deploy("engines")
def apply(plan: Plan) -> None:
    """One build after the other: each uses all cores."""
    for build in host.loop(plan.builds):
        converge(
            name=f"{build.engine} ({build.id})",
            plan=plan,
            steps=partial(build_steps, build),
            _ignore_errors=True,  # what needs it is left as it is; the rest goes on
        )
