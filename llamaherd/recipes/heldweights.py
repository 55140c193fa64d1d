"""Limits of memory around a server, below what the model that lies here takes of the RAM."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from llamaherd.diagnostics.findings import Severity
from llamaherd.engines.command_line import CommandLine
from llamaherd.engines.flags import Catalogue, catalogue, catalogues
from llamaherd.engines.flags.meant import meant
from llamaherd.gguf.header import Header
from llamaherd.gguf.join import join
from llamaherd.gguf.local import read_headers
from llamaherd.gguf.parse import GgufError
from llamaherd.memory.estimate import estimate
from llamaherd.memory.overhead import in_ram
from llamaherd.memory.placed_by_hand import placed_by_hand
from llamaherd.memory.placement import Placement
from llamaherd.recipes.memorylimit import bytes_of
from llamaherd.recipes.programs import Server
from llamaherd.text.units import show_mib

LAYERS = ("--gpu-layers", "--n-gpu-layers")
LEAST_CONTEXT = 4096
"""Tokens, where none are asked for: what a server takes at least."""


class Said(NamedTuple):
    """A sentence, a way out, and how bad it is."""

    message: str
    help: str
    severity: Severity


def holds_beyond(server: Server, limit: str, model: Path | None, *, without_cards: bool = False) -> Said | None:
    """What to say of a server whose part of the model in RAM is more than its limit of memory; None where nobody can
    tell: the file does not lie here, or its layers go where the engine likes."""
    size = bytes_of(limit)
    if server.program != "llama-server" or size is None or model is None or not model.is_file():
        return None
    try:
        header = join(read_headers(model))
        placed = _placement(server, header, without_cards=without_cards)
        if placed is None:
            return None
        held = estimate(header, placed).host
    except (GgufError, ValueError):
        return None
    needed = held.total + in_ram(header, placed)
    if needed <= size:
        return None
    mapped = held.weights + held.draft.weights if placed.mmap else 0
    ends = needed - mapped > size
    what = "it is killed" if ends else "the model is read from the disk again for every token"
    message = f"the server takes {show_mib(needed)} of RAM, and with {limit} at most {what}"
    return Said(message, "give it more memory, or put more of the model on a card", "error" if ends else "warning")


def _placement(server: Server, header: Header, *, without_cards: bool) -> Placement | None:
    """How the server lays its model out; None where that is not told."""
    known: Catalogue = catalogue(server.kind, server.version) or catalogues(server.kind)[-1]
    if any(word.unknown for word in server.arguments):
        return None
    settings = {name: str(word) for name, word in server.settings.items() if not word.unknown}
    line = CommandLine(meant(known, [str(word) for word in server.arguments], settings), keys=0)
    layers = line.meant.text(*LAYERS)
    on_cpu = without_cards or layers == "0" or line.meant.text("--device") == "none"
    if not on_cpu and not re.fullmatch(r"\d{1,6}|all", layers):
        return None
    devices = 0 if on_cpu else server.cards or 1
    base = Placement(engine=server.kind, context=LEAST_CONTEXT, devices=devices)
    return placed_by_hand(base, line, header)
