"""Load and dump YAML by the rules of YAML 1.2, with size limits, and explain why a text is not YAML."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import yaml

from llamaherd.text.quoting import comment


class Loader(yaml.SafeLoader):
    """A loader by the rules of YAML 1.2, which editors use.

    `on`, `off`, `yes`, `no`, dates and texts with colons, such as `0000:01:00.0`, are texts: YAML 1.1 reads the last as
    a number to base 60. `010` is ten, and keys are texts.
    """

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, AttributeError, TypeError, LookupError) as error:
            # A text that contradicts its tag, such as `!!int x`.
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        self.flatten_mapping(node)  # what `<<` merges in
        return {str(key.value): self.construct_object(value, deep=deep) for key, value in node.value}


def _whole_number(loader: Loader, node: yaml.ScalarNode) -> int | str:
    """Return the number, or the text as it is written if it has more digits than any key takes."""
    text = str(loader.construct_scalar(node))
    if len(text) > MOST_DIGITS:
        return text
    return int(text, 16 if text.startswith("0x") else 10)


_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_UNMEANT = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp", _INT, _FLOAT)
Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _UNMEANT]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
Loader.add_implicit_resolver(_INT, re.compile(r"^(?:[-+]?[0-9]+|0x[0-9a-fA-F]+)$"), list("-+0123456789"))
Loader.add_implicit_resolver(
    # With a dot: `12345e7` is a short commit.
    _FLOAT,
    re.compile(r"^[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$"),
    list("-+.0123456789"),
)
Loader.add_constructor(_INT, _whole_number)


class Dumper(yaml.SafeDumper):
    """A dumper that quotes texts that our loader, or a YAML 1.1 loader, would not read as texts."""


Dumper.yaml_implicit_resolvers = {
    first: [*yaml.SafeDumper.yaml_implicit_resolvers.get(first, ()), *Loader.yaml_implicit_resolvers.get(first, ())]
    for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *Loader.yaml_implicit_resolvers}
}

MOST_BYTES = 1 << 20
"""The most bytes of an inventory's file: a rig with all keys has some 20 kB."""

MOST_DIGITS = 80
"""The most digits of a whole number: commits have 40, hashes 64."""

MOST_NODES = 10_000
"""The most values of an inventory's file, with aliases expanded: a rig with all keys has 500."""

MOST_LEVELS = 100
"""The most levels of brackets and indentation: a rig has eight. The parser recurses for each."""

_READ_TWICE = 1 << 16
"""The most characters of an unreadable text that is parsed again, slowly, for a better message."""

STR, MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"

if yaml.__with_libyaml__:

    class FastLoader(yaml.CSafeLoader):
        """Parses the same nodes ten times as fast."""

    FastLoader.yaml_implicit_resolvers = Loader.yaml_implicit_resolvers


def nodes_of(text: str) -> yaml.Node | None:
    """Return the nodes of a text. If libyaml fails, parse again in Python for a better message and place."""
    if not yaml.__with_libyaml__:
        return yaml.compose(text, Loader=Loader)
    if _most_levels(text) > MOST_LEVELS:
        _refuse_depth(text)
    try:
        return yaml.compose(text, Loader=FastLoader)
    except yaml.YAMLError as error:
        if len(text) > _READ_TWICE:
            raise
        try:
            return yaml.compose(text, Loader=Loader)
        except (ValueError, OverflowError):  # of an escape such as `\UFFFFFFFF`, which is no character
            raise error from None


def _most_levels(text: str) -> int:
    """Return an upper bound of the levels of a text.

    It counts one for each bracket, and two for each column before the first word of a line: a list may be indented as
    little as its key.
    """
    leading = (len(line) - len(line.lstrip(" \t-?:")) for line in text.splitlines())
    return text.count("[") + text.count("{") + 2 * max(leading, default=0)


def _refuse_depth(text: str) -> None:
    """Count the levels: libyaml's parser, unlike its composer, does not recurse. Raise RecursionError."""
    level = 0
    for event in yaml.parse(text, Loader=FastLoader):
        level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if level > MOST_LEVELS:
            raise RecursionError


class YamlMistake(NamedTuple):
    """The position of a mistake, from 1; a message; a suggestion."""

    line: int
    column: int
    message: str
    help: str


_MOST = 60
"""The most characters of a line that are quoted."""
_INDENT = "indent with spaces, what stands in one mapping alike"


def explain_yaml_error(text: str, error: yaml.YAMLError) -> YamlMistake:
    """Return the mistake in an unreadable text."""
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or error)
    if mark is None:
        return YamlMistake(1, 1, f"this is not YAML: {comment(problem)}", "check indentation, colons and quotes here")
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
        return YamlMistake(mark.line + 1, 1, "a second document begins here", "write one file per rig")
    return YamlMistake(mark.line + 1, mark.column + 1, f"this is not YAML: {comment(problem)}", _OTHERWISE)


_OTHERWISE = "check indentation, colons and quotes here"


def _merge(lines: list[str]) -> YamlMistake | None:
    """Return the mistake of a merge conflict that git left."""
    marks = [n for n, line in enumerate(lines, start=1) if re.match(r"(<{7}|>{7})(\s|$)", line)]
    help_ = "keep what is right of the two sides, and take the lines with `<<<<<<<`, `=======` and `>>>>>>>` out"
    return YamlMistake(marks[0], 1, "a merge is not finished here", help_) if marks else None


def _character(line: str, mark: yaml.Mark, problem: str) -> YamlMistake | None:
    """Return the mistake of a character that cannot begin a value."""
    at = mark.line + 1, mark.column + 1
    if "\\t" in problem or "tab" in problem or line[: mark.column + 1].strip(" ") == "\t":
        return YamlMistake(*at, "a tab stands here, with which YAML does not indent", "write spaces in its place")
    alias = re.search(r"(?:^|[\s:\[{,-])([*&])", line)
    if "alphabetic or numeric" in problem and alias:
        column = alias.start(1)
        value = _word(line[column:])
        message = f"`{alias[1]}` at the beginning of a value means something else in YAML"
        return YamlMistake(at[0], column + 1, message, f'write it in quotes: `"{value}"`')
    if "cannot start any token" in problem or problem.startswith("found undefined alias"):
        value = _word(line[mark.column :])
        return YamlMistake(*at, f"no value in YAML begins with `{value[:1]}`", f'write it in quotes: `"{value}"`')
    if "special characters are not allowed" in problem:
        return YamlMistake(*at, "a character stands here that no text may hold", "take it out, or type the line anew")
    return None


def _word(rest: str) -> str:
    """Return the value at the beginning of a part of a line."""
    match = re.match(r"[^,\]}#]*", rest)
    return _shown((match[0] if match else rest).strip()).replace('"', "'")


def _shown(text: str) -> str:
    plain = str(comment(text.strip()))
    return f"{plain[:_MOST]}…" if len(plain) > _MOST else plain


def _quote(lines: list[str], at: int, ended: bool) -> YamlMistake | None:
    """Return the mistake of an unclosed quote: everything up to the next quote is read as text."""
    for number, line in enumerate(lines[: at + 1]):
        bare = re.sub(r"(^|\s)#.*", "", re.sub(r"\"(?:[^\"\\]|\\.)*\"|(?<!\w)'[^']*'", "", line))
        opened = re.search(r"(?<=[\s:\[{,])(\"|')", bare)
        if opened and (ended or number < at or bare.count(opened[1]) == 1):
            column = line.rindex(opened[1]) + 1
            return YamlMistake(
                number + 1, column, f"`{opened[1]}` is opened here and not closed", f"add `{opened[1]}` at the end"
            )
    return None


def _keyless(lines: list[str], problem: str, at: int) -> YamlMistake | None:
    """Return the mistake of a line that is neither a key with a value nor an item."""
    if "could not find expected ':'" not in problem:
        return None
    line, number = lines[at], at + 1
    column, words = len(line) - len(line.lstrip()) + 1, line.strip()
    if "\u00a0" in line:
        message = "this line contains a no-break space (U+00A0), which YAML does not accept as a space"
        return YamlMistake(number, line.index("\u00a0") + 1, message, "type it anew")
    if match := re.match(r"-(\w.*)", words):
        return YamlMistake(number, column, "there is no space behind `-`", f"write `- {_shown(match[1])}`")
    if match := re.match(r"([\w.-]+):(\S.*)", words):
        return YamlMistake(
            number, column, f"there is no space behind `{match[1]}:`", f"write `{match[1]}: {_shown(match[2])}`"
        )
    if match := re.match(r"([\w.-]+)\s*(?:=|\s)\s*(.+)", words):
        help_ = f"write `{match[1]}: {_shown(match[2])}`"
        return YamlMistake(number, column, f"there is no colon behind `{match[1]}`", help_)
    return YamlMistake(
        number, column, f"`{_shown(words)}` is neither a key nor an item", f"write `{_shown(words)}:` with a value"
    )


def _bracket(lines: list[str], problem: str, begun: yaml.Mark, at: int) -> YamlMistake | None:
    """Return the mistake of an unclosed bracket, or of a missing comma in brackets."""
    expected = re.match(r"expected ',' or '(.)'", problem)
    if not expected:
        return None
    opening = {"}": "{", "]": "["}[expected[1]]
    line = lines[begun.line]
    if at > begun.line and line.count(opening) > line.count(expected[1]):
        message = f"`{opening}` is opened here and not closed"
        return YamlMistake(
            begun.line + 1, begun.column + 1, message, f"add `{expected[1]}` at the end of what is in it"
        )
    message = f"a comma is missing in this `{opening}`, or a value has a colon in it"
    help_ = f"write `, ` between what stands in `{opening}{expected[1]}`, and a value with a colon in quotes"
    return YamlMistake(begun.line + 1, begun.column + 1, message, help_)


def _mixed(lines: list[str], problem: str, at: int) -> YamlMistake | None:
    """Return the mistake of items of a list among keys, or keys among items."""
    if "expected <block end>" not in problem:
        return None
    line = lines[at]
    depth = len(line) - len(line.lstrip())
    above = next((n for n in range(at - 1, -1, -1) if lines[n].strip() and _depth(lines[n]) == depth), at)
    items = [n for n in (above, at) if lines[n].lstrip().startswith("- ")]
    if len(items) == 1 and above != at:
        message = "some of what stands here begins with `- `, and some does not"
        return YamlMistake(
            items[0] + 1, depth + 1, message, "leave out each `- ` before a name with a colon: names need none"
        )
    return None


def _value(lines: list[str], problem: str, at: int, column: int) -> YamlMistake | None:
    """Return the mistake of a value with a colon, or of a line with too much indentation."""
    if "mapping values are not allowed" not in problem:
        return None
    line = lines[at]
    if re.match(r"\s*(?:- )?[\w.-]+\s*:\s.*?:", line) and column > line.index(":"):
        key, _, value = line.strip().removeprefix("- ").partition(":")
        help_ = f'write it in quotes: `{_shown(key)}: "{_shown(value)}"`'
        return YamlMistake(at + 1, column + 1, "a value has `: ` in it, which begins another key", help_)
    return _indented(lines, "expected <block end>", at)


def _indented(lines: list[str], problem: str, at: int) -> YamlMistake | None:
    """Return the mistake of a line whose indentation differs from the lines around it."""
    if "expected <block end>" not in problem and "did not find expected" not in problem:
        return None
    depth = _depth(lines[at])
    before = next((each for each in reversed(lines[:at]) if each.strip()), "")
    above = _depth(before)
    if depth == above or not before:
        return None
    spaces = f"{depth} space{'s' if depth != 1 else ''}"
    message = f"this line is indented by {spaces}, and the one above it by {above}"
    return YamlMistake(at + 1, depth + 1, message, _INDENT)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
