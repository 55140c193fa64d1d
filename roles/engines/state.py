"""Engines' part of a host's state: which builds are there, and how far they are."""

from __future__ import annotations

from collections.abc import Sequence

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.render import render


def inspect(plan: Plan) -> str:
    """Ask for builds, and for the sources that were sent."""
    sources = [build.source.sha256 for build in plan.builds if build.source.sha256]
    return render("engines/inspect.sh.j2", builds=plan.builds, sources=sources) if plan.builds else ""


def parse(state: HostState, kind: str, fields: Sequence[str]) -> bool:
    """Take in one line of the answer; returns whether it was about that."""
    match kind, fields:
        case "build", [build, stage]:
            state.builds[build] = stage
        case "source", [sha256]:
            state.sources.add(sha256)
        case _:
            return False
    return True
