"""Memory limits of a server that are below its saved prompts or its model's part in RAM."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place, Rule
from llamaherd.engines import CommandLine
from llamaherd.engines.flags import Catalogue, catalogue, catalogues
from llamaherd.engines.flags.effective import effective_options
from llamaherd.gguf.header import Header
from llamaherd.gguf.parse import GgufError
from llamaherd.gguf.shards import join_headers, read_headers
from llamaherd.memory.estimate import estimate
from llamaherd.memory.instances import with_explicit_flags
from llamaherd.memory.overhead import in_ram
from llamaherd.memory.placement import CACHE_RAM, Placement
from llamaherd.recipes.recipe import ServerCommand
from llamaherd.text.numbers import show_mib

_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_MIB = 1 << 20


LIMIT_BELOW_SAVED = Rule(
    "LH241",
    "A limit of memory is below what the server saves while it works.",
    why="""
    llama.cpp and ik_llama.cpp save prompts in RAM, up to 8,192 MiB by default. Under `MemoryMax=` of a unit, or
    `mem_limit` of a container, the server starts, works, and is killed some hundred prompts later.
    """,
    example="""
    [Service]
    ExecStart=/usr/local/bin/llama-server -m /srv/models/model.gguf -c 8192 --host 127.0.0.1 --port 8080
    User=llama
    MemoryMax=4G
    """,
    language="ini",
    fix="""
    write `--cache-ram` with fewer MiB, or give it more memory. `herd fit` prints how much weights and buffers take.
    """,
    severity="warning",
)


def limit_bytes(limit: str) -> int | None:
    """Return a limit in bytes, which systemd and Docker count in powers of two; None for none, or an invalid size."""
    found = _SIZE.fullmatch(limit.strip())
    if not found:
        return None
    size = round(float(found[1]) * 1024 ** " kmgt".index(found[2].lower() or " "))
    return size or None


LAYERS = ("--gpu-layers", "--n-gpu-layers")
LEAST_CONTEXT = 4096
"""Tokens of the assumed context of a server."""


LIMIT_BELOW_HELD = Rule(
    "LH279",
    "A limit of memory is below what the model takes of the RAM.",
    why="""
    Under `MemoryMax=` of a unit, `mem_limit` of Compose or `--memory` of `docker run`, the system kills a server that
    needs more. Weights of a mapped file are dropped instead, and read from the disk again for every token: a warning.
    It is reported if the model's file is on this machine, and if `-ngl` sets the part of it that is in RAM.
    """,
    example="""
    $ herd check chat.service
    chat.service:5:11: warning LH279: the server takes 4,955 MiB of RAM, and with 3G at most it is …
      help: give it more memory, or put more of the model on a GPU
    """,
    language="console",
    fix="give it more memory, or put more layers on a GPU. `herd fit` prints the memory of a model.",
    sometimes=("warning",),
)


def check_memory_limit(
    place: Place, server: ServerCommand, limit: str, model: Path | None, *, without_cards: bool = False
) -> Iterator[Finding]:
    """Yield the faults of a limit, such as `8G`, that is below what the server saves, or holds of its model."""
    size = limit_bytes(limit)
    if server.program == "llama-server" and size is not None:
        yield from _saved_prompts(place, server, limit, size)
        yield from _weights(place, server, limit, size, model, without_cards=without_cards)


def _saved_prompts(place: Place, server: ServerCommand, limit: str, size: int) -> Iterator[Finding]:
    """Report more saved prompts than a limit allows. `--cache-ram -1` sets no limit to saved prompts."""
    given = server.value("-cram", "--cache-ram") or server.settings.get("LLAMA_ARG_CACHE_RAM")
    if given is not None and not re.fullmatch(r"-?\d{1,9}", str(given)):
        return
    mib = int(str(given)) if given is not None else CACHE_RAM // _MIB
    if mib < 0 or mib >= size / _MIB:
        what = "without a limit" if mib < 0 else f"up to {mib:,} MiB"
        message = f"the server saves prompts in RAM, {what}, and with {limit} at most it is killed after a while"
        way_out = f"add `--cache-ram {int(size // _MIB // 4)}`, or give it more memory"
        yield LIMIT_BELOW_SAVED.at(place, message, way_out)


def _weights(
    place: Place, server: ServerCommand, limit: str, size: int, model: Path | None, *, without_cards: bool
) -> Iterator[Finding]:
    """Report a model whose part in RAM exceeds a limit; nothing without its file, or if the engine places it itself."""
    if model is None or not model.is_file():
        return
    try:
        header = join_headers(read_headers(model))
        placed = _placement(server, header, without_cards=without_cards)
        if placed is None:
            return
        held = estimate(header, placed).host
    except (GgufError, ValueError):
        return
    needed = held.total + in_ram(header, placed)
    if needed > size:
        mapped = held.weights + held.draft.weights if placed.mmap else 0
        ends = needed - mapped > size
        what = "it is killed" if ends else "the model is read from the disk again for every token"
        message = f"the server takes {show_mib(needed)} of RAM, and with {limit} at most {what}"
        way_out = "give it more memory, or put more of the model on a GPU"
        yield LIMIT_BELOW_HELD.at(place, message, way_out, "error" if ends else "warning")


def _placement(server: ServerCommand, header: Header, *, without_cards: bool) -> Placement | None:
    """Return the server's placement of its model; None if its arguments do not determine it."""
    known: Catalogue = catalogue(server.kind, server.version) or catalogues(server.kind)[-1]
    if any(word.unknown for word in server.arguments):
        return None
    settings = {name: str(word) for name, word in server.settings.items() if not word.unknown}
    line = CommandLine(effective_options(known, [str(word) for word in server.arguments], settings), keys=0)
    layers = line.effective.text(*LAYERS)
    on_cpu = without_cards or layers == "0" or line.effective.text("--device") == "none"
    if not on_cpu and not re.fullmatch(r"\d{1,6}|all", layers):
        return None
    devices = 0 if on_cpu else server.cards or 1
    base = Placement(engine=server.kind, context=LEAST_CONTEXT, devices=devices)
    return with_explicit_flags(base, line, header)
