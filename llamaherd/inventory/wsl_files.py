"""Read `.wslconfig` and wsl.conf as WSL reads them, and merge settings into the user's files."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.wslconfig import WSL_KEYS, check_setting

_LETTERS = frozenset(string.ascii_letters)
_NAME = frozenset(string.ascii_letters + string.digits)
_SPACE = frozenset(" \t")
_ESCAPED = {"\\": "\\", '"': '"', "b": "\b", "n": "\n", "t": "\t"}
_END = ""
"""The text after the last character."""


@dataclass(frozen=True)
class WslSetting:
    """One `key = value`: its section as WSL reads it, its value without quotes, the position of the value, its line."""

    section: str
    key: str
    value: str
    start: int
    end: int
    after: int
    """The position of the next line."""
    line: int
    block: int
    """The number of its `[section]`, from 1."""

    @property
    def name(self) -> str:
        """Return `section.key` as WSL compares it, in lower case."""
        return f"{self.section}.{self.key}".lower()


@dataclass(frozen=True)
class SectionStart:
    """One `[section]` that WSL can read, the position of the next line, and the number of sections so far."""

    section: str
    after: int
    block: int


@dataclass(frozen=True)
class Contents:
    """The content of a file: settings, headers, and the numbers of lines that WSL cannot read.

    `open_end`: the text ends within an escape, which would continue in appended text.
    """

    settings: tuple[WslSetting, ...]
    headers: tuple[SectionStart, ...]
    invalid: tuple[int, ...]
    open_end: bool


def read_settings(text: str, *, stops: bool = False) -> Contents:
    """Parse a text without its byte order mark as WSL does.

    `stops`: parsing ends at the first invalid line. WSL reads /etc/wsl.conf so, but not `.wslconfig`
    (CFG_SKIP_INVALID_LINES).
    """
    return _Reader(text).read(stops=stops)


class _Reader:
    """The state of a parse: the position, and WSL's buffer of the section and the key."""

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
        """Return the position of the next line: InvalidLine and comments end at a line feed."""
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
        """Parse a header as ParseSection does. A broken one has filled the buffer: its letters become the section."""
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
        """Parse a setting as ParseKeyValue does."""
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
        """Return the meaning of an escape; None if WSL does not support it."""
        # On Windows, the C library has made one line feed of both by then.
        step = 2 if self.text.startswith("\r\n", self.at) else 1
        meant = "" if self.text[self.at + step - 1 : self.at + step] == "\n" else _ESCAPED.get(self.here)
        if meant is not None:
            self.at += step
        elif self.here == _END:
            self.open_end = True
        return meant

    def _after(self) -> int:
        """Return the position of the next line, from the end of the parsed part of this one."""
        if self.here == "#":
            return self._next_line()
        return self.at + (2 if self.text.startswith("\r\n", self.at) else len(self.here))


WantedSettings = Mapping[str, Mapping[str, str]]
"""Values by section and key, as in the file: a backslash is written twice."""

_BOM = "\ufeff"
_KINDS = {f"{section}.{key}".lower(): kind for section, keys in WSL_KEYS.items() for key, kind in keys.items()}
_ALIASES = {
    f"experimental.{key}".lower(): f"wsl2.{key}".lower() for key in WSL_KEYS["experimental"] if key in WSL_KEYS["wsl2"]
}
"""Older sections of keys of [wsl2]: WSL reads both as one key (WslCoreConfig.cpp), and uses the first."""


class MergeError(UserError):
    """A file that must not be changed: why, and a suggestion."""


@dataclass(frozen=True)
class Merged:
    """The new text, and messages about lines that have no effect and were kept."""

    text: bytes
    notes: tuple[str, ...]


def merge_wslconfig(before: bytes | None, wanted: WantedSettings) -> Merged:
    """Return a `.wslconfig` with settings; `before` is None if there is no file yet.

    Raise MergeError if the text cannot be read, or cannot contain the settings.
    """
    bom, text = decode_file(before or b"", ".wslconfig")
    after = set_settings(text, wanted, "\r\n", canonical_name, _same)
    contents = read_settings(after)
    effective = effective_settings(contents, canonical_name)
    ours = {canonical_name(f"{section}.{key}") for section, keys in wanted.items() for key in keys}
    for section, keys in wanted.items():
        for key, value in keys.items():
            found = effective.get(canonical_name(f"{section}.{key}"))
            if found is None or not _same(found, value):
                raise MergeError(
                    f"`{key}={value}` cannot be written into .wslconfig so that WSL would read it",
                    f"correct `{key}` in the inventory: quotes come in pairs, and a backslash is written twice",
                )
    if _others(contents, ours) != _others(read_settings(text), ours):
        raise MergeError(
            "the declared settings cannot be added to .wslconfig without a change to the meaning of its other lines",
            "correct the lines that `herd check .wslconfig` names, and run again",
        )
    return Merged((bom + after).encode(), tuple(_notes(after, contents, ours)))


def canonical_name(name: str) -> str:
    """Return the main name of a key with several names."""
    return _ALIASES.get(name.lower(), name.lower())


def decode_file(before: bytes, name: str) -> tuple[str, str]:
    """Return a file's byte order mark, if any, and its text. Raise MergeError if WSL cannot read it either."""
    if before.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise MergeError(
            f"{name} is written in UTF-16, which not every version of WSL reads",
            f"in PowerShell: `(Get-Content $HOME\\{name}) | Set-Content -Encoding utf8 $HOME\\{name}`; then run again",
        )
    try:
        text = before.decode()
    except UnicodeDecodeError as error:
        line = before.count(b"\n", 0, error.start) + 1
        raise MergeError(f"line {line} of {name} is not UTF-8", "save the file as UTF-8, and run again") from error
    if "\x1a" in text:
        line = text.count("\n", 0, text.index("\x1a")) + 1
        raise MergeError(f"line {line} of {name} has a Ctrl-Z, behind which Windows reads nothing", "take it out")
    bom = _BOM if text.startswith(_BOM) else ""
    return bom, text.removeprefix(_BOM)


def effective_settings(contents: Contents, name: Callable[[str], str]) -> dict[str, WslSetting]:
    """Return the effective setting of each key."""
    first: dict[str, WslSetting] = {}
    for setting in contents.settings:
        first.setdefault(name(setting.name), setting)
    return first


def set_settings(
    text: str,
    wanted: WantedSettings,
    newline: str,
    name: Callable[[str], str],
    same: Callable[[WslSetting, str], bool],
    *,
    stops: bool = False,
) -> str:
    """Return the text with settings changed in place, or added to their section, which is created if missing.

    `newline` is used for a text without one; for `stops` see `read_settings`.
    """
    newline = newline if "\n" not in text else "\r\n" if text[: text.index("\n") + 1].endswith("\r\n") else "\n"
    effective = effective_settings(read_settings(text, stops=stops), name)
    edits: list[tuple[WslSetting, str]] = []
    missing: dict[str, list[str]] = {}
    for section, keys in wanted.items():
        for key, value in keys.items():
            found = effective.get(name(f"{section}.{key}"))
            if found is None:
                missing.setdefault(section, []).append(f"{key}={value}")
            elif not same(found, value):
                edits.append((found, value))
    for found, value in sorted(edits, key=lambda edit: edit[0].start, reverse=True):
        space = " " if text.startswith("#", found.end) else ""
        kept = "".join(f"{newline}# {line}" for line in _continued(text[found.start : found.end]))
        text = f"{text[: found.start]}{value}{kept}{space}{text[found.end :]}"
    for section, lines in missing.items():
        text = _added(text, read_settings(text, stops=stops), section, lines, newline)
    return text


def _continued(value: str) -> list[str]:
    """Return lines that a backslash made part of a value, and that have the form of settings.

    WSL never read them as such. They are kept as comments for their author.
    """
    return [line.strip() for line in value.splitlines()[1:] if "=" in line]


def _added(text: str, contents: Contents, section: str, lines: list[str], newline: str) -> str:
    """Return the text with lines after the last setting of their section, or with the section at the end."""
    header = next((each for each in contents.headers if each.section.lower() == section.lower()), None)
    if header:
        at = max([header.after, *(each.after for each in contents.settings if each.block == header.block)])
    else:
        # Behind a text that ends in the middle of an escape, ours would be the rest of that.
        ends = [each.after for each in contents.headers] + [each.after for each in contents.settings]
        at = max(ends, default=0) if contents.open_end else len(text)
        blank = [] if not at or text[:at].endswith(("\n\n", "\n\r\n")) else [""]
        lines = [*blank, f"[{section}]", *lines]
    begun = not at or text[at - 1] == "\n"
    # A last line without an end stays the last without one.
    inserted = newline.join([*([] if begun else [""]), *lines, *([""] if begun or at < len(text) else [])])
    return text[:at] + inserted + text[at:]


def _same(found: WslSetting, value: str) -> bool:
    """Return whether WSL reads a setting as this value."""
    alone = read_settings(f"[{found.section}]\n{found.key}={value}\n")
    if alone.invalid or len(alone.settings) != 1:
        return False
    meant = alone.settings[0].value
    if _KINDS.get(found.name) in {"path", "text", None}:
        return meant == found.value
    return meant.lower() == found.value.lower()


def _others(contents: Contents, ours: set[str]) -> list[tuple[str, str]]:
    return [(each.name, each.value) for each in contents.settings if canonical_name(each.name) not in ours]


def _notes(text: str, contents: Contents, ours: set[str]) -> Iterator[str]:
    """Return the messages about lines without effect."""
    effective = effective_settings(contents, canonical_name)
    notes = [(line, "WSL cannot read it, and skips it") for line in contents.invalid]
    for each in contents.settings:
        first = effective[canonical_name(each.name)]
        if first is not each:
            notes.append((each.line, f"`{each.key}` again; the one in line {first.line} counts"))
        elif not each.section.isalnum():
            notes.append(
                (each.line, f"`{each.key}` stands under no section that WSL can read, so that it does nothing")
            )
        elif canonical_name(each.name) not in ours:
            problem = check_setting(each.section, each.key, text[each.start : each.end].strip('"'))
            if problem:
                notes.append((each.line, problem.message))
    return (f"line {line} of .wslconfig: {content}" for line, content in sorted(notes))


WSL_CONF = "/etc/wsl.conf"
WANTED: WantedSettings = {"boot": {"systemd": "true"}}


def merge_wslconf(before: bytes | None) -> bytes:
    """Return a wsl.conf with settings; `before` is None if there is no file yet.

    Inside Linux, WSL stops at the first invalid line (microsoft/WSL, src/linux/init/WslDistributionConfig.cpp: no
    CFG_SKIP_INVALID_LINES). Raise MergeError if such a line precedes the settings.
    """
    bom, text = decode_file(before or b"", WSL_CONF)
    contents = read_settings(text, stops=True)
    found = effective_settings(contents, str.lower).get("boot.systemd")
    if found and not bom and _is_same_truth(found, "true"):
        return before or b""
    if bom or contents.invalid:
        line = 1 if bom else contents.invalid[0]
        raise MergeError(
            f"line {line} of {WSL_CONF} cannot be read by WSL, which reads nothing behind it",
            "correct that line: settings are `key = value`, comments begin with `#`, and there is no byte order mark",
        )
    return set_settings(text, WANTED, "\n", str.lower, _is_same_truth, stops=True).encode()


def starts_systemd(before: bytes | None) -> bool:
    """Return whether systemd is off because wsl.conf does not enable it yet, which the WSL role changes."""
    try:
        return merge_wslconf(before) != (before or b"")
    except MergeError:
        return False


def _is_same_truth(found: WslSetting, value: str) -> bool:
    """Return truth values in one form: `1` is `true`."""
    return found.value.lower() in {value, str(int(value == "true"))}
