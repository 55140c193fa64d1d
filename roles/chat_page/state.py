"""The chat page's part of a host's state."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.host.state import StatePart
from llamaherd.plan import Plan
from roles.chat_page.onhost import Found, Question


@dataclass(frozen=True)
class ChatState(Found, StatePart):
    """The chat page."""


def question(plan: Plan) -> Question | None:
    """Return what to inspect, also where the fleet has its chat page elsewhere by now."""
    return Question() if plan.of_fleet else None
