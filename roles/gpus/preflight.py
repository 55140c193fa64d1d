"""GPUs' rows of preflight's table."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.state import HostState
from llamaherd.plan import GpuPlan, Plan
from llamaherd.role.facts import Row
from llamaherd.text.numbers import whole
from llamaherd.text.pci import short_address
from roles.gpus.refusals import GPUS_ROW, about_gpu, gpus_of, matches, named


def facts(plan: Plan, state: HostState) -> Iterator[Row]:
    """Each GPU that is declared beside the one that it is; and those that nobody declared."""
    if plan.has_cards:
        yield from _gpus(plan, state)
    elif plan.cards:
        yield Row(GPUS_ROW, "Windows' to show", ", ".join(map(_declared, plan.cards)))


def _gpus(plan: Plan, state: HostState) -> Iterator[Row]:
    """Each GPU that is declared beside the one that it is; and those that nobody declared."""
    there = gpus_of(state)
    if not there:
        wanted = ", ".join(map(_declared, plan.cards))
        yield Row(GPUS_ROW, "not known before there is a driver" if there is None else "none", wanted)
        return
    paired = matches(plan.cards, state)
    for gpu, found, _ in paired:
        yield Row(about_gpu(gpu.name), named(found) if found else "not there", _declared(gpu))
    for number, other in enumerate(gpu for gpu in there if gpu not in [each.found for each in paired]):
        yield Row("further GPUs" if number == 0 else "", named(other))


def _declared(gpu: GpuPlan) -> str:
    if ":" in gpu.at:
        return f"{gpu.model} at {short_address(gpu.at)}"
    return f"{gpu.model}, number {gpu.at}" if whole(gpu.at) is not None else gpu.model
