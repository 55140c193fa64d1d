"""Findings as they are printed: grouped by file, each with its line of source, without secrets, and a mark under it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from llamaherd.diagnostics.findings import GRAVITY, Finding
from llamaherd.text.terminal import plain

Role = Literal["error", "warning", "note", "help", "file", "gutter"]
Paint = Callable[[str, Role], str]
"""Returns a text in the colour of its role."""
Lines = Callable[[Path], Sequence[str] | None]
"""Returns the lines of a file; None if it cannot be read."""

MOST_COLUMNS = 100
"""The width of a line of source if the output has none, as in a pipe."""
_FEWEST = 20
_TAB = "    "
_CUT = "…"


@dataclass(frozen=True)
class Excerpt:
    """A line of source as it is shown, and the marks below it."""

    text: str
    marks: str


def excerpt(lines: Sequence[str], number: int, column: int, width: int) -> Excerpt | None:
    """Return a line with marks under the word at a column, cut to a width around it; None if there is no such place.

    Tabs are four spaces, wide characters take two columns, and a secret is shown as `***`.
    """
    if not 0 < number <= len(lines) or not 0 < column <= len(lines[number - 1]) + 1:
        return None
    line = lines[number - 1]
    hidden = secret_columns(lines, number - 1)
    cells = [_cell(char, index, hidden) for index, char in enumerate(line.rstrip())]
    start = min(column - 1, len(cells))
    end = start + max(underlined(line, start), 1)
    first, last = _window([_width(cell) for cell in cells], start, min(end, len(cells)), width)
    before = _CUT if first else ""
    shown = before + "".join(cells[first:last]) + (_CUT if last < len(cells) else "")
    marked = sum(_width(cell) for cell in cells[start : min(end, last)])
    blank = len(before) + sum(_width(cell) for cell in cells[first:start])
    return Excerpt(shown, " " * blank + "^" * max(marked, 1))


def _cell(char: str, index: int, hidden: frozenset[int]) -> str:
    """Return what is shown for a character of a line."""
    if index in hidden:
        return "*" if sum(other in hidden for other in range(index - 3, index)) < 3 else ""
    if char == "\t":
        return _TAB
    return char if char.isprintable() else "\ufffd"


def _window(widths: Sequence[int], start: int, end: int, most: int) -> tuple[int, int]:
    """Return the part of a line that fits into a width: as much as possible of the marked word and of what precedes."""
    if sum(widths) <= most:
        return 0, len(widths)
    room = max(most, _FEWEST) - 2 * len(_CUT)
    last = start
    while last < end and sum(widths[start : last + 1]) <= room:
        last += 1
    first, turn = start, True
    while (first > 0 or last < len(widths)) and sum(widths[first:last]) < room:
        turn = not turn if first > 0 and last < len(widths) else first > 0
        step = (first - 1, last) if turn else (first, last + 1)
        if sum(widths[slice(*step)]) > room:
            break
        first, last = step
    return first, last


def _width(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # late: most lines are ASCII

    return cell_len(text)


_PAIRS = {"{": "}", "[": "]", '"': '"', "'": "'", "`": "`"}


def underlined(line: str, start: int) -> int:
    """Return the number of characters of the word at an index: a text in quotes or brackets, a key, a value."""
    rest = line[start:].rstrip()
    if (closing := _PAIRS.get(rest[:1])) and (inside := _enclosed(rest, closing)):
        return inside
    if not re.match(r"\w|[-.~/$<]\S|[^\x00-\x7f]", rest):
        return 1
    flow = line[:start].count("{") + line[:start].count("[") > line[:start].count("}") + line[:start].count("]")
    shell = not re.match(r"[^#]*?[\w\"']:(?:\s|$)", line)
    end = r"\s|;|&&|\|" if shell else r":(?=\s|$)|\s#|(?<=\s)\S+:\s" + (r"|[,\]}]" if flow else "")
    found = re.search(end, rest[1:])
    return len(rest[: found.start() + 1].rstrip() if found else rest)


def _enclosed(rest: str, closing: str) -> int:
    """Return the length of a text up to the character that closes it; 0 if it is not closed on this line."""
    depth = 0
    for index, char in enumerate(rest):
        depth += char == rest[0] and (index == 0 or closing != rest[0])
        depth -= char == closing and index > 0
        if depth == 0:
            return index + 1
    return 0


def rendered(
    findings: Sequence[Finding], lines: Lines, paint: Paint, width: int | None, *, fixing: bool = False
) -> Iterator[str]:
    """Yield the lines of findings, grouped by file. `fixing` marks those that `herd check --fix` fixes.

    Sentences are wrapped at `width`; None leaves them whole.
    """
    files: dict[Path, list[Finding]] = {}
    for finding in findings:
        files.setdefault(finding.place.file, []).append(finding)
    gap: tuple[str, ...] = ()
    for file, found in files.items():
        if len(files) > 1:
            yield from (*gap, paint(plain(str(file)), "file") + f": {counted_severities(found)}")
            gap = ("",)
        source = lines(file)
        for finding in found:
            yield from (*gap, *_finding_lines(finding, source, paint, width, fixing=fixing))
            gap = ("",)


def _finding_lines(
    finding: Finding, lines: Sequence[str] | None, paint: Paint, width: int | None, *, fixing: bool
) -> Iterator[str]:
    place, message, help_ = (plain(str(text)) for text in (finding.place, finding.message, finding.help))
    severity = finding.severity
    head: list[_Word] = [(f"{place}:", None), (severity, severity), (f"{finding.code}:", None)]
    yield from wrapped([*head, *_words(message)], width, 4, paint)
    gutter = f"  {finding.place.line} | "
    most = (width or MOST_COLUMNS) - len(gutter)
    if lines and (shown := excerpt(lines, finding.place.line, finding.place.column, most)):
        marks = shown.marks.lstrip()
        yield paint(gutter, "gutter") + shown.text
        yield (
            paint(f"{' ' * (len(gutter) - 2)}| ", "gutter")
            + " " * (len(shown.marks) - len(marks))
            + paint(marks, severity)
        )
    tail: list[_Word] = [("[--fix]", "help")] if fixing and finding.edits else []
    yield from wrapped([("  help:", "help"), *_words(help_), *tail], width, 8, paint)


_Word = tuple[str, Role | None]


def _words(text: str) -> list[_Word]:
    return [(word, None) for word in text.split(" ")]


def _unpainted(text: str, _role: Role) -> str:
    return text


def wrapped(words: Iterable[_Word], width: int | None, indent: int, paint: Paint = _unpainted) -> Iterator[str]:
    """Yield words as lines of at most a width, indented from the second line on. A longer word has its own line."""
    line, taken = "", 0
    for word, role in words:
        size = _width(word)
        if width and line and taken + 1 + size > width:
            yield line
            line, taken = " " * indent, indent
        elif line:
            line, taken = f"{line} ", taken + 1
        line += paint(word, role) if role else word
        taken += size
    yield line


def counted_severities(findings: Iterable[Finding]) -> str:
    """Return `2 errors, 1 warning`."""
    counts = Counter(finding.severity for finding in findings)
    parts = (f"{counts[each]:,} {each}{'s' if counts[each] != 1 else ''}" for each in GRAVITY if counts[each])
    return ", ".join(parts)


_NAME = r"[\w.-]*?(?:api[_-]?key|token|passw(?:or)?d|passphrase|secret|credential|authorization)[\w-]*"
_NAMED = re.compile(
    # What separates name and value: `: `, `=`, a blank, a comma of a list; in YAML also the next item of a list.
    rf"""(?<![\w-])(?P<name>{_NAME})["'`]?[ \t]*(?:[:=,][ \t]*|(?<=[ \t])|\\?\n[ \t]*(?:-[ \t]+)?)(?:bearer[ \t]+)?"""
    r"""(?P<value>"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|[^\s,\]}]+)""",
    re.IGNORECASE,
)
_SHAPED = re.compile(r"\b(?:sk|hf|ghp|gho|github_pat|glpat|xox[abp]|nvapi|AKIA)[-_]?[A-Za-z0-9_-]{6,}")
"""Keys of providers, by their beginnings."""
_IN_URL = re.compile(r"(?<=://)[^\s/@'\"]+(?=@)")
_BEHIND_NAME = re.compile(r"(?:file|path|tokens?|keys|tokenizer\w*)$", re.IGNORECASE)
"""Ends of names that hold no secret: `--api-key-file`, `max_tokens`."""
_HARMLESS = re.compile(r"""["']?(?:\{|\[|\$|\.?/|~/|true\b|false\b|null\b|\d{1,6}\b|-)""")
"""Beginnings of values that are no secret: `{file: …}`, a variable, a path, a number, the next flag."""
_AROUND = 2
"""Lines above the shown one that may end in the name of its value."""


def secret_columns(lines: Sequence[str], number: int) -> frozenset[int]:
    """Return the columns, from 0, of a line that may be a secret. `number` counts the lines from 0."""
    first = max(number - _AROUND, 0)
    above = sum(len(line) + 1 for line in lines[first:number])
    text = "\n".join(lines[first : number + 1])
    return frozenset(at - above for start, end in _secrets(text) for at in range(start, end) if at >= above)


def _secrets(text: str) -> Iterator[tuple[int, int]]:
    for found in _NAMED.finditer(text):
        bare = found["name"].lower()
        if _HARMLESS.match(found["value"]) or (_BEHIND_NAME.search(bare) and not bare.endswith(("_token", "-token"))):
            continue
        yield found.span("value")
    for pattern in (_SHAPED, _IN_URL):
        for match in pattern.finditer(text):
            yield match.span()
