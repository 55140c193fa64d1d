"""Explain why a text is not YAML: the place, the mistake, the fix, and its exact edit if that is certain."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import yaml

from llamaherd.diagnostics.spelling import misspelled_name
from llamaherd.inventory.yaml_text import nodes_of
from llamaherd.text.quoting import comment
from llamaherd.text.textfile import lines_of


class LineEdit(NamedTuple):
    """An edit of a line: at a column, from 1, `old` is replaced by `new`."""

    line: int
    column: int
    old: str
    new: str


class YamlMistake(NamedTuple):
    """The position of a mistake, from 1; a message; a suggestion; the edit that it describes, if that is certain."""

    line: int
    column: int
    message: str
    help: str
    edit: LineEdit | None = None


_MOST = 60
"""The most characters of a line that are quoted."""
_MOST_TRIED = 1 << 16
"""The most characters of a text that is parsed again with an edit."""
_LONGEST_LINE = 2_000
"""The most characters of a line in which a mistake is searched."""
_MOST_ABOVE = 8
"""The most lines above an error in which the mistake is searched."""
_OTHERWISE = "check indentation, colons and quotes here"
_KEY = r"[\w.-]+"


def explain_yaml_error(text: str, error: yaml.YAMLError, reads: Callable[[str], bool]) -> YamlMistake:
    """Return the mistake in an unreadable text. `reads` returns whether a text is YAML with each key once."""
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or error)
    if isinstance(error, yaml.reader.ReaderError):
        return _unprintable(text, error)
    if mark is None:
        return YamlMistake(1, 1, f"this is not YAML: {comment(problem)}", _OTHERWISE)
    begun = getattr(error, "context_mark", None) or mark
    lines = lines_of(text.removesuffix("\n"))
    unknown = YamlMistake(mark.line + 1, mark.column + 1, f"this is not YAML: {comment(problem)}", _OTHERWISE)
    if max(map(len, lines)) > _LONGEST_LINE:
        return unknown
    at, start = (min(each.line, len(lines) - 1) for each in (mark, begun))
    found = (
        _merge(lines)
        or pasted_lines(lines)
        or _escape(lines, problem, begun)
        or _character(lines, mark, problem)
        or _quote(lines, at, mark.index >= len(text.rstrip()))
        or _space(lines, at)
        or _keyless(lines, problem, start)
        or _trailing(lines, at)
        or _bracket(lines, problem, begun, mark)
        or _mixed(lines, problem, at)
        or _above(lines, problem, at)
        or _value(lines, problem, at, mark.column)
        or (_indented(lines, problem, at, reads) if len(text) <= _MOST_TRIED else None)
        or _sign(lines, problem, mark)
        or _another(lines, problem, mark)
        or unknown
    )
    edit = found.edit
    certain = edit and len(text) <= _MOST_TRIED and _fits(lines, edit) and _gets_further(lines, edit, mark)
    return found if certain else found._replace(edit=None)


def _fits(lines: Sequence[str], edit: LineEdit) -> bool:
    """Return whether a line has the text that an edit replaces."""
    return lines[edit.line - 1].startswith(edit.old, edit.column - 1)


def _gets_further(lines: Sequence[str], edit: LineEdit, mark: yaml.Mark) -> bool:
    """Return whether an edited text is YAML, or its first error is further down."""
    try:
        nodes_of(_edited(lines, edit))
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        after = getattr(error, "problem_mark", None)
        added = max(len(edit.new) - len(edit.old), 0)
        return after is not None and (after.line, after.column) > (mark.line, mark.column + added)
    return True


def _edited(lines: Sequence[str], edit: LineEdit) -> str:
    line = lines[edit.line - 1]
    start = edit.column - 1
    changed = line[:start] + edit.new + line[start + len(edit.old) :]
    return "\n".join([*lines[: edit.line - 1], changed, *lines[edit.line :]])


def _unprintable(text: str, error: yaml.reader.ReaderError) -> YamlMistake:
    """Return the mistake of a control character."""
    before = text[: error.position]
    line, column = before.count("\n") + 1, error.position - (before.rfind("\n") + 1) + 1
    character = text[error.position : error.position + 1]
    message = f"a control character (U+{ord(character or chr(0)):04X}) stands here, which YAML does not accept"
    return YamlMistake(line, column, message, "take it out, or type the line anew")


def _merge(lines: Sequence[str]) -> YamlMistake | None:
    """Return the mistake of a merge conflict that git left."""
    marks = [n for n, line in enumerate(lines, start=1) if re.match(r"(<{7}|>{7}|={7})(\s|$)", line)]
    help_ = "keep what is right of the two sides, and take the lines with `<<<<<<<`, `=======` and `>>>>>>>` out"
    return YamlMistake(marks[0], 1, "a merge is not finished here", help_) if marks else None


_PREFIXES = {
    r"\+": ("`+`, as in a diff", "`+`"),
    r">( |$)": ("`>`, as in a mail", "`> `"),
    r"\s*\d+[:|]?( |$)": ("its number", "the number"),
}
"""What pasted text has before each line: in words, and what to leave out."""


def pasted_lines(lines: Sequence[str]) -> YamlMistake | None:
    """Return the mistake of lines that were copied with what a page or program adds to them."""
    full = [n for n, line in enumerate(lines) if line.strip()]
    for pattern, (what, out) in _PREFIXES.items():
        if len(full) > 1 and all(re.match(pattern, lines[n]) for n in full):
            return YamlMistake(full[0] + 1, 1, f"each line begins with {what}", f"leave {out} out of each line")
    fence = next((n for n in full if re.match(r"\s*(```|~~~)", lines[n])), None)
    if fence is None:
        return None
    edit = LineEdit(fence + 1, 1, lines[fence], "")
    message = "this line marks code on a page, and is no YAML"
    return YamlMistake(fence + 1, 1, message, "leave the line out", edit)


def _escape(lines: Sequence[str], problem: str, begun: yaml.Mark) -> YamlMistake | None:
    r"""Return the mistake of a backslash in double quotes, as in `"C:\models"`."""
    if "escape" not in problem or begun.line >= len(lines):
        return None
    quoted = re.match(r'"([^"]*)"', lines[begun.line][begun.column :])
    message = "a backslash in double quotes begins an escape, and this one is unknown"
    if not quoted or "'" in quoted[1]:
        return YamlMistake(begun.line + 1, begun.column + 1, message, "write each `\\` twice, or use single quotes")
    written = f"'{quoted[1]}'"
    edit = LineEdit(begun.line + 1, begun.column + 1, quoted[0], written)
    path = re.match(r"[A-Za-z]:\\", quoted[1])
    help_ = f"write it in single quotes: `{_shown(written)}`"
    return YamlMistake(begun.line + 1, begun.column + 1, message, help_, edit if path else None)


def _character(lines: Sequence[str], mark: yaml.Mark, problem: str) -> YamlMistake | None:
    """Return the mistake of a character that cannot begin a value."""
    if mark.line >= len(lines):
        return None
    line, at = lines[mark.line], (mark.line + 1, mark.column + 1)
    if "\\t" in problem or "tab" in problem or line[: mark.column + 1].strip(" ") == "\t":
        message = "a tab stands here, with which YAML does not indent"
        return YamlMistake(*at, message, "write spaces in its place", _without_tabs(lines, mark.line))
    if undefined := re.match(r"found undefined alias '?(.+?)'?$", problem):
        return _alias(lines, mark, undefined[1])
    alias = re.search(r"(?:^|[\s:\[{,-])([*&])", line)
    if "alphabetic or numeric" in problem and alias:
        column = alias.start(1)
        if re.fullmatch(r"&\s*(#.*)?", line[column:]):
            return YamlMistake(at[0], column + 1, "`&` begins the name of an anchor, and none follows", "leave it out")
        message = f"`{alias[1]}` at the beginning of a value means something else in YAML"
        return _unquoted(line, at[0], column, message)
    if "cannot start any token" in problem or "node content, but found '?'" in problem:
        return _unquoted(line, at[0], mark.column, f"no value in YAML begins with `{_word(line[mark.column :])[:1]}`")
    if "special characters are not allowed" in problem:
        return YamlMistake(*at, "a character stands here that no text may hold", "take it out, or type the line anew")
    return None


def _unquoted(line: str, number: int, column: int, message: str) -> YamlMistake:
    """Return the mistake of a value that needs quotes. The edit is certain if it is clear where the value ends."""
    in_brackets = len(re.findall(r"[\[{]", line[:column])) > len(re.findall(r"[\]}]", line[:column]))
    end = r"(?=\s+#|\s*[,\]}]|\s*$)" if in_brackets else r"(?=\s+#|\s*$)"
    found = re.match(rf".*?{end}", line[column:])
    value = found[0] if found else line[column:]
    if bullet := re.match(r"\*\s+(?=\S)", value):
        message = "`*` does not begin an item of a list"
        return YamlMistake(number, column + 1, message, f"write `- {_shown(value[bullet.end() :])}`")
    mark = "'" if '"' in value else '"'
    help_ = f"write it in quotes: `{mark}{_shown(value)}{mark}`"
    # A colon may end a key.
    clear = re.fullmatch(r"\S[^\s\"\\]([^\"\\:]|:(?=[^\s]))*", value)
    edit = LineEdit(number, column + 1, value, f'"{value}"') if clear else None
    return YamlMistake(number, column + 1, message, help_, edit)


def _without_tabs(lines: Sequence[str], at: int) -> LineEdit | None:
    """Return the edit that indents a line as the lines before and after it, if both are indented alike."""
    before, after = _neighbour(lines, at, -1), _neighbour(lines, at, 1)
    leading = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    if before is None or after is None or _depth(lines[before]) != _depth(lines[after]) or "\t" not in leading:
        return None
    if lines[before].rstrip().endswith(":") or lines[after].lstrip(" ").startswith("\t"):
        return None
    return LineEdit(at + 1, 1, leading, " " * _depth(lines[before]))


def _alias(lines: Sequence[str], mark: yaml.Mark, name: str) -> YamlMistake:
    """Return the mistake of an alias without an anchor above it."""
    place = mark.line + 1, mark.column + 1
    anchors = {found for line in lines[: mark.line] for found in re.findall(r"(?<!\S)&([\w-]+)", line)}
    message = f"the alias `*{comment(name)}` has no anchor `&{comment(name)}` above it"
    if close := misspelled_name(name, anchors):
        edit = LineEdit(*place, f"*{name}", f"*{close}")
        return YamlMistake(*place, message, f"did you mean `*{close}`?", edit)
    if any(re.match(rf"\s*{re.escape(name)}:", line) for line in lines[: mark.line]):
        return YamlMistake(*place, message, f"write `{comment(name)}: &{comment(name)}` where it is declared")
    if "<<" in lines[mark.line][: mark.column]:
        help_ = f"write `&{comment(name)}` after the colon of a mapping above this line"
        return YamlMistake(*place, message, help_)
    value = _word(lines[mark.line][mark.column :])
    return YamlMistake(*place, message, f'if it is a text, write it in quotes: `"{value}"`')


def _word(rest: str) -> str:
    """Return the value at the beginning of a part of a line."""
    match = re.match(r"[^,\]}#]*", rest)
    return _shown((match[0] if match else rest).strip()).replace('"', "'")


def _shown(text: str) -> str:
    plain = str(comment(text.strip()))
    return f"{plain[:_MOST]}…" if len(plain) > _MOST else plain


def _quote(lines: Sequence[str], at: int, ended: bool) -> YamlMistake | None:
    """Return the mistake of an unclosed quote: everything up to the next quote is read as text."""
    for number, line in enumerate(lines[: at + 1]):
        bare = re.sub(r"(^|\s)#.*", "", re.sub(r"\"(?:[^\"\\]|\\.)*\"|(?<!\w)'[^']*'", "", line))
        opened = re.search(r"(?<=[\s:\[{,])(\"|')", bare)
        if opened and (ended or number < at or bare.count(opened[1]) == 1):
            column, mark = line.rindex(opened[1]) + 1, opened[1]
            message = f"`{mark}` is opened here and not closed"
            content = re.sub(r"\s+#.*", "", line).rstrip()
            other = "'" if mark == '"' else '"'
            if content.endswith(other) and content.count(other) == 1:
                edit = LineEdit(number + 1, len(content), other, mark)
                return YamlMistake(
                    number + 1, column, message, f"write `{mark}` in place of `{other}` at the end", edit
                )
            edit = LineEdit(number + 1, len(content) + 1, "", mark)
            return YamlMistake(number + 1, column, message, f"add `{mark}` at the end", edit)
    return None


_SPACES = "\u00a0\u2007\u202f\u3000\u2002\u2003\u2009"


def _space(lines: Sequence[str], at: int) -> YamlMistake | None:
    """Return the mistake of a space that is none to YAML, as pages and phones write it."""
    for number in (at - 1, at, at - 2):
        line = lines[number] if 0 <= number < len(lines) else ""
        found = re.match(rf"[ ]*([{_SPACES}][ {_SPACES}]*)|\s*{_KEY}:([{_SPACES}]+)", line)
        if found:
            group = 1 if found[1] is not None else 2
            name = {"\u00a0": "no-break space", "\u3000": "wide space"}.get(found[group].strip(" ")[0], "special space")
            message = f"this line contains a {name} (U+{ord(found[group].strip(' ')[0]):04X}), "
            message += "which YAML does not accept as a space"
            edit = LineEdit(number + 1, found.start(group) + 1, found[group], " " * len(found[group]))
            return YamlMistake(number + 1, found.start(group) + 1, message, "type a plain space in its place", edit)
    return None


def _keyless(lines: Sequence[str], problem: str, at: int) -> YamlMistake | None:
    """Return the mistake of a line that is neither a key with a value nor an item."""
    if "could not find expected ':'" not in problem:
        return None
    if found := _joined(lines, at):
        return found
    line, words = lines[at], lines[at].strip()
    column = len(line) - len(line.lstrip()) + 1
    if re.fullmatch(_KEY, words):
        end = LineEdit(at + 1, column + len(words), "", ":") if _opens(lines, at) else None
        message = f"there is no colon behind `{_shown(words)}`"
        return YamlMistake(at + 1, column, message, f"write `{_shown(words)}:`{'' if end else ' with a value'}", end)
    if match := re.match(rf"({_KEY})\s+(.+)", words):
        message = f"there is no colon behind `{match[1]}`"
        return YamlMistake(at + 1, column, message, f"write `{match[1]}: {_shown(match[2])}`")
    message = f"`{_shown(words)}` is neither a key nor an item"
    return YamlMistake(at + 1, column, message, f"write `{_shown(words)}:` with a value")


def _opens(lines: Sequence[str], at: int) -> bool:
    """Return whether the next line is indented more than this one."""
    after = _neighbour(lines, at, 1)
    return after is not None and _depth(lines[after]) > _depth(lines[at])


_SEPARATED = re.compile(rf"({_KEY})([ \t]*)(\uff1a|:=|=>|->|:|=)([ \t]*)(?!//)(.*)")


def _joined(lines: Sequence[str], at: int) -> YamlMistake | None:
    """Return the mistake of a key or an item that is not separated from what follows, as in `port:8080`."""
    line, words = lines[at], lines[at].strip()
    column = len(line) - len(line.lstrip()) + 1
    if match := re.match(r"(//+|--+(?!-)|;+|/\*)\s", words):
        edit = LineEdit(at + 1, column, match[1], "#")
        return YamlMistake(
            at + 1, column, f"`{match[1]}` does not begin a comment in YAML", "write `#` in its place", edit
        )
    if match := re.match(r"-(\w.*)", words):
        edit = LineEdit(at + 1, column, "-", "- ")
        return YamlMistake(at + 1, column, "there is no space behind `-`", f"write `- {_shown(match[1])}`", edit)
    if match := re.match(r"([\u2010-\u2015\u2022\u2212*])\s+(\S.*)", words):
        edit = LineEdit(at + 1, column, match[1], "-")
        return YamlMistake(
            at + 1, column, f"`{match[1]}` does not begin an item of a list", f"write `- {_shown(match[2])}`", edit
        )
    if match := re.fullmatch(rf"""(["'])({_KEY}:\s+[^"']*)\1,?""", words):
        edit = LineEdit(at + 1, column, words, match[2])
        message = "the quotes are around a key and its value"
        return YamlMistake(at + 1, column, message, f"write `{_shown(match[2])}`", edit)
    match = _SEPARATED.match(words)
    if not match or (match[3] == ":" and not match[2] and match[4]):
        return None
    key, before, sign, after, value = match.groups()
    written = f"{key}: {_shown(value)}" if value else f"{key}:"
    message = f"there is no colon behind `{key}`"
    if sign == ":":
        message = (
            f"there is no space behind `{key}:`" if not before else f"the space belongs behind the colon of `{key}`"
        )
    edit = LineEdit(at + 1, column + len(key), f"{before}{sign}{after}", ": " if value else ":")
    return YamlMistake(at + 1, column, message, f"write `{written}`", edit)


def _above(lines: Sequence[str], problem: str, at: int) -> YamlMistake | None:
    """Return the mistake of a line above, which YAML joins with the next one as a text of two lines."""
    if "mapping values are not allowed" not in problem:
        return None
    for number in range(at - 1, max(at - 1 - _MOST_ABOVE, -1), -1):
        words = lines[number].strip()
        if not words or words.startswith("#"):
            continue
        if re.match(rf"(?:- )?{_KEY}:(?:\s|$)", words):
            return None
        if found := _joined(lines, number):
            return found
        if _depth(lines[number]) == _depth(lines[at]):
            message = f"`{_shown(words)}` is neither a key nor an item"
            return YamlMistake(
                number + 1, _depth(lines[number]) + 1, message, "leave the line out, or write `#` before it"
            )
    return None


_CLOSED = r"""(\[[^\]]*\]|\{[^}]*\}|"(?:[^"\\]|\\.)*"|'[^']*')"""


def _trailing(lines: Sequence[str], at: int) -> YamlMistake | None:
    """Return the mistake of a text behind a value that is closed, as in `[Q4]*.gguf` and `"13.0" or later`."""
    found = re.search(rf"(?<=: ){_CLOSED}(\s*)([^\s,\]}}#][^,\]}}#]*)", lines[at])
    if not found or (found[2] and re.match(_KEY + ":", found[3])):
        return None
    column, rest = found.start(3) + 1, found[3].rstrip()
    message = f"`{_shown(rest)}` follows a value that ends before it"
    if found[2]:
        return YamlMistake(at + 1, column, message, f"leave it out, or write `# {_shown(rest)}`")
    whole = f"{found[1]}{rest}"
    quoted = "write the whole value once in quotes"
    # Brackets around keys are a mapping with a sign too many, and no text.
    if found[1][:1] in "[{" and not re.search(r"['\"]|:\s", whole):
        edit = LineEdit(at + 1, found.start(1) + 1, whole, f"'{whole}'")
        return YamlMistake(at + 1, column, message, f"{quoted}: `{_shown(edit.new)}`", edit)
    return YamlMistake(at + 1, column, message, quoted)


def _bracket(lines: Sequence[str], problem: str, begun: yaml.Mark, mark: yaml.Mark) -> YamlMistake | None:
    """Return the mistake of an unclosed bracket, of one too many, or of a missing comma in brackets."""
    at = min(mark.line, len(lines) - 1)
    if extra := re.search(r"expected <block end>, but found '([\]}])'", problem):
        column = lines[at].rindex(extra[1]) + 1
        edit = LineEdit(at + 1, column, extra[1], "")
        return YamlMistake(at + 1, column, f"`{extra[1]}` closes nothing here", "leave it out", edit)
    expected = re.match(r"expected ',' or '(.)'", problem)
    if not expected:
        return None
    opening = {"}": "{", "]": "["}[expected[1]]
    line = lines[begun.line]
    if at > begun.line and line.count(opening) > line.count(expected[1]):
        message = f"`{opening}` is opened here and not closed"
        content = re.sub(r"\s+#.*", "", line).rstrip()
        edit = LineEdit(begun.line + 1, len(content) + 1, "", expected[1])
        help_ = f"add `{expected[1]}` at the end of what is in it"
        return YamlMistake(begun.line + 1, begun.column + 1, message, help_, edit)
    if (got := re.search(r"but got '([\]}])'", problem)) and at == begun.line:
        edit = LineEdit(at + 1, mark.column + 1, got[1], expected[1])
        message = f"`{got[1]}` closes what `{opening}` opens"
        # The opening bracket may be the wrong one, and a bracket within a word is a slip of the hand.
        has_keys = re.search(r":\s", line[begun.column : mark.column]) is not None
        ends = re.match(r"\s*([,\]}#]|$)", line[mark.column + 1 :])
        certain = edit if ends and has_keys == (opening == "{") else None
        return YamlMistake(at + 1, mark.column + 1, message, f"write `{expected[1]}` in its place", certain)
    if at == begun.line and (joint := re.search(rf"([ ]*;[ ]*|[ ]+)({_KEY})$", line[: mark.column])):
        edit = LineEdit(at + 1, joint.start(1) + 1, joint[1], ", ")
        message = f"a comma is missing before `{joint[2]}`"
        return YamlMistake(at + 1, joint.start(2) + 1, message, f"write `, {joint[2]}:`", edit)
    message = f"a comma is missing in this `{opening}`, or a value has a colon in it"
    help_ = f"write `, ` between what stands in `{opening}{expected[1]}`, and a value with a colon in quotes"
    return YamlMistake(begun.line + 1, begun.column + 1, message, help_)


def _mixed(lines: Sequence[str], problem: str, at: int) -> YamlMistake | None:
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


def _value(lines: Sequence[str], problem: str, at: int, column: int) -> YamlMistake | None:
    """Return the mistake of a value with a colon."""
    if "mapping values are not allowed" not in problem:
        return None
    line = lines[at]
    if re.match(r"\s*(?:- )?[\w.-]+\s*:\s.*?:", line) and column > line.index(":"):
        key, _, value = line.strip().removeprefix("- ").partition(":")
        start = line.index(":") + 1
        if doubled := re.match(r"\s*:\s+", line[start:]):
            edit = LineEdit(at + 1, start + 1, doubled[0], " ")
            written = f"{key}: {_shown(value.lstrip(' :'))}"
            return YamlMistake(at + 1, column + 1, "there is a colon too many", f"write `{written}`", edit)
        pairs = re.sub(r"\s+#.*", "", value).strip()
        if re.fullmatch(r"[\w.-]+:", pairs):
            edit = LineEdit(at + 1, line.rindex(pairs) + 1, pairs, pairs[:-1])
            where = line.rindex(pairs) + len(pairs)
            return YamlMistake(at + 1, where, "there is a colon too many", f"write `{key}: {pairs[:-1]}`", edit)
        if re.fullmatch(rf"{_KEY}: [^,:{{}}]+(, {_KEY}: [^,:{{}}]+)+", pairs):
            edit = LineEdit(at + 1, line.index(pairs) + 1, pairs, f"{{{pairs}}}")
            message = "several keys on one line need braces"
            return YamlMistake(at + 1, line.index(pairs) + 1, message, f"write `{key}: {{{_shown(pairs)}}}`", edit)
        help_ = f'write it in quotes: `{_shown(key)}: "{_shown(value)}"`'
        return YamlMistake(at + 1, column + 1, "a value has `: ` in it, which begins another key", help_)
    return None


def _indented(lines: Sequence[str], problem: str, at: int, reads: Callable[[str], bool]) -> YamlMistake | None:
    """Return the mistake of a line whose indentation differs from the lines around it.

    Of the lines that may be meant, the one is reported that alone makes the text readable if it is indented otherwise.
    """
    kinds = ("expected <block end>", "did not find expected", "mapping values are not allowed")
    if not any(kind in problem for kind in kinds):
        return None
    fixes = []
    for number, depth in dict.fromkeys(_shifts(lines, at)):
        edit = LineEdit(number + 1, 1, " " * _depth(lines[number]), " " * depth)
        if reads(_edited(lines, edit)):
            fixes.append(edit)
    wrong = fixes[0].line - 1 if fixes else at
    before = _neighbour(lines, wrong, -1)
    if before is None or (not fixes and _depth(lines[before]) == _depth(lines[at])):
        return None
    depth = _depth(lines[wrong])
    message = f"this line is indented by {_spaces(depth)}, and the one above it by {_depth(lines[before])}"
    if not fixes:
        return YamlMistake(at + 1, depth + 1, message, "indent with spaces, what stands in one mapping alike")
    after = _neighbour(lines, wrong, 1)
    if lines[wrong].rstrip().endswith(":") and after is not None and _depth(lines[after]) == depth:
        message = f"`{_shown(lines[wrong])}` is indented as far as what belongs below it"
    help_ = f"indent it with {_spaces(len(fixes[0].new))}, as the lines that it belongs to"
    return YamlMistake(wrong + 1, depth + 1, message, help_, fixes[0] if len(fixes) == 1 else None)


def _shifts(lines: Sequence[str], at: int) -> Iterator[tuple[int, int]]:
    """Yield lines that may be indented wrongly, each with the indentation that may be meant."""
    before = _neighbour(lines, at, -1)
    if before is None:
        return
    first = before
    while (above := _neighbour(lines, first, -1)) is not None and _depth(lines[above]) >= _depth(lines[before]):
        first = above
    for number in (at, before, first):
        around = (_neighbour(lines, number, -1), _neighbour(lines, number, 1), at if number == first else None)
        for depth in (_depth(lines[each]) for each in around if each is not None):
            if depth != _depth(lines[number]):
                yield number, depth


def _sign(lines: Sequence[str], problem: str, mark: yaml.Mark) -> YamlMistake | None:
    """Return the mistake of a sign that means something else before a value on the same line: `|`, `>` and `- `."""
    line = lines[min(mark.line, len(lines) - 1)]
    if "expected a comment or a line break" in problem and (found := re.search(r"([|>][+-]?\s*)(\S.*)$", line)):
        edit = LineEdit(mark.line + 1, found.start(1) + 1, found[1], "")
        message = f"`{found[1].strip()}` begins a text on the lines below, and a value follows it"
        return YamlMistake(mark.line + 1, found.start(1) + 1, message, f"write `{_shown(found[2])}` without it", edit)
    item = re.search(rf"({_KEY}): (- (\S[^#]*?))\s*(#.*)?$", line)
    if "sequence entries are not allowed" in problem and item:
        edit = LineEdit(mark.line + 1, item.start(2) + 1, item[2], f"[{item[3]}]")
        message = "an item of a list begins on a line of its own"
        return YamlMistake(mark.line + 1, item.start(2) + 1, message, f"write `{item[1]}: [{_shown(item[3])}]`", edit)
    if "found '-'" in problem and line[mark.column :].startswith("- "):
        edit = LineEdit(mark.line + 1, mark.column + 1, "- ", "")
        return YamlMistake(mark.line + 1, mark.column + 1, "items in brackets need no `- `", "leave it out", edit)
    return None


def _another(lines: Sequence[str], problem: str, mark: yaml.Mark) -> YamlMistake | None:
    """Return the mistake of a second document, or of lines behind the end of the first."""
    if "another document" in problem:
        return YamlMistake(mark.line + 1, 1, "a second document begins here", "write one file per rig")
    ends = [n for n, line in enumerate(lines[: mark.line + 1], start=1) if re.match(r"\.\.\.\s*$", line)]
    if "<document start>" in problem and ends:
        message = "`...` ends the document, and more follows it"
        return YamlMistake(ends[0], 1, message, "leave the line out", LineEdit(ends[0], 1, "...", ""))
    if "for merging" in problem:
        name = _word(lines[mark.line][mark.column :])
        message = f"`<<` needs a mapping, and `{name}` is a text"
        anchors = {found for line in lines[: mark.line] for found in re.findall(r"(?<!\S)&([\w-]+)", line)}
        help_ = f"write `<<: *{name}`" if name in anchors else "name the anchor of a mapping, as in `<<: *common`"
        edit = LineEdit(mark.line + 1, mark.column + 1, name, f"*{name}") if name in anchors else None
        return YamlMistake(mark.line + 1, mark.column + 1, message, help_, edit)
    return None


def _neighbour(lines: Sequence[str], at: int, step: int) -> int | None:
    """Return the nearest line before or after one that is neither blank nor a comment."""
    number = at + step
    while 0 <= number < len(lines):
        if lines[number].strip() and not lines[number].lstrip().startswith("#"):
            return number
        number += step
    return None


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _spaces(number: int) -> str:
    return f"{number} space{'s' if number != 1 else ''}"
