"""Monitoring's part of a host's state."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.host.state import StatePart
from llamaherd.plan import Plan
from roles.monitoring.onhost import Found, Question


@dataclass(frozen=True)
class MonitoringState(Found, StatePart):
    """Units, what Prometheus has read, and the distribution's own units."""


def question(plan: Plan) -> Question | None:
    """Return what to inspect, also where nothing is declared any more."""
    made = plan.monitoring
    if made is None:
        return None
    return Question(made.watcher is not None, tuple(unit.path.rpartition("/")[2] for unit in made.units))
