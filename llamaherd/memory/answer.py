"""Where a model goes on given GPUs, when nobody has said: all on the GPUs, else experts in RAM, else layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from llamaherd.gguf.header import Header
from llamaherd.memory.fit import (
    Change,
    Fit,
    Room,
    another_split,
    fewer_layers,
    fewest_experts_on_cpu,
    fit_in,
    largest_context,
)
from llamaherd.memory.placement import Placement
from llamaherd.memory.use import Use

USUAL_CONTEXT = 32_768
"""The context where none is asked for, if the model was trained for as much."""


@dataclass(frozen=True)
class FitRow:
    """One line of an answer: what a GPU or the RAM holds, and what it has, in bytes; None where that is not known."""

    name: str
    use: Use
    room: int | None
    spare: int | None


@dataclass(frozen=True)
class Answer:
    """A placement, in words and as arguments, and how it goes into the room.

    `largest_context` is the most that the same placement has room for; 0 if it does not even fit as it is.
    """

    how: str
    placement: Placement
    fit: Fit
    rows: tuple[FitRow, ...]
    largest_context: int


def best_answer(header: Header, room: Room, wanted: Placement | None = None, *, by_hand: bool = False) -> Answer:
    """The best placement that fits, or the one that lacks least if none does.

    `wanted` has what is asked for: context, slots, cache, batch, draft; `by_hand` also where the model goes. Raises
    ValueError as `fit` does.
    """
    base = replace(wanted or _usual(header), devices=len(room.cards))
    as_placed = Change("by_hand", "as it is placed", base, fit_in(header, base, room))
    tried = [as_placed] if by_hand else list(_tried(header, base, room))
    best = next((change for change in tried if change.fit.fits), None)
    best = best or min(tried, key=lambda change: sum(missing for _, missing in change.fit.short))
    placement = best.placement
    most = largest_context(header, placement, room, header.number("context_length") or placement.context)
    return Answer(best.text, placement, best.fit, _rows(best.fit, room), most if best.fit.fits else 0)


def _usual(header: Header) -> Placement:
    return Placement(context=min(header.number("context_length") or USUAL_CONTEXT, USUAL_CONTEXT))


def _tried(header: Header, base: Placement, room: Room) -> Iterator[Change]:
    """Placements from the fastest to the slowest; the later ones are worked out only if the earlier do not fit."""
    if not room.cards:
        yield Change("cpu", "all in RAM", base, fit_in(header, base, room))
        return
    yield Change("cards", "all on the GPUs", base, fit_in(header, base, room))
    yield from another_split(header, base, room)
    yield from fewest_experts_on_cpu(header, base, room)
    yield from fewer_layers(header, base, room)
    alone = replace(base, gpu_layers=0)
    yield Change("gpu_layers", "all layers in RAM", alone, fit_in(header, alone, room))


def _rows(found: Fit, room: Room) -> tuple[FitRow, ...]:
    gpus = tuple(
        FitRow(f"GPU {index}", use, room.cards[index], found.spare[index])
        for index, use in enumerate(found.memory.devices)
    )
    return (*gpus, FitRow("RAM", found.memory.host, room.ram, found.spare_ram))
