"""Limits of memory around a server, below what the model that lies here takes of the RAM."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from llamaherd.diagnostics.findings import Severity
from llamaherd.diagnostics.rule import Rule
from llamaherd.engines.command_line import CommandLine
from llamaherd.engines.flags import Catalogue, catalogue, catalogues
from llamaherd.engines.flags.meant import meant
from llamaherd.gguf.header import Header
from llamaherd.gguf.join import join
from llamaherd.gguf.local import read_headers
from llamaherd.gguf.parsed import GgufError
from llamaherd.memory.estimate import estimate
from llamaherd.memory.overhead import in_ram
from llamaherd.memory.placed_by_hand import placed_by_hand
from llamaherd.memory.placement import Placement
from llamaherd.recipes.memorylimit import bytes_of
from llamaherd.recipes.programs import ServerCommand
from llamaherd.text.units import show_mib

LAYERS = ("--gpu-layers", "--n-gpu-layers")
LEAST_CONTEXT = 4096
"""Tokens, where none are asked for: what a server takes at least."""


LIMIT_BELOW_HELD = Rule(
    "LH279",
    "A limit of memory is below what the model takes of the RAM.",
    why="""
    Under `MemoryMax=` of a unit, `mem_limit` of Compose or `--memory` of `docker run`, the system kills a server
    that needs more. Weights of a mapped file are pushed out instead, and read from the disk again for every
    token: a warning. It is said where the model's file lies on this machine, and where `-ngl` says what of it is
    in RAM.
    """,
    example="""
    $ herd check chat.service
    chat.service:5:11: warning LH279: the server takes 4,955 MiB of RAM, and with 3G at most it is …
      help: give it more memory, or put more of the model on a GPU
    """,
    language="console",
    way_out="give it more memory, or put more layers on a GPU. `herd fit` says what a model takes.",
    sometimes=("warning",),
)


class WeightsFinding(NamedTuple):
    """A sentence, a way out, and how bad it is."""

    message: str
    help: str
    severity: Severity


def holds_beyond(
    server: ServerCommand, limit: str, model: Path | None, *, without_cards: bool = False
) -> WeightsFinding | None:
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
    return WeightsFinding(
        message, "give it more memory, or put more of the model on a GPU", "error" if ends else "warning"
    )


def _placement(server: ServerCommand, header: Header, *, without_cards: bool) -> Placement | None:
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
