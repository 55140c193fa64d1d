"""Preflight: whether the host can become as planned, before anything is changed."""

from __future__ import annotations

from pyinfra.api import deploy

from llamaherd.deploy import operations
from llamaherd.plan import Plan


@deploy("preflight")
def apply(plan: Plan) -> None:
    """System, disk, ports, keys, and the hashes of the files that would be sent."""
    operations.preflight(name="can this host become as planned?", plan=plan)
