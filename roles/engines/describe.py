"""Engines' lines of `herd plan`."""

from __future__ import annotations

from collections.abc import Mapping

from llamaherd.plan import BuildPlan, Estimate, Plan


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> list[str]:
    """What is built, and from what."""
    return [line for build in plan.builds for line in _build(build)]


def _build(build: BuildPlan) -> list[str]:
    source = build.source
    pinned = f"commit {source.commit}" if source.git else f"sha256 {source.sha256}"
    return [
        f"  engine     {build.engine}: {build.id}",
        f"             from {source.git or source.archive}",
        f"             {pinned}",
        *(f"             -D{name}={value}" for name, value in build.options.items()),
        f"             builds {' '.join(build.targets)} into {build.folder}",
    ]
