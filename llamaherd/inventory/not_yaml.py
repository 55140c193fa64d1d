"""Why a text is no YAML, and what to write: YAML's own words name tokens that nobody has typed."""

from __future__ import annotations

import re
from typing import NamedTuple

import yaml

from llamaherd.text.quoting import comment


class Why(NamedTuple):
    """Where it goes wrong, from 1; one sentence; the way out."""

    line: int
    column: int
    message: str
    help: str


_MOST = 60
"""Signs of a line that are repeated."""
_INDENT = "indent with spaces, what stands in one mapping alike"


def why(text: str, error: yaml.YAMLError) -> Why:
    """What is wrong with a text that cannot be read."""
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or error)
    if mark is None:
        return Why(1, 1, f"this is not YAML: {comment(problem)}", "check indentation, colons and quotes here")
    begun = getattr(error, "context_mark", None) or mark
    lines = text.splitlines() or [""]
    at, start = (min(each.line, len(lines) - 1) for each in (mark, begun))
    found = (
        _merge(lines)
        or _character(lines[at], mark, problem)
        or _quote(lines, at, mark.index >= len(text.rstrip()))
        or _keyless(lines, problem, start)
        or _bracket(lines, problem, begun, at)
        or _mixed(lines, problem, at)
        or _value(lines, problem, at, mark.column)
        or _indented(lines, problem, at)
    )
    if found:
        return found
    if "another document" in problem:
        return Why(mark.line + 1, 1, "a second document begins here", "write one file per rig")
    return Why(mark.line + 1, mark.column + 1, f"this is not YAML: {comment(problem)}", _OTHERWISE)


_OTHERWISE = "check indentation, colons and quotes here"


def _merge(lines: list[str]) -> Why | None:
    """What git leaves in a file that two have changed."""
    marks = [n for n, line in enumerate(lines, start=1) if re.match(r"(<{7}|>{7})(\s|$)", line)]
    help_ = "keep what is right of the two sides, and take the lines with `<<<<<<<`, `=======` and `>>>>>>>` out"
    return Why(marks[0], 1, "a merge is not finished here", help_) if marks else None


def _character(line: str, mark: yaml.Mark, problem: str) -> Why | None:
    """A sign that no value begins with."""
    at = mark.line + 1, mark.column + 1
    if "\\t" in problem or "tab" in problem or line[: mark.column + 1].strip(" ") == "\t":
        return Why(*at, "a tab stands here, with which YAML does not indent", "write spaces in its place")
    alias = re.search(r"(?:^|[\s:\[{,-])([*&])", line)
    if "alphabetic or numeric" in problem and alias:
        column = alias.start(1)
        value = _word(line[column:])
        message = f"`{alias[1]}` at the beginning of a value means something else in YAML"
        return Why(at[0], column + 1, message, f'write it in quotes: `"{value}"`')
    if "cannot start any token" in problem or problem.startswith("found undefined alias"):
        value = _word(line[mark.column :])
        return Why(*at, f"no value in YAML begins with `{value[:1]}`", f'write it in quotes: `"{value}"`')
    if "special characters are not allowed" in problem:
        return Why(*at, "a character stands here that no text may hold", "take it out, or type the line anew")
    return None


def _word(rest: str) -> str:
    """The value that a piece of a line begins with."""
    match = re.match(r"[^,\]}#]*", rest)
    return _shown((match[0] if match else rest).strip()).replace('"', "'")


def _shown(text: str) -> str:
    plain = str(comment(text.strip()))
    return f"{plain[:_MOST]}…" if len(plain) > _MOST else plain


def _quote(lines: list[str], at: int, ended: bool) -> Why | None:
    """A quotation mark that is opened and not closed: what follows it, up to the next, is taken for text."""
    for number, line in enumerate(lines[: at + 1]):
        bare = re.sub(r"(^|\s)#.*", "", re.sub(r"\"(?:[^\"\\]|\\.)*\"|(?<!\w)'[^']*'", "", line))
        opened = re.search(r"(?<=[\s:\[{,])(\"|')", bare)
        if opened and (ended or number < at or bare.count(opened[1]) == 1):
            column = line.rindex(opened[1]) + 1
            return Why(
                number + 1, column, f"`{opened[1]}` is opened here and not closed", f"add `{opened[1]}` at the end"
            )
    return None


def _keyless(lines: list[str], problem: str, at: int) -> Why | None:
    """A line that is neither a key with its value nor an item."""
    if "could not find expected ':'" not in problem:
        return None
    line, number = lines[at], at + 1
    column, words = len(line) - len(line.lstrip()) + 1, line.strip()
    if "\u00a0" in line:
        message = "a space here is none that YAML knows (U+00A0), as pages and word processors have it"
        return Why(number, line.index("\u00a0") + 1, message, "type it anew")
    if match := re.match(r"-(\w.*)", words):
        return Why(number, column, "there is no space behind `-`", f"write `- {_shown(match[1])}`")
    if match := re.match(r"([\w.-]+):(\S.*)", words):
        return Why(number, column, f"there is no space behind `{match[1]}:`", f"write `{match[1]}: {_shown(match[2])}`")
    if match := re.match(r"([\w.-]+)\s*(?:=|\s)\s*(.+)", words):
        help_ = f"write `{match[1]}: {_shown(match[2])}`"
        return Why(number, column, f"there is no colon behind `{match[1]}`", help_)
    return Why(
        number, column, f"`{_shown(words)}` is neither a key nor an item", f"write `{_shown(words)}:` with a value"
    )


def _bracket(lines: list[str], problem: str, begun: yaml.Mark, at: int) -> Why | None:
    """A bracket that is not closed, or a comma that is missing in it."""
    expected = re.match(r"expected ',' or '(.)'", problem)
    if not expected:
        return None
    opening = {"}": "{", "]": "["}[expected[1]]
    line = lines[begun.line]
    if at > begun.line and line.count(opening) > line.count(expected[1]):
        message = f"`{opening}` is opened here and not closed"
        return Why(begun.line + 1, begun.column + 1, message, f"add `{expected[1]}` at the end of what is in it")
    message = f"a comma is missing in this `{opening}`, or a value has a colon in it"
    help_ = f"write `, ` between what stands in `{opening}{expected[1]}`, and a value with a colon in quotes"
    return Why(begun.line + 1, begun.column + 1, message, help_)


def _mixed(lines: list[str], problem: str, at: int) -> Why | None:
    """Items of a list among keys, or keys among items."""
    if "expected <block end>" not in problem:
        return None
    line = lines[at]
    depth = len(line) - len(line.lstrip())
    above = next((n for n in range(at - 1, -1, -1) if lines[n].strip() and _depth(lines[n]) == depth), at)
    items = [n for n in (above, at) if lines[n].lstrip().startswith("- ")]
    if len(items) == 1 and above != at:
        message = "some of what stands here begins with `- `, and some does not"
        return Why(items[0] + 1, depth + 1, message, "leave out each `- ` before a name with a colon: names need none")
    return None


def _value(lines: list[str], problem: str, at: int, column: int) -> Why | None:
    """A value with a colon in it, or a line that is indented more than those that it belongs to."""
    if "mapping values are not allowed" not in problem:
        return None
    line = lines[at]
    if re.match(r"\s*(?:- )?[\w.-]+\s*:\s.*?:", line) and column > line.index(":"):
        key, _, value = line.strip().removeprefix("- ").partition(":")
        help_ = f'write it in quotes: `{_shown(key)}: "{_shown(value)}"`'
        return Why(at + 1, column + 1, "a value has `: ` in it, which begins another key", help_)
    return _indented(lines, "expected <block end>", at)


def _indented(lines: list[str], problem: str, at: int) -> Why | None:
    """A line that stands further in or out than those around it."""
    if "expected <block end>" not in problem and "did not find expected" not in problem:
        return None
    depth = _depth(lines[at])
    before = next((each for each in reversed(lines[:at]) if each.strip()), "")
    above = _depth(before)
    if depth == above or not before:
        return None
    spaces = f"{depth} space{'s' if depth != 1 else ''}"
    message = f"this line is indented by {spaces}, and the one above it by {above}"
    return Why(at + 1, depth + 1, message, _INDENT)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
