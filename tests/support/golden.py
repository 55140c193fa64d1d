"""Golden files: texts that must not change by a byte. A run of lines that several texts have is stored once.

A golden file holds the lines of its text, and these shorthands:

    <<< systemd_cpu.service: a line     all lines of `systemd_cpu.service` from the first line like this
    >>> a line                          to the next line like this, and the closing lines after it, such as `}`
    base64|a line                       a line of a file that the text carries in base64

`<<<` names a text that stands earlier in the same mapping, or a file of `templates/` without variables.
"""

from __future__ import annotations

import base64
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest

from tests.support.rigs import ROOT

FEWEST = 4
"""Lines that `<<<` and `>>>` stand for, at least."""
INSIDE = "base64|"
REFERENCE = re.compile(r"((?:base64\|)*)<<< ([^:]+): (.*)")
NO_NEWLINE = "\\ No newline at end of file"
CLOSING = re.compile(r"\W*|\s*(fi|esac|done|END)")
HERE_DOCUMENT = re.compile(r"(?<=<<'END')(.*\n)([A-Za-z0-9+/=\n]+)(?=\nEND\n)")

Lines = Sequence[str]
Sources = Mapping[str, Lines]


def assert_golden(folder: Path, name: str, texts: Mapping[str, str]) -> None:
    """Compare a text with its golden file. REWRITE_GOLDEN writes a file that differs, and no other one."""
    file, lines = folder / name, readable(texts[name])
    earlier = takewhile(lambda other: other != name, texts)
    sources = constant_templates() | {other: readable(texts[other]) for other in earlier}
    if os.environ.get("REWRITE_GOLDEN") and not (file.exists() and _stored(file, sources) == lines):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes("".join(f"{line}\n" for line in shorten(lines, sources)).encode())
    stored = _stored(file, sources)
    if stored != lines:
        changes = unified_diff(stored, lines, f"golden/{name}", "rendered now", lineterm="")
        pytest.fail("\n".join(changes), pytrace=False)


def _stored(file: Path, sources: Sources) -> list[str]:
    # As bytes: lines for Windows end in CR and LF.
    return list(expand(file.read_bytes().decode().split("\n")[:-1], sources))


@cache
def constant_templates() -> dict[str, list[str]]:
    """Return the lines of each template that hosts receive as it is."""
    files = [file for file in sorted((ROOT / "templates").rglob("[!.]*.*")) if file.suffix not in (".j2", ".pyc")]
    texts = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}
    return {name: readable(text) for name, text in texts.items() if "{%" not in text and "{{" not in text}


@cache
def readable(text: str) -> list[str]:
    """Return the lines of a text, with here-documents in base64 decoded. Texts that differ have lines that differ."""
    *lines, rest = HERE_DOCUMENT.sub(_decoded, text).split("\n")
    return [*lines, rest, NO_NEWLINE] if rest else lines


def _decoded(found: re.Match[str]) -> str:
    """Return a here-document with its file decoded, or as it is if encoding the file again gives other lines."""
    before, encoded = found.groups()
    try:
        content = base64.b64decode(encoded)
        lines = readable(content.decode())
    except ValueError:
        return found[0]
    exact = base64.encodebytes(content).decode().rstrip("\n") == encoded
    return before + "\n".join(INSIDE + line for line in lines) if exact else found[0]


def expand(stored: Lines, sources: Sources) -> Iterator[str]:
    """Yield the lines that a golden file stands for. A reference to lines that are not there stays as it is."""
    lines = iter(stored)
    for line in lines:
        if not (found := REFERENCE.fullmatch(line)):
            yield line
            continue
        inside, name, first = found.groups()
        last = next(lines, "")
        try:
            start = sources[name].index(first)
            end = _closed(sources[name], sources[name].index(last.removeprefix(f"{inside}>>> "), start + 1))
        except (KeyError, ValueError):
            yield from (line, last)
        else:
            yield from (inside + each for each in sources[name][start:end])


def shorten(lines: Lines, sources: Sources) -> Iterator[str]:
    """Yield the lines of a golden file: wherever a source has the same lines, a reference to the longest such run."""
    places: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for name, source in sources.items():
        for line in dict.fromkeys(source):
            places[line].append((name, source.index(line)))
    at = 0
    while at < len(lines):
        runs = [
            (*_common(lines[at:], inside, sources[name][start:]), f"{inside}<<< {name}: {line}", inside)
            for inside, line in _levels(lines[at])
            if not CLOSING.fullmatch(line)
            for name, start in places[line]
        ]
        length, last, first, inside = max(runs, key=lambda run: run[0], default=(0, 0, "", ""))
        if length < FEWEST:
            yield lines[at]
            at += 1
        else:
            yield from (first, f"{inside}>>> {lines[at + last].removeprefix(inside)}")
            at += length


def _levels(line: str) -> Iterator[tuple[str, str]]:
    """Yield a line as a line of the text, of a file inside it, of a file inside that file."""
    inside = ""
    yield inside, line
    while line.startswith(INSIDE):
        inside, line = inside + INSIDE, line.removeprefix(INSIDE)
        yield inside, line


def _common(lines: Lines, inside: str, source: Lines) -> tuple[int, int]:
    """Return how many lines are the same, and the number of the line that `>>>` can name as the last one."""
    pairs = enumerate(zip(lines, source, strict=False))
    same = next((at for at, (line, other) in pairs if line != inside + other), min(len(lines), len(source)))
    firsts = {line: at for at, line in reversed([*enumerate(source[1:same], 1)]) if not CLOSING.fullmatch(line)}
    ends = [(end, at) for at in firsts.values() if (end := _closed(source, at)) <= same]
    return max(ends, default=(0, 0))


def _closed(source: Lines, at: int) -> int:
    """Return where the closing lines after a line end."""
    return next((end for end in range(at + 1, len(source)) if not CLOSING.fullmatch(source[end])), len(source))
