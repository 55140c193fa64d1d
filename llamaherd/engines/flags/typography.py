"""Arguments as lists and word processors spoil them: two in one, and signs that are no plain ones."""

from __future__ import annotations

import re

from llamaherd.engines.flags import codes
from llamaherd.engines.flags.model import Catalogue, Problem

DASHES = re.compile("^[\N{HYPHEN}\N{NON-BREAKING HYPHEN}\N{EN DASH}\N{EM DASH}\N{MINUS SIGN}]-?")
QUOTES = str.maketrans(
    dict.fromkeys("\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}", '"')
    | dict.fromkeys("\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}", "'")
)


def typeset(catalogue: Catalogue, argument: str, index: int) -> Problem | None:
    """A dash or quotation mark that a word processor or blog has made of a plain one."""
    bare = DASHES.sub("", argument)
    meant = catalogue.first(f"--{bare}", f"-{bare}") if bare != argument else None
    if meant is None and argument.translate(QUOTES) in (argument, ""):
        return None
    if meant:
        return Problem(
            codes.TYPOGRAPHY,
            index,
            1,
            f"`{argument}` begins with a dash that is no hyphen",
            f"write `{meant}`",
            replacement=(meant,),
        )
    way_out = "write plain quotation marks, as a shell knows them"
    return Problem(codes.TYPOGRAPHY, index, 1, f"`{argument}` has quotation marks that are none", way_out)


def quoted(value: str, index: int, length: int) -> Problem | None:
    """A value in quotation marks of a word processor, which no shell takes away."""
    plain = value.translate(QUOTES)
    if plain == value or plain[:1] not in ("'", '"'):
        return None
    message = f"`{value}` has quotation marks that are none: they are a part of the value"
    return Problem(codes.TYPOGRAPHY, index, length, message, "write plain quotation marks, or none")


def in_one(catalogue: Catalogue, argument: str, index: int) -> Problem | None:
    """A flag with its value in one argument, as an item of a list or a pair of quotes makes it."""
    parts = tuple(argument.split())
    if not parts or parts == (argument,) or catalogue.find(parts[0]) is None:
        return None
    apart = " and ".join(f"`{part}`" for part in parts)
    message = f"`{argument}` is one argument, and {catalogue} wants a flag and its value as two"
    way_out = f"write {apart} as arguments of their own" if len(parts) > 1 else f"write {apart}, without a blank"
    return Problem(codes.JOINED, index, 1, message, way_out, replacement=parts)
