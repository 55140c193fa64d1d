"""Limits of memory around a server, below what it saves of prompts while it works."""

from __future__ import annotations

import re

from llamaherd.diagnostics.rule import Rule
from llamaherd.memory.placement import CACHE_RAM
from llamaherd.recipes.programs import ServerCommand

_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_MIB = 1 << 20


LIMIT_BELOW_SAVED = Rule(
    "LH241",
    "A limit of memory is below what the server saves while it works.",
    why="""
    llama.cpp and ik_llama.cpp save prompts in RAM, up to 8,192 MiB unless told otherwise. Under `MemoryMax=` of a
    unit, or `mem_limit` of a container, the server starts, works, and is killed some hundred prompts later.
    """,
    example="""
    [Service]
    ExecStart=/usr/local/bin/llama-server -m /srv/models/model.gguf -c 8192 --host 127.0.0.1 --port 8080
    User=llama
    MemoryMax=4G
    """,
    language="ini",
    way_out="""
    write `--cache-ram` with fewer MiB, or give it more memory. `herd fit` says how much weights and buffers take
    besides.
    """,
    severity="warning",
)


def saves_beyond(server: ServerCommand, limit: str) -> tuple[str, str] | None:
    """What to say of a server that saves more prompts than its limit of memory has bytes, and the way out.

    systemd and Docker both count `8G` in powers of two. `--cache-ram -1` saves without an end.
    """
    if server.program != "llama-server" or (size := bytes_of(limit)) is None:
        return None
    told = server.value("-cram", "--cache-ram") or server.settings.get("LLAMA_ARG_CACHE_RAM")
    if told is not None and not re.fullmatch(r"-?\d{1,9}", str(told)):
        return None
    mib = int(str(told)) if told is not None else CACHE_RAM // _MIB
    if 0 <= mib < size / _MIB:
        return None
    what = "without an end" if mib < 0 else f"up to {mib:,} MiB"
    message = f"the server saves prompts in RAM, {what}, and with {limit} at most it is killed on the way"
    return message, f"add `--cache-ram {int(size // _MIB // 4)}`, or give it more memory"


def bytes_of(limit: str) -> int | None:
    """A limit in bytes; None for none, or for what is no size."""
    found = _SIZE.fullmatch(limit.strip())
    if not found:
        return None
    size = round(float(found[1]) * 1024 ** " kmgt".index(found[2].lower() or " "))
    return size or None
