"""What measures and drains servers during a run. These functions belong to other houses: `deploy.py` hands them in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from llamaherd.inventory.schema import Connect
from llamaherd.plan import Plan
from llamaherd.role.changes import Gated, Say


@dataclass(frozen=True)
class GateRequest:
    """A changed server whose gate measures it, the plan that declares it, and the run that would change it."""

    gated: Gated
    plan: Plan
    connect: Connect
    inventory: Path
    user: str
    say: Say


@dataclass(frozen=True)
class GateRefusal:
    """Why a gate rejects a changed server. `kept`: the host keeps the reason, so that the next run rejects it too."""

    why: str
    help: str
    kept: bool


@dataclass(frozen=True)
class Services:
    """The functions that a run needs from other houses."""

    gate: Callable[[GateRequest], GateRefusal | None]
    """Measures a changed server and the running one. Returns None if the change is accepted. Raises UserError."""
    drain: Callable[[Path, Plan, Mapping[str, int], Say], AbstractContextManager[None]]
    """Drains the servers of a plan while the context is open: seconds that each change takes at most, by instance."""
