"""Our keys into the user's `.wslconfig`: all else comes out byte for byte as it went in.

Of a key that stands there twice, the first counts to WSL, which warns of the others and skips them (microsoft/WSL,
src/shared/configfile/configfile.cpp, ConfigKey::Parse). So the first is changed. What is no longer wanted is left
alone: whether we wrote it or the user did is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from llamaherd.diagnostics.findings import UserError
from llamaherd.wsl.reading import Contents, WslSetting, read_settings
from llamaherd.wsl.wslconfig import WSL_KEYS, check_setting

WantedSettings = Mapping[str, Mapping[str, str]]
"""Values by section and key, as they stand in the file: a backslash is written twice."""

_BOM = "\ufeff"
_KINDS = {f"{section}.{key}".lower(): kind for section, keys in WSL_KEYS.items() for key, kind in keys.items()}
_ALIASES = {
    f"experimental.{key}".lower(): f"wsl2.{key}".lower() for key in WSL_KEYS["experimental"] if key in WSL_KEYS["wsl2"]
}
"""Older homes of keys of [wsl2]: either way it is one key to WSL (WslCoreConfig.cpp), and the first counts."""


class MergeError(UserError):
    """A file that is better left alone: why, and what its owner can do."""


@dataclass(frozen=True)
class Merged:
    """The new text, and what stands in it that does nothing and was kept: sentences that name lines of it."""

    text: bytes
    notes: tuple[str, ...]


def merge_wslconfig(before: bytes | None, wanted: WantedSettings) -> Merged:
    """A `.wslconfig` in which WSL reads what is wanted; `before` is None where there is none yet.

    Raises MergeError where the text cannot be read, or cannot hold what is wanted.
    """
    bom, text = decoded(before or b"", ".wslconfig")
    after = with_settings(text, wanted, "\r\n", canonical, _same)
    contents = read_settings(after)
    effective = counting(contents, canonical)
    ours = {canonical(f"{section}.{key}") for section, keys in wanted.items() for key in keys}
    for section, keys in wanted.items():
        for key, value in keys.items():
            found = effective.get(canonical(f"{section}.{key}"))
            if found is None or not _same(found, value):
                raise MergeError(
                    f"`{key}={value}` cannot be written into .wslconfig so that WSL would read it",
                    f"correct `{key}` in the inventory: quotes come in pairs, and a backslash is written twice",
                )
    if _others(contents, ours) != _others(read_settings(text), ours):
        raise MergeError(
            "what is wanted cannot be added to .wslconfig without a change to what its other lines mean",
            "correct the lines that `herd check .wslconfig` names, and run again",
        )
    return Merged((bom + after).encode(), tuple(_notes(after, contents, ours)))


def canonical(name: str) -> str:
    """A key's one name, of all that WSL takes for it."""
    return _ALIASES.get(name.lower(), name.lower())


def decoded(before: bytes, name: str) -> tuple[str, str]:
    """A file's byte order mark, if it has one, and its text. Raises MergeError where WSL could not read it either."""
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


def counting(contents: Contents, name: Callable[[str], str]) -> dict[str, WslSetting]:
    """Of each key, the setting that counts."""
    first: dict[str, WslSetting] = {}
    for setting in contents.settings:
        first.setdefault(name(setting.name), setting)
    return first


def with_settings(
    text: str,
    wanted: WantedSettings,
    newline: str,
    name: Callable[[str], str],
    same: Callable[[WslSetting, str], bool],
    *,
    stops: bool = False,
) -> str:
    """The text with these settings changed in place, or added to their section, which is made where it is missing.

    `newline` is for a text that has none yet; for `stops` see `read_settings`.
    """
    newline = newline if "\n" not in text else "\r\n" if text[: text.index("\n") + 1].endswith("\r\n") else "\n"
    effective = counting(read_settings(text, stops=stops), name)
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
    """Lines that a backslash has made a part of a value, and that look like settings of their own.

    WSL never read them as such. They are kept as comments: whoever wrote them will want to know.
    """
    return [line.strip() for line in value.splitlines()[1:] if "=" in line]


def _added(text: str, contents: Contents, section: str, lines: list[str], newline: str) -> str:
    """The text with these lines behind the last setting of their section, or with the section behind all else."""
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
    """Whether what WSL reads there is what it would read of this value."""
    alone = read_settings(f"[{found.section}]\n{found.key}={value}\n")
    if alone.invalid or len(alone.settings) != 1:
        return False
    meant = alone.settings[0].value
    if _KINDS.get(found.name) in {"path", "text", None}:
        return meant == found.value
    return meant.lower() == found.value.lower()


def _others(contents: Contents, ours: set[str]) -> list[tuple[str, str]]:
    return [(each.name, each.value) for each in contents.settings if canonical(each.name) not in ours]


def _notes(text: str, contents: Contents, ours: set[str]) -> Iterator[str]:
    """What does nothing, line by line."""
    effective = counting(contents, canonical)
    notes = [(line, "WSL cannot read it, and skips it") for line in contents.invalid]
    for each in contents.settings:
        first = effective[canonical(each.name)]
        if first is not each:
            notes.append((each.line, f"`{each.key}` again; the one in line {first.line} counts"))
        elif not each.section.isalnum():
            notes.append(
                (each.line, f"`{each.key}` stands under no section that WSL can read, so that it does nothing")
            )
        elif canonical(each.name) not in ours:
            problem = check_setting(each.section, each.key, text[each.start : each.end].strip('"'))
            if problem:
                notes.append((each.line, problem.message))
    return (f"line {line} of .wslconfig: {said}" for line, said in sorted(notes))
