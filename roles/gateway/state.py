"""The gateway's part of a host's state."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.host.state import StatePart
from llamaherd.plan import Plan
from roles.gateway.onhost import Found, Question


@dataclass(frozen=True)
class GatewayState(Found, StatePart):
    """Its unit, what the process that runs has read, and the distribution's own unit."""


def question(plan: Plan) -> Question | None:
    """Return what to inspect, also where the fleet has its gateway elsewhere by now."""
    return Question(plan.gateway is not None) if plan.of_fleet else None
