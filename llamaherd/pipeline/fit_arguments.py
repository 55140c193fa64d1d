"""Arguments that `herd fit` is given word for word: read, checked and counted as an inventory's `extra_args` are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from llamaherd.engines import TRAITS
from llamaherd.engines.command_line import CommandLine
from llamaherd.engines.flags import Catalogue, catalogues, check
from llamaherd.engines.flags.advice import DOWNLOADS, ENDS, OPEN, SECRET
from llamaherd.engines.flags.clash import Around
from llamaherd.engines.flags.meant import meant
from llamaherd.engines.flags.together import clashes
from llamaherd.gguf.header import Header
from llamaherd.memory.fit import Room
from llamaherd.memory.placed_by_hand import MOVING, placed_by_hand
from llamaherd.memory.placement import Placement

PLACING = (*MOVING, "--gpu-layers", "--n-gpu-layers", "--tensor-split", "--split-mode", "--main-gpu", "--device")
"""Options after which nobody looks for a better place."""
BESIDE_MEMORY = frozenset((OPEN, SECRET, DOWNLOADS, ENDS))
"""What is wrong with arguments and changes no figure."""


class Told(NamedTuple):
    """A placement with what arguments say of it."""

    placement: Placement
    by_hand: bool
    """Whether they say where the model goes."""
    errors: tuple[tuple[str, str], ...]
    """What the engine would not take, or not as it is meant: a sentence and a way out, each."""


def told(header: Header, wanted: Placement, room: Room, arguments: Sequence[str]) -> Told:
    """What is `wanted`, changed by arguments of the newest version that is known of its engine.

    Raises ValueError, with a sentence, for what no engine takes or nobody can work out.
    """
    known = catalogues(wanted.engine)[-1]
    line = CommandLine(meant(known, arguments), keys=0)
    errors = tuple(_errors(known, arguments, header, room))
    placed = replace(wanted, devices=len(room.cards), free=room.cards)
    if not errors:
        placed = placed_by_hand(placed, line, header)
    return Told(placed, any(line.meant.get(name) for name in PLACING), errors)


def _errors(known: Catalogue, arguments: Sequence[str], header: Header, room: Room) -> Iterator[tuple[str, str]]:
    others = [each for kind in TRAITS for each in catalogues(kind) if each != known]
    for problem in check(known, arguments, others):
        if problem.severity == "error" and problem.rule not in BESIDE_MEMORY:
            yield problem.message, problem.help
    around = Around(cards=len(room.cards), tensors=tuple(tensor.name for tensor in header.each))
    for clash in clashes(meant(known, arguments), around):
        if clash.severity == "error" and clash.rule not in BESIDE_MEMORY:
            yield clash.message, clash.help
