"""llama-server as a router: one server at one port, which runs one of several command lines at a time.

Each command line is a section of a preset file (b11434, common/preset.cpp). A request names the section by its model.
The router ends the running process when it has no more requests, and starts the requested one
(tools/server/server-models.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from llamaherd.engines.flags.definitions import Catalogue

ROUTED_SINCE = "2026-07"
"""In earlier versions, a swap ended running requests (ggml-org/llama.cpp#22447, #24849)."""
NEEDED = ("--models-preset", "--models-max")
"""Flags of a version that has a router."""

_OVERWRITTEN = frozenset({"--host", "--port", "--alias", "--api-key-file"})
"""Flags that the router itself sets for each section: its address, no key, and the section's name."""
_ROUTERS_OWN = (
    *("--ssl-key-file", "--ssl-cert-file", "--api-key", "--api-prefix", "--path", "--reuse-port", "--timeout"),
    *("--threads-http", "--cors-origins", "--cors-methods", "--cors-headers", "--cors-credentials", "--hf-repo"),
    *("--models-dir", "--models-preset", "--models-max", "--models-autoload", "--model-url"),
)
"""Flags for the router only. In a section they are dropped, or have no effect."""
_FLAG = re.compile(r"--?[A-Za-z]")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_ENDS_VALUE = re.compile(r"[;#\r\n]")
"""Characters that end a value and begin a comment."""


class NotRoutedError(ValueError):
    """A command line that a preset file cannot express, with the reason."""


def router_arguments(preset_path: str, listen: str, port: int, api_key_file: str | None) -> tuple[str, ...]:
    """Return the arguments of the router."""
    key = ("--api-key-file", api_key_file) if api_key_file else ()
    return ("--models-preset", preset_path, "--models-max", "1", "--host", listen, "--port", str(port), *key)


def preset(served: Sequence[tuple[str, tuple[str, ...]]], known: Catalogue | None, rig: str, group: str) -> str:
    """Return the preset file of command lines by the names of their models. The first model is loaded at the start.

    Raise NotRoutedError.
    """
    sections = [_section(model, arguments, known, first=not at) for at, (model, arguments) in enumerate(served)]
    head = f"; Written by llamaherd for group `{group}` of rig `{rig}`: change the inventory, not this file."
    return "\n".join([head, "version = 1\n", *sections])


def _section(model: str, arguments: tuple[str, ...], known: Catalogue | None, *, first: bool) -> str:
    lines = [f"[{model}]", *(["load-on-startup = true"] if first else [])]
    lines += [f"{key} = {value}".rstrip() for key, value in section(arguments, known).items()]
    return "\n".join(lines) + "\n"


def section(arguments: tuple[str, ...], known: Catalogue | None) -> Mapping[str, str]:
    """Return the keys and values that express a command line. Raise NotRoutedError."""
    found: dict[str, str] = {}
    written: set[str] = set()
    for flag, values in _options(arguments, known):
        spellings = _spellings(flag, known)
        if not spellings.isdisjoint(_ROUTERS_OWN):
            raise NotRoutedError(f"`{flag}` is for the server in front of all of a group, which has no such key")
        if not spellings.isdisjoint(_OVERWRITTEN):
            continue
        if len(values) > 1:
            raise NotRoutedError(f"`{flag}` has {len(values)} values, and a preset file takes one")
        if not spellings.isdisjoint(written):
            raise NotRoutedError(f"`{flag}` is given twice, and a preset file takes it once")
        written |= spellings
        found[_key(flag)] = _value(flag, values)
    return found


def _options(arguments: tuple[str, ...], known: Catalogue | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the flags with their values. All words up to the next flag are values of an unknown flag."""
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if not _FLAG.match(word):
            raise NotRoutedError(f"`{word[:60]}` belongs to no flag")
        flag = known.find(word) if known else None
        most = len(flag.values) if flag and not flag.many else len(arguments)
        sure = flag is not None and not flag.many and not flag.optional
        values: list[str] = []
        while len(values) < most and at + 1 + len(values) < len(arguments):
            following = arguments[at + 1 + len(values)]
            if not sure and _FLAG.match(following):
                break
            values.append(following)
        yield word, tuple(values)
        at += 1 + len(values)


def _spellings(flag: str, known: Catalogue | None) -> frozenset[str]:
    found = known.find(flag) if known else None
    return frozenset((*found.spellings, *found.negated)) if found else frozenset({flag})


def _key(flag: str) -> str:
    """Return a flag as a key of the file: without leading dashes, in the spelling of the router's table."""
    bare = flag.lstrip("-")
    key = bare.replace("_", "-") if flag.startswith("--") else bare
    if not _KEY.fullmatch(key):
        raise NotRoutedError(f"`{flag[:60]}` is no name that a preset file takes")
    return key


def _value(flag: str, values: tuple[str, ...]) -> str:
    """Return the value of a key: `true` for a switch. The negation of a switch is a key of its own."""
    if not values:
        return "true"
    if _ENDS_VALUE.search(values[0]) or values[0] != values[0].strip():
        raise NotRoutedError(f"a preset file ends the value of `{flag}` at its `;` or `#`, or at a blank at its edge")
    return values[0]
