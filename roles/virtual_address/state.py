"""The virtual address's part of a host's state."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.host.state import StatePart
from llamaherd.plan import Plan
from roles.virtual_address.onhost import Found, Question


@dataclass(frozen=True)
class AddressState(Found, StatePart):
    """The unit that runs keepalived."""


def question(plan: Plan) -> Question | None:
    """Return what to inspect, also where the fleet has no virtual address by now."""
    return Question() if plan.of_fleet else None
