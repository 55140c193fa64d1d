"""Unit files read as systemd does (src/shared/conf-parser.c, src/basic/extract-word.c, src/core/load-fragment.c and
src/core/execute.c of systemd 257), strictly: what systemd would warn of is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
_ENDS = re.compile("[\n\r\0]")
_HEXADECIMAL = {"x": 2, "u": 4, "U": 8}


class UnitError(ValueError):
    """Something that systemd would not take as it was meant."""


def directives(text: str) -> Iterator[tuple[str, str, str]]:
    """Section, key and value of each line. A carriage return and a NUL end a line as well (read_line)."""
    section = ""
    for line in _ENDS.split(text):
        stripped = line.strip(" \t")
        if not stripped or stripped[0] in "#;":
            continue
        if line.endswith("\\"):
            raise UnitError(f"{line!r} goes on in the next line")
        if match := re.fullmatch(r"\[(.+)\]", stripped):
            section = match[1]
        elif "=" in stripped:
            key, _, value = stripped.partition("=")
            yield section, key.strip(" \t"), value.strip(" \t")
        else:
            raise UnitError(f"{line!r} is no directive")


def words(text: str) -> list[str]:
    """What extract_first_word makes of a value, quotes and C's escapes undone."""
    found: list[str] = []
    word: str | None = None
    quote = ""
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "\\":
            unescaped, at = _unescaped(text, at)
            word = (word or "") + unescaped
        elif quote:
            if character == quote:
                quote = ""
            else:
                word = (word or "") + character
        elif character in "'\"":
            quote, word = character, word or ""
        elif word is None and character == ";" and text[at : at + 1] in ("", " ", "\t"):
            raise UnitError("a bare semicolon begins another command")
        elif character in " \t\n\r":
            if word is not None:
                found.append(word)
            word = None
        else:
            word = (word or "") + character
    if quote:
        raise UnitError(f"a quote is not closed in {text!r}")
    return found + ([word] if word is not None else [])


def _unescaped(text: str, at: int) -> tuple[str, int]:
    if at == len(text):
        raise UnitError("a backslash at the end")
    character = text[at]
    if character in _ESCAPES:
        return _ESCAPES[character], at + 1
    if character in "\\\"'":
        return character, at + 1
    if digits := _HEXADECIMAL.get(character):
        return chr(int(text[at + 1 : at + 1 + digits], 16)), at + 1 + digits
    raise UnitError(f"no escape: \\{character}")


def without_specifiers(text: str) -> str:
    """`%%` is a percent sign; any other `%` begins a specifier, which nothing here is to write."""
    if "%" in text.replace("%%", ""):
        raise UnitError(f"{text!r} has a specifier")
    return text.replace("%%", "%")


def arguments(value: str) -> list[str]:
    """The arguments of ExecStart=: words, then specifiers, then variables, of which `$$` is none."""
    found = [without_specifiers(word) for word in words(value)]
    if any("$" in word.replace("$$", "") for word in found):
        raise UnitError(f"{value!r} has a variable")
    return [word.replace("$$", "$") for word in found]


def assignments(value: str) -> list[str]:
    """The assignments of Environment=: specifiers first, then words."""
    return words(without_specifiers(value))
