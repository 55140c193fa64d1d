"""The flags that a built engine lists in its `--help`: parsed strictly, and merged into a catalogue."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from llamaherd.engines.flags.model import Catalogue, Flag, Value
from llamaherd.inventory.schema.software import BuiltFlags

MOST_FLAGS, MOST_SPELLINGS, MOST_VALUES = 1000, 12, 4
MOST_HELP = 64_000
"""Bytes of `--help` without descriptions that are read; b11434 has 9,000."""
_SPELLING = r"--?[A-Za-z][A-Za-z0-9._-]{0,62}"
SPELLINGS = re.compile(rf"{_SPELLING}(?: {_SPELLING}){{0,{MOST_SPELLINGS - 1}}}", re.ASCII)
"""All spellings of one flag, in the file that keeps them."""
_LINE = re.compile(rf"{_SPELLING}(?:, *{_SPELLING})*(?= |$)", re.ASCII)


def parse_help(text: str) -> BuiltFlags:
    """Return the flags of `llama-server --help`, each with its spellings and the number of its values.

    Lines that are not of the known form are skipped, and so is all beyond the bounds.
    """
    found: dict[tuple[str, ...], int] = {}
    for line in text[:MOST_HELP].splitlines():
        column = re.split(r"  +(?=[^-\s])", line[:400])[0].rstrip()
        match = _LINE.match(column)
        spellings = tuple(re.split(", *", match[0])) if match else ()
        if match and len(spellings) <= MOST_SPELLINGS and len(found) < MOST_FLAGS:
            hint = column[match.end() :].strip()
            values = 1 if hint[:1] in tuple("<[{") else len(hint.split())
            found[spellings] = min(values, MOST_VALUES)
    return tuple(sorted(found.items()))


def as_mapping(built: BuiltFlags) -> dict[str, int]:
    """Return the same for a file: the number of values by all spellings, with blanks between."""
    return {" ".join(spellings): values for spellings, values in built}


def of_mapping(flags: Mapping[str, int]) -> BuiltFlags:
    """Return what `as_mapping` was given."""
    return tuple(sorted((tuple(spellings.split(" ")), values) for spellings, values in flags.items()))


@lru_cache(maxsize=64)
def listed(known: Catalogue, version: str, built: BuiltFlags) -> Catalogue:
    """Return the catalogue of a build that lists these flags; what they take is read from the nearest known version."""
    flags: dict[str, Flag] = {spelling: flag for spelling, flag in known.flags.items() if flag.removed}
    for spellings, values in built:
        same = sorted((flag for each in spellings if (flag := known.find(each))), key=lambda flag: bool(flag.removed))
        flag = same[0] if same else Flag(spellings)
        if flag.removed:
            continue  # `--help` lists it, and says so in its description
        if len(flag.values) != values and not flag.optional and not flag.many:
            flag = replace(flag, values=(Value(),) * values)
        flags |= dict.fromkeys(spellings, flag)
    return replace(
        known, version=version, flags=flags, asked=version, following=None, exact=True, complete=True, listed=True
    )
