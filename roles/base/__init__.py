"""Base: the distribution's packages, the accounts, and the small files that the other roles stand on."""

from __future__ import annotations

from functools import partial

from pyinfra.api import deploy

from llamaherd.converge.host import base_steps
from llamaherd.converge.packages import package_steps
from llamaherd.deploy.operations import converge
from llamaherd.plan import Plan


@deploy("base")
def apply(plan: Plan) -> None:
    """Packages first: the rest uses them."""
    converge(name="packages", plan=plan, steps=partial(package_steps, plan))
    converge(name="accounts and files", plan=plan, steps=partial(base_steps, plan))
