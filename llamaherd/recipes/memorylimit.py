"""Limits of memory around a server, below what it saves of prompts while it works."""

from __future__ import annotations

import re

from llamaherd.memory.placement import CACHE_RAM
from llamaherd.recipes.programs import Server

_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_MIB = 1 << 20


def saves_beyond(server: Server, limit: str) -> tuple[str, str] | None:
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
