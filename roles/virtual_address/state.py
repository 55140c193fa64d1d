"""The virtual address's part of a host's state: the unit that runs keepalived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llamaherd.host.state import HostState, StatePart
from llamaherd.layout import ADDRESS_UNIT
from llamaherd.plan import Plan
from llamaherd.render import render
from llamaherd.role.service import ServiceState


@dataclass
class AddressState(StatePart):
    """The unit, if there is one."""

    unit: ServiceState | None = None


def inspect(plan: Plan) -> str:
    """Ask for it, also where the fleet has none by now."""
    return render("virtual_address/inspect.sh.j2", unit=ADDRESS_UNIT) if plan.of_fleet else ""


def parse(state: HostState, kind: str, fields: Sequence[str]) -> bool:
    """Take in one line of the answer; returns whether it was about that."""
    match kind, fields:
        case "virtual-address", [active, enabled, needs_reload, spec]:
            AddressState.within(state).unit = ServiceState(active, enabled, needs_reload == "yes", spec)
        case _:
            return False
    return True
