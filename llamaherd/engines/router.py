"""llama-server as a router: one server at one port, which runs one of several command lines at a time.

Each of them is a section of a preset file (b11434, common/preset.cpp). A request names the section by its model; the
router ends what runs when that answers nobody any more, and starts what is asked for (tools/server/server-models.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from llamaherd.engines.flags.definitions import Catalogue

ROUTED_SINCE = "2026-07"
"""Before, a swap ended requests that were being answered (ggml-org/llama.cpp#22447, #24849)."""
NEEDED = ("--models-preset", "--models-max")
"""Flags of a version that has a router."""

_OVERWRITTEN = frozenset({"--host", "--port", "--alias", "--api-key-file"})
"""What the router says itself of each: where it listens, without a key, and the section's name."""
_ROUTERS_OWN = (
    *("--ssl-key-file", "--ssl-cert-file", "--api-key", "--api-prefix", "--path", "--reuse-port", "--timeout"),
    *("--threads-http", "--cors-origins", "--cors-methods", "--cors-headers", "--cors-credentials", "--hf-repo"),
    *("--models-dir", "--models-preset", "--models-max", "--models-autoload", "--model-url"),
)
"""What only the server in front could do. In a section it is dropped, or does nothing."""
_FLAG = re.compile(r"--?[A-Za-z]")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_ENDS_VALUE = re.compile(r"[;#\r\n]")
"""With these a value ends, and what is behind them is a comment."""


class NotRoutedError(ValueError):
    """A command line that a preset file cannot say; says why."""


def router_arguments(preset_path: str, listen: str, port: int, api_key_file: str | None) -> tuple[str, ...]:
    """The arguments of the server in front."""
    key = ("--api-key-file", api_key_file) if api_key_file else ()
    return ("--models-preset", preset_path, "--models-max", "1", "--host", listen, "--port", str(port), *key)


def preset(served: Sequence[tuple[str, tuple[str, ...]]], known: Catalogue | None, rig: str, group: str) -> str:
    """The preset file of command lines by the names of their models; the first is loaded at once.

    Raises NotRoutedError.
    """
    sections = [_section(model, arguments, known, first=not at) for at, (model, arguments) in enumerate(served)]
    head = f"; Written by llamaherd for group `{group}` of rig `{rig}`: change the inventory, not this file."
    return "\n".join([head, "version = 1\n", *sections])


def _section(model: str, arguments: tuple[str, ...], known: Catalogue | None, *, first: bool) -> str:
    lines = [f"[{model}]", *(["load-on-startup = true"] if first else [])]
    lines += [f"{key} = {value}".rstrip() for key, value in section(arguments, known).items()]
    return "\n".join(lines) + "\n"


def section(arguments: tuple[str, ...], known: Catalogue | None) -> Mapping[str, str]:
    """Keys and values that say what a command line does. Raises NotRoutedError."""
    found: dict[str, str] = {}
    said: set[str] = set()
    for flag, values in _options(arguments, known):
        spellings = _spellings(flag, known)
        if not spellings.isdisjoint(_ROUTERS_OWN):
            raise NotRoutedError(f"`{flag}` is for the server in front of all of a group, which has no such key")
        if not spellings.isdisjoint(_OVERWRITTEN):
            continue
        if len(values) > 1:
            raise NotRoutedError(f"`{flag}` has {len(values)} values, and a preset file takes one")
        if not spellings.isdisjoint(said):
            raise NotRoutedError(f"`{flag}` is said twice, and a preset file takes it once")
        said |= spellings
        found[_key(flag)] = _value(flag, values)
    return found


def _options(arguments: tuple[str, ...], known: Catalogue | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Flags with their values. Of one that the version is not known to have, what follows is its value unless it is
    a flag."""
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
    """As the file has it: without dashes before it, and of two spellings the one that is in its table."""
    bare = flag.lstrip("-")
    key = bare.replace("_", "-") if flag.startswith("--") else bare
    if not _KEY.fullmatch(key):
        raise NotRoutedError(f"`{flag[:60]}` is no name that a preset file takes")
    return key


def _value(flag: str, values: tuple[str, ...]) -> str:
    """A switch is said to be on; one that is said by its negation is a key of its own."""
    if not values:
        return "true"
    if _ENDS_VALUE.search(values[0]) or values[0] != values[0].strip():
        raise NotRoutedError(f"a preset file ends the value of `{flag}` at its `;` or `#`, or at a blank at its edge")
    return values[0]
