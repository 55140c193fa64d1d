"""The characters that a text may hold if it is written into files of hosts and shown on terminals."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Any

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

HARMFUL = re.compile(
    # C0, DEL and C1: line ends, terminals' commands. U+2028 and U+2029 end lines too, to YAML 1.1 and JavaScript.
    "[\x00-\x1f\x7f-\x9f\u2028\u2029"
    # Characters that reverse the order in which a text is shown (CVE-2021-42574).
    "\u202a-\u202e\u2066-\u2069"
    # Halves of pairs, and code points that Unicode reserves: systemd takes neither for UTF-8 (its unichar_is_valid).
    "\ud800-\udfff\ufdd0-\ufdef"
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(17))
    + "]"
)
"""Characters that no text of an inventory may hold, except line ends and tabs in texts of several lines."""
_OF_SEVERAL_LINES = frozenset("\n\t")
_NAMES = {
    "\x00": "a NUL",
    "\t": "a tab",
    "\n": "a line's end",
    "\r": "a carriage return",
    "\x1b": "an escape character",
    "\x7f": "a DEL",
    "\x85": "a line's end of other systems",
    "\u2028": "a line separator",
    "\u2029": "a paragraph separator",
}


def harmful(text: str, *, lines: bool = False) -> str | None:
    """Return the first invalid character of a text in words: `a carriage return (U+000D)`; None if there is none.

    `lines`: the text may have several lines, and tabs.
    """
    found = (match[0] for match in HARMFUL.finditer(text))
    character = next((each for each in found if not (lines and each in _OF_SEVERAL_LINES)), None)
    if character is None:
        return None
    code = f"U+{ord(character):04X}"
    if name := _NAMES.get(character):
        return f"{name} ({code})"
    category = unicodedata.category(character)
    kind = {"Cc": "a control character", "Cs": "half of a character"}.get(category, "an invisible character")
    return f"{kind} ({code})"


def _without_harmful(value: Any, *, lines: bool) -> Any:
    if isinstance(value, str) and (found := harmful(value, lines=lines)):
        raise PydanticCustomError("harmful_character", "it holds {character}", {"character": found})
    return value


def one_line(value: Any) -> Any:
    """Return a value unchanged. Raise ValueError for a text with control characters."""
    return _without_harmful(value, lines=False)


def several_lines(value: Any) -> Any:
    """Return a value unchanged. Raise ValueError for a text with control characters other than line ends and tabs."""
    return _without_harmful(value, lines=True)


Line = Annotated[str, AfterValidator(one_line)]
"""A text on one line, such as a name."""
TextLines = Annotated[str, AfterValidator(several_lines)]
"""A text that may have several lines: a template, a grammar, JSON, a file."""
Plain = Annotated[str | int | bool, AfterValidator(one_line)]
"""A value of a setting of another program."""
