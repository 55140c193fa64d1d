"""Models' lines of `herd plan`."""

from __future__ import annotations

from collections.abc import Mapping

from llamaherd.plan import (
    BandwidthRule,
    Estimate,
    FromFolder,
    FromHub,
    FromNeighbour,
    ModelOrigin,
    ModelPlan,
    Plan,
    StorePlan,
)
from llamaherd.text.units import show_size


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> list[str]:
    """The store, and what comes into it."""
    return [*_store(plan.store), *(line for model in plan.models for line in _model(model))] if plan.models else []


def _store(store: StorePlan) -> list[str]:
    limits = [f"{show_size(rule.bytes_per_second)}/s {_hours(rule)}" for rule in store.bandwidth]
    limited = f", at most {', '.join(limits)}" if limits else ""
    return [
        f"  store      {store.path}",
        f"             from {', '.join(map(_origin, store.sources)) or 'nowhere'}",
        f"             by {store.connections} connections{limited}",
    ]


def _origin(origin: ModelOrigin) -> str:
    match origin:
        case FromNeighbour():
            return f"rig {origin.name} ({origin.address}:{origin.port})"
        case FromFolder():
            return origin.path
        case FromHub():
            return "hub"


def _hours(rule: BandwidthRule) -> str:
    return "always" if rule.begin == rule.end else f"from {rule.begin} to {rule.end}"


def _model(model: ModelPlan) -> list[str]:
    origin = model.url or str(model.local)
    sizes = [file.size for file in model.files if file.size is not None]
    total = f", {show_size(sum(sizes))}" if sizes else ""
    return [
        f"  model      {model.name}: {len(model.files)} file{'s' if len(model.files) != 1 else ''}{total}",
        f"             from {origin}",
        *(f"             {file.name}  sha256 {file.sha256}" for file in model.files),
        f"             into {model.folder}",
    ]
