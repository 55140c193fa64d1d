"""Power's part of a host's state: the unit that holds GPUs, and our notes of what each is held to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from llamaherd.host.state import HostState, StatePart
from llamaherd.layout import POWER_RUN, POWER_UNIT
from llamaherd.plan import Plan
from llamaherd.render import render


class UnitState(NamedTuple):
    """The unit that holds GPUs to limits, clocks and fan speeds, in systemd's words."""

    active: str
    enabled: str
    needs_reload: bool


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


def inspect(plan: Plan) -> str:
    """Ask for the unit, also where no GPU is declared any more: what was held is given back."""
    if plan.wsl:
        return ""
    return render("power/inspect.sh.j2", power=plan.power is not None, power_unit=POWER_UNIT, power_run=POWER_RUN)


def parse(state: HostState, kind: str, fields: Sequence[str]) -> bool:
    """Take in one line of the answer; returns whether it was about that."""
    match kind, fields:
        case "held", [uuid, *words] if len(words) <= len(HeldGpu._fields):
            PowerState.within(state).held[uuid] = HeldGpu(*words)
        case "power", [active, enabled, needs_reload]:
            PowerState.within(state).unit = UnitState(active, enabled, needs_reload == "yes")
        case _:
            return False
    return True
