"""Text of others on a terminal."""

from __future__ import annotations

import re

_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)
"""What terminals take for commands (ECMA-48): CSI and OSC with their arguments, strings, and short ones."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def shown(text: str) -> str:
    """One line without what a terminal would obey; blanks are kept, a tab is one.

    A byte of a file's name that is no text here (a surrogate, os.fsdecode) is still seen to be there.
    """
    if text.isprintable():  # most lines, and this is by far the quickest way to know
        return text
    told = _SURROGATE.sub("\ufffd", _SEQUENCE.sub("", text).replace("\t", " "))
    return "".join(c for c in told if c.isprintable())


def plain(text: str) -> str:
    """Lines without what a terminal would obey, but for their ends."""
    return "\n".join(map(shown, text.split("\n")))


def printable(text: str) -> str:
    """One line for rich, without control characters: models and names say what they like, and a terminal obeys."""
    from rich.markup import escape

    return escape(shown(" ".join(text.split())))
