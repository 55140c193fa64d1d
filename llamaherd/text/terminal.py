"""Texts of other programs on a terminal."""

from __future__ import annotations

import re
import unicodedata

_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)
"""Sequences that terminals execute (ECMA-48): CSI and OSC with their arguments, strings, and short ones."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def shown(text: str) -> str:
    """Return one line without sequences that a terminal executes; blanks are kept, a tab is one.

    A byte of a file's name that is not a text (a surrogate, os.fsdecode) stays visible.
    """
    if text.isprintable():  # most lines, and by far the quickest test
        return text
    text = _SURROGATE.sub("\ufffd", _SEQUENCE.sub("", text).replace("\t", " "))
    return "".join(c for c in text if c.isprintable())


_JOINERS = "\u200c\u200d"
"""Invisible characters that scripts and emojis consist of."""


def streamed(piece: str) -> str:
    """Return a piece of a longer text without control characters, except line breaks and tabs.

    A sequence that a terminal executes may be split between two pieces, so only its first character is removed.
    Unusual spaces are kept, and characters that change the direction of the text are removed.
    """
    if piece.isprintable():
        return piece
    piece = _SURROGATE.sub("\ufffd", piece)
    return "".join(c for c in piece if c in "\n\t" or c in _JOINERS or unicodedata.category(c) not in _UNSAFE)


_UNSAFE = frozenset({"Cc", "Cf", "Zl", "Zp"})
"""Unicode's categories of control characters, and of separators that some terminals treat as line breaks."""


def plain(text: str) -> str:
    """Return lines without sequences that a terminal executes, except their ends."""
    return "\n".join(map(shown, text.split("\n")))


MOST_MESSAGE, MOST_HELP = 480, 1000
"""Characters of a message, and of a help text, which may contain a whole command."""

_MOST_VALUE = 80
"""Characters of a quoted value in a text that is too long."""

_VALUE = re.compile(rf"`[^`\n]{{{_MOST_VALUE + 1},}}`|[^\s`]{{{_MOST_VALUE + 1},}}")


def one_line(text: str, most: int = MOST_MESSAGE) -> str:
    """Return a text as one line of at most `most` characters: `\\x1b` for a character that cannot be printed.

    If it is longer, each quoted value and each word is shortened first, and the end is cut only then.
    """
    if len(text) > most:
        text = _VALUE.sub(_shortened, text)
    if len(text) > most:
        text = f"{text[: most - 1]}…"
    if text.isprintable():
        return text
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return escaped if len(escaped) <= most else f"{escaped[: most - 1]}…"


def _shortened(found: re.Match[str]) -> str:
    text, mark = found[0].strip("`"), "`" if found[0].startswith("`") else ""
    return f"{mark}{text[: _MOST_VALUE - 1]}…{mark}"


def printable(text: str) -> str:
    """Return one line for rich, without control characters: models and names may contain any, and a terminal executes
    them.
    """
    from rich.markup import escape

    return escape(shown(" ".join(text.split())))
