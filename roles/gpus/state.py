"""GPUs' part of a host's state: what NVIDIA's driver lists. The PCI bus is base's to inspect."""

from __future__ import annotations

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.text.pci import is_address
from roles.gpus.onhost import Found, Question


def question(plan: Plan) -> Question | None:
    """Return what to inspect, where it matters which GPU is which, or what a GPU is limited to."""
    return Question() if plan.has_cards and (plan.power or any(each.at for each in plan.cards)) else None


def take(state: HostState, found: Found) -> None:
    """Add the GPUs to the host's state. Raise ValueError where an address is not one."""
    if not all(is_address(each.pci) for each in found.gpus):
        raise ValueError("not a PCI address")
    state.cards.extend(found.gpus)
    state.driver_says = found.problem
