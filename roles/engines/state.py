"""Engines' part of a host's state: which builds are there, how far they are, and the flags that they list."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from llamaherd.engines.flags import catalogue
from llamaherd.engines.flags.built import as_mapping, parse_help
from llamaherd.host.state import HostState, StatePart
from llamaherd.inventory.schema.software import BuiltFlags
from llamaherd.lock.built import FOLDER, BuiltEngine, keep_built
from llamaherd.plan import BuildPlan, Plan
from llamaherd.render import render

_MOST_TEXT = 100_000
"""Characters of one build's flags, as base64."""


@dataclass
class BuiltState(StatePart):
    """The flags that finished builds list, by the id of the build."""

    flags: dict[str, BuiltFlags] = field(default_factory=dict)


def inspect(plan: Plan) -> str:
    """Ask for builds, for the flags of those that no catalogue is of, and for the sources that were sent."""
    if not plan.builds:
        return ""
    sources = [build.source.sha256 for build in plan.builds if build.source.sha256]
    return render("engines/inspect.sh.j2", builds=plan.builds, sources=sources, asking=_asking(plan))


def parse(state: HostState, kind: str, fields: Sequence[str]) -> bool:
    """Take in one line of the answer; returns whether it was about that."""
    match kind, fields:
        case "build", [build, stage]:
            state.builds[build] = stage
        case "flags", [build, text] if len(text) <= _MOST_TEXT:
            help_ = base64.b64decode(text, validate=True).decode("ascii", "replace")
            BuiltState.within(state).flags[build] = parse_help(help_)
        case "source", [sha256]:
            state.sources.add(sha256)
        case _:
            return False
    return True


def keep(folder: Path, plan: Plan, state: HostState) -> str:
    """Keep the flags of builds beside the lock, in the inventory's folder. Return a sentence where a file changed."""
    listed = BuiltState.of(state).flags
    asking = {build.id: build.source.commit or build.source.sha256 or "" for build in _asking(plan)}
    builds = {
        name: BuiltEngine(source=source, flags=as_mapping(flags))
        for name, source in asking.items()
        if (flags := listed.get(name))
    }
    changed = keep_built(folder, plan.rig, builds, frozenset(asking))
    return f"wrote {FOLDER}/{plan.rig}.json, the flags of its engines: commit it with the lock" if changed else ""


def _asking(plan: Plan) -> list[BuildPlan]:
    """The builds of versions that no catalogue is of."""
    return [build for build in plan.builds if not _is_known(build)]


def _is_known(build: BuildPlan) -> bool:
    number = build.source.build_number
    known = catalogue(build.kind, f"b{number}" if number else build.source.commit or "")
    return known is not None and known.exact
