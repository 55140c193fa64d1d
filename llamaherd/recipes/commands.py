"""Texts whose characters keep their positions, and the words and commands that are read from them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from llamaherd.inventory.yaml_file import Document as YamlDocument
from llamaherd.inventory.yaml_file import Path_, parse_yaml

Position = tuple[int, int]
"""Line and column, from 1."""


@dataclass(frozen=True)
class Text:
    """Characters, and the position of each."""

    chars: str
    at: tuple[Position, ...]

    def cut(self, start: int, end: int) -> Text:
        """Return the characters from `start` up to `end`."""
        return Text(self.chars[start:end], self.at[start:end])

    def lines(self) -> list[Text]:
        """Return the lines, each with its end."""
        ends = [*(found.end() for found in re.finditer(r"\n", self.chars)), len(self.chars)]
        return [self.cut(start, end) for start, end in pairwise([0, *ends]) if start < end]


def joined(texts: Iterable[Text]) -> Text:
    """Return the texts as one, in their order."""
    parts = list(texts)
    return Text("".join(part.chars for part in parts), tuple(at for part in parts for at in part.at))


def placed(chars: str, at: Position) -> Text:
    """Return a text whose characters all stand at one position, such as the value of a variable."""
    return Text(chars, (at,) * len(chars))


EMPTY = Text("", ())
_POWERSHELL = re.compile(r"(?<=[ \t])`(?=[ \t]*\r?\n)")


def unixed(text: Text) -> Text:
    """Return the text with backslashes for PowerShell's backquotes at line ends, if it has no other backquotes."""
    chars, found = _POWERSHELL.subn("\\\\", text.chars)
    return Text(chars, text.at) if found == text.chars.count("`") else text


def positioned(chars: str, line: int = 1, column: int = 1) -> Text:
    """Return a text whose first character is at this line and column."""
    at = []
    for char in chars:
        at.append((line, column))
        line, column = (line + 1, 1) if char == "\n" else (line, column + 1)
    return Text(chars, tuple(at))


_VEIL = {code: 0xE000 + code for code in range(128)}
_UNVEIL = {veil: code for code, veil in _VEIL.items()}
_VEILED = re.compile("[\ue000-\ue07f]+")
_JINJA = re.compile(r"\{\{(?:[^\n}]|\}(?!\}))*\}\}|\{%(?:[^\n%]|%(?!\}))*%\}|\{#(?:[^#]|#(?!\}))*#\}")
"""An expression of Jinja on one line, a statement, or a comment."""


_ALTERNATIVE = re.compile(r"(?<=%\})(?:(?!\{%)[^\x00])*(?=\{%-?[ \t]*(?:else|elif)\b)")
"""What a template has only under a condition, and something else otherwise."""


def veil(chars: str) -> str:
    """Return characters of an unknown value as others that mean nothing in any kind of file."""
    return chars.translate(_VEIL)


def unveil(chars: str) -> str:
    """Return a text with the unknown values as they are written."""
    return chars.translate(_UNVEIL) if _VEILED.search(chars) else chars


def veiled(text: Text) -> Text:
    """Return a text that is unknown as a whole."""
    return Text(veil(text.chars), text.at)


def is_veiled(chars: str) -> bool:
    """Return whether a part of a text is unknown."""
    return _VEILED.search(chars) is not None


def without_jinja(chars: str) -> str:
    """Return a template of the same length with its expressions as unknown values, and blanks for its statements."""

    def replaced(found: re.Match[str]) -> str:
        return veil(found[0]) if found[0].startswith("{{") else re.sub(r"[^\n]", " ", found[0])

    if "{{" not in chars and "{%" not in chars:
        return chars
    chars = _ALTERNATIVE.sub(lambda found: re.sub(r"[^\s\\]+", lambda each: veil(each[0]), found[0]), chars)
    lines = _JINJA.sub(replaced, chars).split("\n")
    for at, line in enumerate(lines):
        if at and line and not line.strip() and lines[at - 1].endswith("\\"):
            lines[at] = f"{line[:-1]}\\"  # a line of statements ends no command
    return "\n".join(lines)


def without_escapes(text: Text, escaped: str, meanings: Mapping[str, str]) -> Text:
    """Return a text with the characters that escapes mean. The pattern's group is the escaped character."""
    parts, end = list[Text](), 0
    for found in re.finditer(escaped, text.chars, re.DOTALL):
        meant = meanings.get(found[1], found[1])
        parts += [text.cut(end, found.start()), placed(meant, text.at[found.start(1)])]
        end = found.end()
    return joined([*parts, text.cut(end, len(text.chars))]) if parts else text


_SPLIT = re.compile(r"\\(.)|'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|(\s+)|([;&|()]+)|[^\s\\'\";&|()]+|.", re.DOTALL)


def split(text: Text, *, operators: bool = False, comments: bool = False) -> Iterator[tuple[Text, bool]]:
    """Yield the words of a text, and whether they have quotes. An unclosed quote is a plain character.

    `operators`: whether a shell's operators and line ends are words of their own. `comments`: whether `#` begins one.
    """
    kept, begun, quoted = list[Text](), False, False
    at = 0
    while at < len(text.chars):
        found = _SPLIT.match(text.chars, at)
        assert found
        piece = text.cut(at, found.end())
        at = found.end()
        ends = found[4] is not None or (operators and found[5] is not None)
        if ends and begun:
            yield joined(kept), quoted
            kept, begun, quoted = [], False, False
        if ends:
            if operators and (found[5] or "\n" in piece.chars):
                start = len(piece.chars) - len(piece.chars.lstrip(" \t\r"))
                sign = piece.chars.strip(" \t\r")
                yield piece.cut(start, start + len(sign)), False
            continue
        if comments and piece.chars.startswith("#") and not begun:
            at = text.chars.find("\n", at) if "\n" in text.chars[at:] else len(text.chars)
            continue
        for group in (1, 2, 3):
            if found[group] is not None:
                start = found.start(group) - found.start()
                piece = piece.cut(start, start + len(found[group]))
                if group == 3:
                    piece = without_escapes(piece, r"\\([$`\"\\\n])", {"\n": ""})
                elif group == 1 and found[1] == "\n":
                    piece = EMPTY
                quoted = quoted or group > 1
        begun = begun or bool(piece.chars) or quoted
        kept.append(piece)
    if begun:
        yield joined(kept), quoted


_VARIABLE = re.compile(
    r"\$(?:\{(?P<braced>[A-Za-z_]\w*)(?:(?P<sign>:?[-?+])(?P<other>[^{}]*))?\}|(?P<named>[A-Za-z_]\w*))"
)


def interpolated(text: Text, known: Mapping[str, str], pattern: re.Pattern[str] = _VARIABLE) -> Text:
    """Return a text with the values of `$NAME`, `${NAME}`, `${NAME:-default}`; what nothing sets is veiled.

    `pattern` finds other forms of variables: its groups are `braced`, `named`, `sign` and `other`.
    """
    parts, end = list[Text](), 0
    for found in pattern.finditer(text.chars) if "$" in text.chars else ():
        if found.start() < end or text.chars[found.start() - 1 : found.start()] == "$":
            continue
        groups = found.groupdict("")
        name, sign = groups["braced"] or groups["named"], groups.get("sign", "")
        value, whole = known.get(name), text.cut(found.start(), found.end())
        other = text.cut(found.start("other"), found.end("other")) if sign else EMPTY
        given = value is not None and (bool(value) or not sign.startswith(":"))
        if sign.endswith("-") and not given:
            here = veiled(other) if "$" in other.chars else other
        elif sign.endswith("+"):
            here = other if given else EMPTY if name in known else veiled(whole)
        else:
            here = veiled(whole) if value is None else Text(value, whole.at[:1] * len(value))
        parts += [text.cut(end, found.start()), here]
        end = found.end()
    return joined([*parts, text.cut(end, len(text.chars))]) if parts else text


def settings_of(text: str) -> dict[str, str]:
    """Return the variables of a `.env` file."""
    found = re.finditer(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)[ \t]*=[ \t]*(.*?)[ \t]*$", text, re.MULTILINE)
    return {each[1]: each[2].strip("\"'") for each in found}


def without_dollars(text: Text) -> Text:
    """Return a text of Compose with `$` for each `$$`."""
    return without_escapes(text, r"\$(\$)", {}) if "$$" in text.chars else text


def expand(text: Text, known: Mapping[str, str]) -> tuple[Word, ...]:
    """Return the words of a command line that no shell reads, with the values of its variables."""
    return tuple(word_of(raw) for raw, _ in split(without_dollars(interpolated(text, known))))


@dataclass(frozen=True)
class ComposeCommand:
    """The intended command, and the positions where Compose reads it otherwise."""

    text: Text
    """The command without backslashes at line ends, and without the part that Compose drops."""
    continued: Position | None = None
    """The first backslash before a blank or a line's end."""
    operator: tuple[str, Position] | None = None
    """The operator at which the command ends for Compose."""


def read_compose_command(text: Text) -> ComposeCommand:
    """Read a text as Compose does, outside of quotes."""
    kept: list[Text] = []
    continued: Position | None = None
    quote = ""
    index = 0
    while index < len(text.chars):
        char, one = text.chars[index], text.cut(index, index + 1)
        if char == "\\" and quote != "'":
            if not quote and text.chars[index + 1 : index + 2].isspace():
                continued = continued or text.at[index]
                one = Text(" ", one.at)
            else:
                one = text.cut(index, index + 2)
        elif char in "'\"":
            quote = "" if quote == char else quote or char
        elif char in ";&|<>" and not quote:
            return ComposeCommand(joined(kept), continued, (char, text.at[index]))
        kept.append(one)
        index += len(one.chars)
    return ComposeCommand(joined(kept), continued)


def as_mapping(value: Any) -> dict[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


@dataclass(frozen=True)
class YamlFile:
    """A YAML file with the position of each character of its values."""

    document: YamlDocument
    text: Text
    above: int = 0
    """The number of lines that were put above the file's own."""

    def at(self, path: Path_) -> Position:
        """Return the position of a value."""
        place = self.document.value(path)
        return max(place.line - self.above, 1), place.column

    def value(self, path: Path_, value: str) -> Text:
        """Return a value with the position of each of its characters, whether it is quoted, folded or plain."""
        place, whole = self.document.value(path), self.text
        here = bisect_left(whole.at, (place.line, place.column))
        if whole.chars[here : here + 1] in {">", "|"}:
            here = max(whole.chars.find("\n", here), here)
        positions: list[Position] = []
        for char in value:
            found = here if char.isspace() else whole.chars.find(char, here)
            if found < 0 or found >= len(whole.at):
                return placed(value, self.at(path))
            line, column = whole.at[found]
            positions.append((max(line - self.above, 1), column))
            here = found + 1 if not char.isspace() else here
        return Text(value, tuple(positions))


def yaml_file(file: Path, text: str, *, merging: bool = False) -> YamlFile:
    """Parse a text as YAML. Raise InventoryError for another one. `merging` allows Compose's own tags."""
    return YamlFile(parse_yaml(file, text, merging=merging), positioned(text))


@dataclass(frozen=True)
class Word:
    """One word of a command. Parts that only a running shell can compute stay as they are written."""

    text: Text
    start: Position
    unknown: bool = False
    """Whether it contains a variable that the text does not set, or another command's output."""
    unset: tuple[str, ...] = ()
    tilde: bool = False
    """Whether it begins with a quoted `~`, which no shell replaces by a home."""
    hidden: Text | None = field(default=None, compare=False)
    """The text with its unknown parts veiled; None for a word that is known, or unknown as a whole."""

    def __str__(self) -> str:
        return self.text.chars

    @property
    def veiled(self) -> Text:
        """The text with its unknown parts veiled."""
        return self.hidden or (veiled(self.text) if self.unknown else self.text)


def word_at(chars: str, at: Position, *, unknown: bool = False) -> Word:
    """Return a word whose characters all stand at one position."""
    return Word(placed(chars, at), at, unknown)


def word_of(text: Text, start: Position | None = None) -> Word:
    """Return a text as a word, which is unknown if a part of the text is."""
    at = start or (text.at[0] if text.at else (1, 1))
    if not is_veiled(text.chars):
        return Word(text, at)
    hidden = (unveil(found[0]) for found in _VEILED.finditer(text.chars))
    unset = tuple(each["braced"] or each["named"] for part in hidden for each in _VARIABLE.finditer(part))
    return Word(Text(unveil(text.chars), text.at), at, unknown=True, unset=unset)


def joined_words(first: Word, second: Word) -> Word:
    """Return two words as one."""
    hidden = joined((first.veiled, second.veiled))
    text, unknown = Text(unveil(hidden.chars), hidden.at), first.unknown or second.unknown
    return Word(text, first.start, unknown, first.unset + second.unset, first.tilde, hidden if unknown else None)


@dataclass(frozen=True)
class Cut:
    """An operator inside of an apparent word, and the text behind it."""

    operator: str
    start: Position
    behind: str


@dataclass(frozen=True)
class Command:
    """A program with its arguments, and the variables before it."""

    words: tuple[Word, ...]
    settings: Mapping[str, Word] = field(default_factory=dict)
    background: bool = False
    exports: tuple[str, ...] = ()
    """The variables that it exports to the programs that follow."""
    cut: Cut | None = None
    """The operator that ends it without a blank on either side."""


@dataclass(frozen=True)
class Document:
    """A here-document: a file that a script writes, or the input of a command."""

    text: Text
    """What bash writes; unknown values are veiled."""
    name: str
    """The path of the file; empty for the input of a command."""
    reader: tuple[Word, ...] = ()
    """The command that reads it."""


@dataclass(frozen=True)
class Script:
    """The commands and files of a shell text."""

    commands: tuple[Command, ...]
    documents: tuple[Document, ...]
    broken: tuple[Position, ...]
    """Backslashes with blanks or a comment after them: they continue no line."""
    unread: tuple[Position, ...] = ()
    """The beginnings of parts that bash could not read."""
