"""Packages of the distribution: what is missing is installed, and nothing is taken away for it."""

from __future__ import annotations

from collections.abc import Iterable

from llamaherd.converge.steps import RunScript
from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.text.render import render

LOCK_SECONDS = 600
"""For whoever else installs: an unattended upgrade takes minutes."""


def package_steps(plan: Plan, seen: HostState) -> list[RunScript]:
    """Install what is missing from the distribution."""
    missing = [package for package in plan.packages if package not in seen.packages]
    return [RunScript(install(missing), f"installing {', '.join(missing)}")] if missing else []


def install(packages: Iterable[str]) -> str:
    """The script that installs these."""
    return render("steps/install-packages.sh.j2", packages=list(packages), wait=LOCK_SECONDS)
