"""systemd units as systemd reads them: sections, keys, continued lines, comments, words, variables, specifiers.

Source: systemd 257, src/shared/conf-parser.c (config_parse, parse_line), src/basic/extract-word.c,
src/basic/env-util.c (replace_env_argv), man systemd.syntax, systemd.service (COMMAND LINES).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from llamaherd.recipes.commands import EMPTY, Position, Text, Word, interpolated, joined, placed, word_at, word_of


@dataclass(frozen=True)
class Setting:
    """One `key=value`; the value without blanks around it, its continued lines joined by blanks."""

    section: str
    key: str
    value: Text
    start: Position

    @property
    def text(self) -> str:
        """The value."""
        return self.value.chars

    @property
    def at(self) -> Position:
        """The start of the value, or of the key if the value is empty."""
        return self.value.at[0] if self.value.at else self.start


@dataclass(frozen=True)
class Unit:
    """The content of a unit or a drop-in."""

    settings: tuple[Setting, ...]
    sections: tuple[tuple[str, Position], ...]
    not_continued: tuple[Text, ...] = ()
    """Lines of flags, which the line above should have continued."""

    def all(self, key: str, section: str = "Service") -> tuple[Setting, ...]:
        """Return the settings of a list, such as `Environment`: an empty one removes all before it.

        Settings above all sections count, too: they are an excerpt of a unit.
        """
        found: list[Setting] = []
        for each in self.settings:
            if each.key == key and each.section in {section, ""}:
                found = [*found, each] if each.text else []
        return tuple(found)

    def last(self, key: str, section: str = "Service") -> Setting | None:
        """Return the setting that takes effect, of a key with a single value."""
        found = self.all(key, section)
        return found[-1] if found else None

    def value(self, key: str, section: str = "Service") -> str:
        """Return the value that takes effect; empty for none."""
        found = self.last(key, section)
        return found.text if found else ""

    def yes(self, key: str) -> bool:
        """Return whether a truth value is true."""
        return self.value(key).lower() in {"1", "yes", "y", "true", "t", "on"}


def read_unit(text: Text) -> Unit:
    """Return the settings of a unit, in order."""
    settings: list[Setting] = []
    sections: list[tuple[str, Position]] = []
    not_continued: list[Text] = []
    for line in _logical_lines(text):
        header = re.fullmatch(r"\[([^\]]*)\]", line.chars)
        key, equals, _ = line.chars.partition("=")
        if settings and re.match(r"--?[a-zA-Z]", line.chars):
            whole = joined([settings[-1].value, Text(" ", line.at[:1]), line])
            settings[-1] = replace(settings[-1], value=whole)
            not_continued.append(line)
        elif header:
            sections.append((header[1], line.at[0]))
        elif equals and key.strip():
            section = sections[-1][0] if sections else ""
            settings.append(Setting(section, key.strip(), _stripped(line, len(key) + 1), line.at[0]))
    return Unit(tuple(settings), tuple(sections), tuple(not_continued))


def _logical_lines(text: Text) -> Iterator[Text]:
    """Yield the lines without comments, each continued by a backslash joined with the next."""
    kept: list[Text] = []
    for each in text.lines():
        line = each.cut(0, len(each.chars.rstrip("\r\n")))
        if re.match(r"[ \t]*[#;]", line.chars):
            continue
        slashes = len(line.chars) - len(line.chars.rstrip("\\"))
        if slashes % 2:
            kept.append(Text(line.chars[:-1] + " ", line.at))
            continue
        whole = _stripped(joined([*kept, line]))
        kept = []
        if whole.chars:
            yield whole
    if kept and (whole := _stripped(joined(kept))).chars:
        yield whole


def _stripped(text: Text, start: int = 0) -> Text:
    """Return the text from `start` on, without blanks around it."""
    end = len(text.chars.rstrip())
    start += len(text.chars[start:]) - len(text.chars[start:].lstrip())
    return text.cut(start, end) if start < end else EMPTY


_VARIABLE = re.compile(r"\$\{(?P<braced>[A-Za-z_]\w*)\}")
_UNKNOWN = re.compile(r"(?<!%)(?:%%)*%[A-Za-z]|\$\(|`")
"""Specifiers of systemd, and expansions of a shell."""
_WHOLE = re.compile(r"\$([A-Za-z_]\w*)")
_ESCAPES = {"n": "\n", "t": "\t", "s": " ", "r": "\r"}


def words(text: Text, variables: Mapping[str, str]) -> tuple[Word, ...]:
    """Return the words of a command line with expanded variables: `${NAME}` anywhere, `$NAME` only as a whole word.

    Only systemd can expand specifiers such as `%h`.
    """
    result: list[Word] = []
    for raw, quoted in _split(text):
        whole = None if quoted else _WHOLE.fullmatch(raw.chars)
        if whole and whole[1] in variables:
            result += [word_at(part, raw.at[0]) for part in variables[whole[1]].split()]
            continue
        word = word_of(interpolated(raw, variables, _VARIABLE), raw.at[0] if raw.at else (1, 1))
        names = [whole[1]] if whole else _VARIABLE.findall(raw.chars)
        unset = tuple(name for name in names if name not in variables)
        unknown = bool(word.unknown or whole) or _UNKNOWN.search(str(word)) is not None
        result.append(replace(word, unknown=unknown, unset=unset))
    return tuple(result)


def _split(text: Text) -> Iterator[tuple[Text, bool]]:
    """Yield the words of extract_first_word(), and whether they have quotes. An unclosed quote extends to the end."""
    kept: list[Text] = []
    quote, quoted, begun, index = "", False, False, 0
    while index < len(text.chars):
        char, one = text.chars[index], text.cut(index, index + 1)
        index += 1
        if char == "\\" and index < len(text.chars):
            after = text.chars[index]
            meant = _ESCAPES.get(after, after if after in "\\\"' ;$" else f"\\{after}")
            kept.append(placed(meant, one.at[0]))
            index, begun = index + 1, True
        elif char == quote or (not quote and char in "'\""):
            quote = "" if quote else char
            quoted = begun = True
        elif char.isspace() and not quote:
            if begun:
                yield joined(kept), quoted
            kept, quoted, begun = [], False, False
        else:
            kept.append(one)
            begun = True
    if begun:
        yield joined(kept), quoted


def unit_environment(unit: Unit, section: str = "Service") -> dict[str, Word]:
    """Return the variables that `Environment=` sets."""
    found: dict[str, Word] = {}
    for setting in unit.all("Environment", section):
        for raw, _ in _split(setting.value):
            name, equals, value = raw.chars.partition("=")
            start = raw.at[0] if raw.at else setting.at
            if equals and re.fullmatch(r"[A-Za-z_]\w*", name):
                found[name] = word_of(raw.cut(len(raw.chars) - len(value), len(raw.chars)), start)
    return found
