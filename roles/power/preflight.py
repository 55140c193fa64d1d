"""Power's row of preflight's table."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.role.facts import Row


def facts(plan: Plan, state: HostState) -> Iterator[Row]:
    """What GPUs are to be held to."""
    if plan.power:
        wanted = "; ".join(f"{card.name}: {card.declared}" for card in plan.power.cards)
        yield Row("power", "GPUs answer" if state.cards else "no GPU answers", wanted)
