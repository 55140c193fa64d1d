"""`.wslconfig` and wsl.conf read as WSL itself reads them, character by character, so that every byte has its place.

Source: microsoft/WSL, src/shared/configfile/configfile.cpp (ParseConfigFile), whose names for states are kept in the
comments. It is no INI: comments begin with `#` alone, names are letters and digits, a backslash at a line's end goes on
with the next line, and a line that it cannot read changes which section the following keys are in.
"""

from __future__ import annotations

import string
from dataclasses import dataclass

_LETTERS = frozenset(string.ascii_letters)
_NAME = frozenset(string.ascii_letters + string.digits)
_SPACE = frozenset(" \t")
_ESCAPED = {"\\": "\\", '"': '"', "b": "\b", "n": "\n", "t": "\t"}
_END = ""
"""What stands behind the last character."""


@dataclass(frozen=True)
class WslSetting:
    """One `key = value`: its section as WSL takes it, its value without quotes, where the value stands, its line."""

    section: str
    key: str
    value: str
    start: int
    end: int
    after: int
    """Where the next line begins."""
    line: int
    block: int
    """Which `[section]` it stands under, counted from 1."""

    @property
    def name(self) -> str:
        """`section.key` as WSL compares it, without regard to case."""
        return f"{self.section}.{self.key}".lower()


@dataclass(frozen=True)
class SectionStart:
    """One `[section]` that WSL can read, where the next line begins, and how many came up to it."""

    section: str
    after: int
    block: int


@dataclass(frozen=True)
class Contents:
    """What stands in a file: settings, headers, and the numbers of lines that WSL cannot read.

    `open_end`: the text ends within an escape, so that what is written behind it would be taken for part of it.
    """

    settings: tuple[WslSetting, ...]
    headers: tuple[SectionStart, ...]
    invalid: tuple[int, ...]
    open_end: bool


def read_settings(text: str, *, stops: bool = False) -> Contents:
    """What WSL makes of a text without its byte order mark.

    `stops`: nothing is read behind the first line that cannot be, which is how /etc/wsl.conf is read, and not
    `.wslconfig` (CFG_SKIP_INVALID_LINES).
    """
    return _Reader(text).read(stops=stops)


class _Reader:
    """The state of one reading: where it is, and the buffer in which WSL keeps the section and the key."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.buffer = ""
        self.section_length = 0
        self.block = 0
        self.settings: list[WslSetting] = []
        self.headers: list[SectionStart] = []
        self.invalid: list[int] = []
        self.open_end = False

    @property
    def here(self) -> str:
        return self.text[self.at : self.at + 1]

    def read(self, *, stops: bool) -> Contents:
        while self.here != _END:
            begun = self.at
            if self.here in _SPACE or self.here in "\r\n":
                self.at += 1
            elif self.here == "#":
                self.at = self._next_line()
            elif not (self._header() if self.here == "[" else self.here in _LETTERS and self._setting()):
                self.invalid.append(self.text.count("\n", 0, begun) + 1)
                if stops:
                    break
                self.at = self._next_line()
        return Contents(tuple(self.settings), tuple(self.headers), tuple(self.invalid), self.open_end)

    def _next_line(self) -> int:
        """Where the line behind this one begins: InvalidLine and comments go on to a line feed."""
        end = self.text.find("\n", self.at)
        return len(self.text) if end < 0 else end + 1

    def _name(self) -> str:
        begun = self.at
        while self.here in _NAME and self.here != _END:
            self.at += 1
        return self.text[begun : self.at]

    def _spaces(self) -> None:
        while self.here in _SPACE:
            self.at += 1

    def _header(self) -> bool:
        """ParseSection. A header that is broken has spoilt the buffer by then: its letters count as the section."""
        self.block += 1
        self.at += 1
        if self.here not in _LETTERS:
            return False
        self.buffer = self._name()
        if self.here != "]":
            return False
        self.at += 1
        self._spaces()
        if self.here not in {_END, "\n", "\r", "#"}:
            return False
        self.section_length = len(self.buffer)
        self.headers.append(SectionStart(self.buffer, self._after(), self.block))
        return True

    def _setting(self) -> bool:
        """ParseKeyValue."""
        line = self.text.count("\n", 0, self.at) + 1
        # `key.resize(sectionLength)`: cut, or filled up with zeros.
        section = self.buffer[: self.section_length].ljust(self.section_length, "\0")
        key = self._name()
        self.buffer = f"{section}.{key}" if section else key
        self._spaces()
        if self.here != "=":
            return False
        self.at += 1
        self._spaces()
        start = end = self.at
        value, trimmed, quoted = "", 0, False
        while self.here not in {_END, "\n", "\r"}:
            character = self.here
            if character == "#" and not quoted:
                break
            self.at += 1
            if character == '"':
                quoted = not quoted
            elif character == "\\":
                escaped = self._escape()
                if escaped is None:
                    return False
                value += escaped
            else:
                value += character
            if character not in _SPACE:
                trimmed, end = len(value), self.at
        if quoted:
            return False
        self.settings.append(WslSetting(section, key, value[:trimmed], start, end, self._after(), line, self.block))
        return True

    def _escape(self) -> str | None:
        """What a backslash and what follows it mean; None for what WSL does not know."""
        # On Windows, the C library has made one line feed of both by then.
        step = 2 if self.text.startswith("\r\n", self.at) else 1
        meant = "" if self.text[self.at + step - 1 : self.at + step] == "\n" else _ESCAPED.get(self.here)
        if meant is not None:
            self.at += step
        elif self.here == _END:
            self.open_end = True
        return meant

    def _after(self) -> int:
        """Where the next line begins, from the end of what is read of this one."""
        if self.here == "#":
            return self._next_line()
        return self.at + (2 if self.text.startswith("\r\n", self.at) else len(self.here))
