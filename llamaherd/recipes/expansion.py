"""Expand the words of a shell: quotes, variables, arrays, arithmetic.

What only a running shell can compute is unknown.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from llamaherd.recipes.commands import (
    EMPTY,
    Position,
    Text,
    Word,
    is_veiled,
    joined,
    placed,
    unveil,
    veiled,
    without_escapes,
    word_at,
)

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_ELEMENTS, LONGEST = 1000, 4000
"""The most elements of an array, and characters of a value: `A=$A$A` on many lines must not fill the memory."""

ELIDED = re.compile(r"[\w./:-]*(?:\.\.\.|…)|\[[^\]\"']+\]|\{[\w.+-]+(?:[,|][\w.+-]+)*\}")
"""Placeholders: `...`, `[options]`, `{none,mean}`, `{size}`."""
_EXPANSION = re.compile(
    r"(?P<name>[A-Za-z_]\w*|\d+|[@*])(?:\[(?P<index>[^\]]*)\])?"
    r"(?:(?P<case>:?[-=?+])(?P<other>.*)|(?P<cut>##?|%%?)(?P<pattern>[^$`]*))?",
    re.DOTALL,
)
_PARSED = frozenset(
    (
        *("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion", "process_substitution"),
        *("string", "raw_string", "ansi_c_string", "translated_string", "concatenation"),
    )
)
"""Nodes inside of a word that are no plain characters."""
_PATH_OF = re.compile(r"(?:command -v|which|type -[pP]|readlink -[fe]|realpath)\s+([\w./~+-]+)(?:\s*(?:2?>|\|\|).*)?")
_DECODED = {"n": "\n", "t": "\t", "r": "\r"}
Variables = dict[str, tuple[Word, ...]]
"""The values of variables: one word, or the elements of an array."""


@dataclass(frozen=True)
class Part:
    """A part of a word after its expansion."""

    text: Text
    unknown: bool = False
    unset: tuple[str, ...] = ()
    splits: bool = False
    """Whether blanks in it separate words."""
    quoted: bool = False
    elements: tuple[Word, ...] | None = None
    """The elements of an array, which stay words."""
    tilde: bool = False

    @property
    def hidden(self) -> Text:
        """The text with what is unknown veiled."""
        return veiled(self.text) if self.unknown and not is_veiled(self.text.chars) else self.text


@dataclass
class Expander:
    """The variables and arguments of a shell at one place of its text."""

    text: Text
    variables: Variables = field(default_factory=dict)
    arguments: tuple[Word, ...] | None = None
    """The arguments of the function that is read; None if they are unknown."""
    placeholders: list[int] = field(default_factory=list)
    """Where the text has signs that stand for something, such as `<model>`."""

    def position(self, offset: int) -> Position:
        return self.text.at[min(offset, len(self.text.at) - 1)] if self.text.at else (1, 1)

    def written(self, node: Node) -> Text:
        return self.text.cut(node.start_byte, node.end_byte)

    def words(self, node: Node) -> list[Word]:
        """Return the words that a word becomes: several, if a variable in it has blanks or is an array."""
        node = node.named_children[0] if node.type == "command_name" and node.named_children else node
        parts = [part for part in self.parts(node) if part.text.chars or part.quoted or part.elements is not None]
        start = self.position(node.start_byte)
        arrays = [part.elements for part in parts if part.elements is not None]
        if arrays and not any(part.text.chars for part in parts):
            return list(arrays[0])
        words: list[Word] = []
        here: list[Part] = []
        for part in parts:
            text = part.hidden
            blanks = list(re.finditer(r"(?:\s|\\\n)+", text.chars)) if part.splits else []
            begun = 0
            for blank in blanks:
                here.append(Part(text.cut(begun, blank.start())))
                words += [self.word(here, start, None)] if any(each.text.chars for each in here) else []
                here, begun = [], blank.end()
            here.append(part if not blanks else Part(text.cut(begun, len(text.chars))))
        if any(part.text.chars or part.quoted for part in here):
            words.append(self.word(here, start, None if words else node))
        return words

    def word(self, parts: Sequence[Part], start: Position, node: Node | None) -> Word:
        """Return the parts as one word."""
        texts = [
            each
            for part in parts
            for each in ([e.text for e in part.elements] if part.elements is not None else [part.hidden])
        ]
        hidden = joined(texts[:MOST_ELEMENTS])
        text = Text(unveil(hidden.chars), hidden.at)
        tilde = bool(parts) and next((part.tilde for part in parts if part.text.chars), False)
        unknown = any(part.unknown for part in parts) or self._elided(node) or is_veiled(hidden.chars)
        unset = tuple(name for part in parts for name in part.unset)
        at = text.at[0] if text.at and not node else start
        return Word(text, at, unknown, unset, tilde, hidden if is_veiled(hidden.chars) else None)

    def _elided(self, node: Node | None) -> bool:
        if node is None:
            return False
        plain = node.type not in ("string", "raw_string") and any(
            node.start_byte <= each < node.end_byte for each in self.placeholders
        )
        return plain or ELIDED.fullmatch(self.text.chars, node.start_byte, node.end_byte) is not None

    def parts(self, node: Node, mode: str = "plain") -> Iterator[Part]:
        start, end = node.start_byte, node.end_byte
        quoted = mode != "plain"
        match node.type:
            case "raw_string":
                text = self.text.cut(start + 1, end - 1)
                yield Part(text, quoted=True, tilde=text.chars.startswith("~/"))
            case "ansi_c_string":
                text = without_escapes(self.text.cut(start + 2, end - 1), r"\\(.)", _DECODED)
                yield Part(text, quoted=True)
            case "string":
                yield Part(EMPTY, quoted=True)
                yield from self.mixed(node, start + 1, end - 1, "double")
            case "simple_expansion":
                yield self._value(self.text.chars[start + 1 : end], "", node, quoted=quoted)
            case "expansion":
                yield from self._expansion(node, mode)
            case "command_substitution":
                found = _PATH_OF.fullmatch(self.text.chars[start:end].strip("$()`").strip())
                where = self.text.chars.find(found[1], start) if found else start
                text = self.text.cut(where, where + len(found[1])) if found else self.written(node)
                yield Part(text, unknown=found is None, quoted=quoted)
            case "arithmetic_expansion":
                number = self.computed(self.text.chars[start:end].lstrip("$([").rstrip(")]"))
                shown = self.written(node) if number is None else placed(str(number), self.position(start))
                yield Part(shown, unknown=number is None, quoted=quoted)
            case "process_substitution":
                yield Part(self.written(node), unknown=True)
            case _:
                yield from self.mixed(node, start, end, mode)

    def mixed(self, node: Node, start: int, end: int, mode: str) -> Iterator[Part]:
        """Yield the expansions of a node between two places, and the characters between them."""
        at = start
        for child in node.children:
            if child.type in _PARSED and at <= child.start_byte and child.end_byte <= end:
                if at < child.start_byte:
                    yield self._plain(at, child.start_byte, mode)
                for part in self.parts(child, mode):
                    # In a file that is written, a value stands where it is put in.
                    here = placed(part.text.chars, self.position(child.start_byte))
                    yield replace(part, text=here) if mode == "document" else part
                at = child.end_byte
        if at < end:
            yield self._plain(at, end, mode)

    def _plain(self, start: int, end: int, mode: str) -> Part:
        escaped = {"plain": r"\\(.|\n)", "double": r"\\([$`\"\\\n])", "document": r"\\([$`\\\n])"}[mode]
        text = without_escapes(self.text.cut(start, end), escaped, {"\n": ""})
        return Part(text, quoted=mode == "double", tilde=mode == "double" and text.chars.startswith("~/"))

    def _expansion(self, node: Node, mode: str) -> Iterator[Part]:
        """Yield the value of `${NAME}`, with its default or without a part of it."""
        start, end, quoted = node.start_byte, node.end_byte, mode != "plain"
        found = _EXPANSION.fullmatch(self.text.chars, start + 2, end - 1)
        unknown = Part(self.written(node), unknown=True, quoted=quoted)
        if found is None:
            yield unknown
            return
        part = self._value(found["name"], found["index"] or "", node, quoted=quoted)
        absent = (part.unknown and self.variables.get(found["name"]) is None) or (
            found["name"].isdigit() and not part.unknown and not part.text.chars
        )
        match found["case"]:
            case None if found["cut"] is None or part.unknown:
                yield part if found["cut"] is None or part.unset else unknown
            case None:
                yield Part(_without(part.text, found["cut"], found["pattern"]), quoted=quoted, splits=not quoted)
            case ":-" | "-" | ":=" | "=":
                if absent or (found["case"].startswith(":") and not part.text.chars and part.elements is None):
                    others = [*self.mixed(node, found.start("other"), end - 1, mode)]
                    if found["case"].endswith("="):
                        self.variables[found["name"]] = (self.word(others, self.position(start), None),)
                    if not others:
                        yield Part(EMPTY, unknown=True, unset=part.unset, quoted=quoted)
                    yield from (
                        Part(each.text, each.unknown, each.unset, not each.quoted, quoted or each.quoted)
                        for each in others
                    )
                else:
                    yield part
            case ":+" | "+":
                if absent:
                    yield unknown
                elif part.text.chars or part.elements:
                    yield from self.mixed(node, found.start("other"), end - 1, mode)
            case _:
                yield part

    def _value(self, name: str, index: str, node: Node, *, quoted: bool) -> Part:
        """Return the value of a variable or argument."""
        written = self.written(node)
        if name in ("@", "*"):
            return Part(EMPTY, elements=self.arguments or ())
        if name.isdecimal() and name != "0" and self.arguments is not None:
            words = self.arguments[int(name[:3]) - 1 : int(name[:3])]
        elif name in self.variables:
            words = self.variables[name]
            if index in ("@", "*"):
                return Part(EMPTY, elements=words)
            if index and not index.isdecimal():
                return Part(written, unknown=True, quoted=quoted)
            words = words[int(index[:4] or 0) :][:1]
        else:
            unset = (name,) if re.match(r"[A-Za-z_]", name) else ()
            return Part(written, unknown=True, unset=unset, quoted=quoted)
        if not words:
            return Part(EMPTY, quoted=quoted, splits=not quoted)
        word = words[0]
        return Part(word.hidden or word.text, word.unknown, word.unset, not quoted, quoted, tilde=word.tilde)

    def computed(self, text: str) -> int | None:
        """Return the value of an arithmetic expression; None for one with an unknown part."""
        values = {name: str(words[0]) for name, words in self.variables.items() if words and not words[0].unknown}
        return compute(text, values)


def _without(text: Text, sign: str, pattern: str) -> Text:
    """Return a value without the part that `${NAME%PATTERN}` or `${NAME#PATTERN}` removes."""
    pattern, length = pattern.strip("\"'"), len(text.chars)
    sizes = range(length + 1) if len(sign) == 1 else range(length, -1, -1)
    for size in sizes:
        removed = text.chars[:size] if sign[0] == "#" else text.chars[length - size :]
        if fnmatchcase(removed, pattern):
            return text.cut(size, length) if sign[0] == "#" else text.cut(0, length - size)
    return text


def merged_variables(branches: list[Variables]) -> Variables:
    """Return the variables after alternatives: a value that only some set holds, one that they dispute is unknown."""
    result: Variables = {}
    for name in dict.fromkeys(name for branch in branches for name in branch):
        values = list(dict.fromkeys(branch[name] for branch in branches if name in branch))
        set_later = any(word.unknown for value in values for word in value)
        values = [value for value in values if not set_later or any(map(str, value)) or len(value) != 1] or values
        grown = [value for value in values if len(value) > 1 or not all(map(len, values))]
        known = [value for value in values if value in grown or not any(word.unknown for word in value)] or values[:1]
        longest = max(known, key=lambda value: (len(value), len("".join(map(str, value)))))
        if all(_begins(longest, value) for value in known):
            result[name] = longest
        else:
            same = 0
            while all(len(value) > same and value[same] == longest[same] for value in values):
                same += 1
            start = longest[same].start if same < len(longest) else longest[0].start
            result[name] = (*longest[:same], word_at(f"${name}", start, unknown=True))
    return result


def _begins(longer: tuple[Word, ...], shorter: tuple[Word, ...]) -> bool:
    """Return whether a value was made from another by appending to it."""
    if len(longer) == len(shorter) == 1:
        first, second = longer[0].text, shorter[0].text
        return first.chars == second.chars or first.cut(0, len(second.chars)) == second
    return [str(word) for word in longer[: len(shorter)]] == [str(word) for word in shorter]


_LONGEST_SUM = 200
_LARGEST = 1 << 62
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda left, right: int(left / right) if abs(left) < 1 << 50 else left // right,
    ast.Mod: lambda left, right: left - right * int(left / right),
}


def compute(text: str, variables: Mapping[str, str]) -> int | None:
    """Return the value of an expression; None if a part of it is unknown, or for other operators."""
    if len(text) > _LONGEST_SUM:
        return None
    for _ in range(2):
        text = re.sub(
            r"\$?\{?\b([A-Za-z_]\w*)\b\}?", lambda found: variables.get(found[1], found[0])[:_LONGEST_SUM], text
        )
    try:
        tree = ast.parse(re.sub(r"\b0+(?=\d)", "", text.strip()).replace("/", "//"), mode="eval")
        return _result(tree.body)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return None


def _result(node: ast.expr) -> int:
    """Return the value of a node. Raise ValueError for anything but whole numbers and their operators."""
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            result = number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            result = -_result(operand)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            result = _OPERATORS[type(sign)](_result(left), _result(right))
        case _:
            raise ValueError(ast.dump(node)[:40])
    if abs(result) > _LARGEST:
        raise ValueError(str(result)[:40])
    return result
