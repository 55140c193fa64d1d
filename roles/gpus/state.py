"""GPUs' part of a host's state: what NVIDIA's driver shows of them. The bus is base's to ask."""

from __future__ import annotations

from collections.abc import Sequence

from llamaherd.host.nvidia_smi import FIELDS, gpu
from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.render import render


def inspect(plan: Plan) -> str:
    """Ask the driver, where it matters which GPU is which, or what one is held to."""
    if not plan.has_cards or not (plan.power or any(each.at for each in plan.cards)):
        return ""
    return render("gpus/inspect.sh.j2", card_fields=FIELDS)


def parse(state: HostState, kind: str, fields: Sequence[str]) -> bool:
    """Take in one line of the answer; returns whether it was about that."""
    match kind, fields:
        case "card", [line]:
            state.cards.append(gpu(line))
        case "driver", [words]:
            state.driver_says = words
        case _:
            return False
    return True
