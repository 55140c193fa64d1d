"""Power's part of a host's state: the unit that holds GPUs, and our notes of what each is held to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from llamaherd.host.state import HostState, StatePart
from llamaherd.plan import Plan
from roles.power.onhost import Found, Question, UnitState


class HeldGpu(NamedTuple):
    """Our note of what a GPU is held to: watts or `refused`, MHz, `on`, percent.

    `-` stands for nothing and `?` for not known. Notes of before there were fans do not speak of them.
    """

    limit: str = "?"
    clocks: str = "?"
    persistence: str = "?"
    fans: str = "-"


@dataclass
class PowerState(StatePart):
    """Both; `held` by UUID."""

    unit: UnitState | None = None
    held: dict[str, HeldGpu] = field(default_factory=dict)


def question(plan: Plan) -> Question | None:
    """Return what to inspect. Held GPUs are inspected also if no GPU is declared, so that they are released."""
    return None if plan.wsl else Question(notes=plan.power is not None)


def take(state: HostState, found: Found) -> None:
    """Add what was found to the host's state. Raise ValueError for a note of too many words."""
    if any(len(words) > len(HeldGpu._fields) for words in found.held.values()):
        raise ValueError(f"the note about a GPU has more than {len(HeldGpu._fields)} words")
    PowerState.keep(state, PowerState(found.unit, {uuid: HeldGpu(*words) for uuid, words in found.held.items()}))
