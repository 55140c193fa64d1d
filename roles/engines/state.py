"""Engines' part of a host's state: which builds are there, how far they are, and the flags that they list."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from llamaherd.engines.flags import catalogue
from llamaherd.engines.flags.built import as_mapping, parse_help
from llamaherd.host.state import HostState, StatePart
from llamaherd.inventory.schema.software import BuiltFlags
from llamaherd.lock.built import FOLDER, BuiltEngine, keep_built
from llamaherd.plan import BuildPlan, Plan
from roles.engines.onhost.inspection import BuildQuestion, Found, Question


@dataclass
class BuiltState(StatePart):
    """The flags that finished builds list, by the id of the build."""

    flags: dict[str, BuiltFlags] = field(default_factory=dict)


def question(plan: Plan) -> Question | None:
    """Return what to inspect, with the flags of versions without a catalogue."""
    if not plan.builds:
        return None
    unlisted = {build.id for build in _asking(plan)}
    builds = tuple(BuildQuestion(build.id, tuple(build.targets), build.id in unlisted) for build in plan.builds)
    return Question(builds, tuple(build.source.sha256 for build in plan.builds if build.source.sha256))


def take(state: HostState, found: Found) -> None:
    """Add what was found to the host's state."""
    state.builds.update(found.builds)
    state.sources.update(found.sources)
    if found.flags:
        BuiltState.keep(state, BuiltState({build: parse_help(text) for build, text in found.flags.items()}))


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
