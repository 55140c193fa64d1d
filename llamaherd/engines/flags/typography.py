"""Arguments as lists and word processors spoil them: two in one, and signs that are no plain ones."""

from __future__ import annotations

import re

from llamaherd.diagnostics.rule import Rule
from llamaherd.engines.flags.model import Catalogue, Problem

DASHES = re.compile("^[\N{HYPHEN}\N{NON-BREAKING HYPHEN}\N{EN DASH}\N{EM DASH}\N{MINUS SIGN}]-?")
QUOTES = str.maketrans(
    dict.fromkeys("\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}", '"')
    | dict.fromkeys("\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}", "'")
)


TYPOGRAPHY = Rule(
    "LH125",
    "A dash or quotation mark is one of a word processor.",
    why='Blogs and chat programs turn `--` and `"` into signs that look alike and mean nothing to a command line.',
    example="""
    llama-server -m model.gguf \N{EN DASH}-ctx-size 8192
    """,
    language="sh",
    way_out="write the plain signs of the help line.",
)


def typeset(catalogue: Catalogue, argument: str, index: int) -> Problem | None:
    """A dash or quotation mark that a word processor or blog has made of a plain one."""
    bare = DASHES.sub("", argument)
    meant = catalogue.first(f"--{bare}", f"-{bare}") if bare != argument else None
    if meant is None and argument.translate(QUOTES) in (argument, ""):
        return None
    if meant:
        return Problem(
            TYPOGRAPHY,
            index,
            1,
            f"`{argument}` begins with a dash that is no hyphen",
            f"write `{meant}`",
            replacement=(meant,),
        )
    way_out = "write plain quotation marks, as a shell knows them"
    return Problem(TYPOGRAPHY, index, 1, f"`{argument}` has quotation marks that are none", way_out)


def quoted(value: str, index: int, length: int) -> Problem | None:
    """A value in quotation marks of a word processor, which no shell takes away."""
    plain = value.translate(QUOTES)
    if plain == value or plain[:1] not in ("'", '"'):
        return None
    message = f"`{value}` has quotation marks that are none: they are a part of the value"
    return Problem(TYPOGRAPHY, index, length, message, "write plain quotation marks, or none")


JOINED = Rule(
    "LH255",
    "A flag and its value stand in one argument.",
    why="""
    An item of a list, or what stands in one pair of quotes, is one argument: the engine looks for a flag of that
    whole name.
    """,
    example="""
    services:
      llm:
        image: ghcr.io/ggml-org/llama.cpp:server@sha256:0000000000000000000000000000000000000000000000000000000000000000
        command: ["-m /models/a.gguf", "--host", "0.0.0.0"]
        volumes: ["/srv/models:/models:ro"]
        ports: ["127.0.0.1:8080:8080"]
    """,
    way_out="write flag and value as two items.",
)


def in_one(catalogue: Catalogue, argument: str, index: int) -> Problem | None:
    """A flag with its value in one argument, as an item of a list or a pair of quotes makes it."""
    parts = tuple(argument.split())
    if not parts or parts == (argument,) or catalogue.find(parts[0]) is None:
        return None
    apart = " and ".join(f"`{part}`" for part in parts)
    message = f"`{argument}` is one argument, and {catalogue} wants a flag and its value as two"
    way_out = f"write {apart} as arguments of their own" if len(parts) > 1 else f"write {apart}, without a blank"
    return Problem(JOINED, index, 1, message, way_out, replacement=parts)
