"""The CUDA toolkit's part of a host's state: what is at its place, or the room there is for it."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.host.state import HostState, StatePart
from llamaherd.plan import Plan
from roles.cuda_toolkit.onhost import Found, Question, RoomState


@dataclass
class ToolkitState(StatePart):
    """The version that the planned toolkit's compiler prints, empty if it does not run; else the room for it."""

    version: str | None = None
    room: RoomState | None = None


def question(plan: Plan) -> Question | None:
    """Return what to inspect."""
    return Question(plan.toolkit.version, plan.toolkit.nvcc) if plan.toolkit else None


def take(state: HostState, found: Found) -> None:
    """Add what was found to the host's state."""
    ToolkitState.keep(state, ToolkitState(found.version, found.room))
