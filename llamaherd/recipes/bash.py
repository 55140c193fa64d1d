"""Read shell text as bash does: the commands that it runs, and the files that it writes.

The grammar is tree-sitter-bash. What only a running shell can compute is unknown. Of an `if` that cannot be decided,
all branches are read; a variable that they set to different values is unknown afterwards.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from llamaherd.recipes.commands import (
    EMPTY,
    Command,
    Cut,
    Document,
    Position,
    Script,
    Text,
    Word,
    joined,
    joined_words,
    placed,
    split,
    without_escapes,
    word_at,
    word_of,
)
from llamaherd.recipes.expansion import ELIDED, LONGEST, MOST_ELEMENTS, Expander, Variables, merged_variables

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Point

_SECONDS, _CHUNK = 1.0, 2048
"""The seconds that the grammar may take for one text, as some texts without sense take minutes; bytes of one step."""
_MOST_STEPS, _MOST_ROUNDS, _DEEPEST = 8000, 64, 8
"""The most statements in all, rounds of one loop, and calls in calls."""
_MOST_SOURCED = 16
"""The most files that one script reads by `source`."""
_PLACEHOLDER = re.compile(r"<[A-Za-z](?:[^<>\n|&;]*[^<>\n|&; ])?>|\[--?[A-Za-z][^\[\]\n]*\]")
"""`<model>` and `[--port PORT]`, as pages have them; to a shell the first is two redirections."""
_PROMPT = re.compile(r"^[ \t]*(?:\S+@\S+[$#%]|[$%])[ \t]+(?=\S)", re.MULTILINE)
_BROKEN = re.compile(r"(?<=[ \t])\\[ \t]+(?:#[^\n]*)?\n")
"""A backslash with blanks or a comment after it, which continues no line."""
_ENDED = re.compile(r"(?<!\\)\n")
_GLUED = re.compile(r"(?:\\\r?\n)+")
_KEYWORDS = frozenset(("if", "then", "else", "elif", "do", "while", "until", "!", "{", "fi", "done", "export", "local"))
_BLOCKS = frozenset(("program", "compound_statement", "subshell", "do_group", "else_clause", "negated_command"))
_QUOTES = frozenset(("string", "raw_string", "string_content", "comment", "heredoc_body", "heredoc_content"))
_SEQUENCE = re.compile(r"\$\(\s*seq\s+(\d{1,4})(?:\s+(\d{1,4}))?\s*\)")
_BRACES = re.compile(r"\{(\d{1,4})\.\.(\d{1,4})\}")
_COUNTING = re.compile(r"for\s*\(\(\s*(\w+)\s*=([^;]*);\s*\w+\s*(<=?)([^;]*);\s*(?:\w+\s*\+\+|\+\+\s*\w+)\s*\)\)")
_COUNTED = re.compile(
    r"(?P<name>[A-Za-z_]\w*)\s*(?P<sign>\+\+|--|[-+*]?=)\s*(?P<other>[^=].*)?|(?P<before>\+\+|--)\s*(?P<named>[A-Za-z_]\w*)"
)
_LINE = re.compile(r"(?:[^\\\n]|\\.)*\\?\n?", re.DOTALL)
"""A line with those that it continues on."""
_DOCUMENT = re.compile(r"<<-?\s*['\"\\]?(\w+)")


def read_commands(
    text: Text, known: Mapping[str, str] | None = None, sibling: Callable[[str], str] = lambda _: ""
) -> Script:
    """Return the commands of a script, in order. `known` are variables that are set outside of it.

    `sibling` returns the text of a file in the folder of the script, which it may read by `source`.
    """
    shell = _Shell(text, sibling=sibling)
    for name, value in (known or {}).items():
        shell.variables[name] = (word_of(placed(value, (1, 1))),)
    shell.read()
    return Script(tuple(shell.commands), tuple(shell.documents), tuple(shell.broken), tuple(shell.unread))


@cache
def _parser() -> Parser:
    # Imported late: inventories need no shell.
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


class _EnoughError(Exception):
    """The text has more statements than are read."""


@dataclass
class _Shell(Expander):
    sibling: Callable[[str], str] = lambda _: ""
    functions: dict[str, Node] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    local: list[str] = field(default_factory=list)
    depth: int = 0
    steps: int = 0
    sourced: int = 0
    commands: list[Command] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    broken: list[Position] = field(default_factory=list)
    unread: list[Position] = field(default_factory=list)
    """The beginnings of parts that bash could not read."""
    source: bytearray = field(default_factory=bytearray)
    """The text as the grammar gets it: one byte for each character."""
    ends: float = 0
    here: int = 0
    """The beginning of the statement that is read."""

    def read(self) -> None:
        """Read the whole text. Functions that nothing calls come last, with unknown arguments."""
        self.ends = time.process_time() + _SECONDS
        self.source, self.placeholders = _masked(self.text.chars)
        try:
            root = self._continued(self._parsed(0, len(self.source)))
            self._top(root, 0, len(self.source))
            for name, body in list(self.functions.items()):
                if name not in self.called:
                    self._call(name, body, None)
        except (_EnoughError, RecursionError):
            self.unread.append(self.position(self.here))

    def _parsed(self, start: int, end: int) -> Node:
        """Return the tree of a part of the text; it ends early where that takes too long."""
        from tree_sitter import Point, Range

        def chunk(offset: int, _: Point | None) -> bytes:
            in_time = time.process_time() < self.ends
            return bytes(self.source[offset : min(end, offset + _CHUNK)]) if in_time else b""

        parser = _parser()
        parser.included_ranges = [Range(Point(0, start), Point(0, end), start, end)]
        return parser.parse(chunk).root_node

    def _continued(self, root: Node) -> Node:
        """Return the tree in which a backslash with blanks or a comment after it continues its line, as intended."""
        before = len(self.broken)
        for found in _BROKEN.finditer(self.source.decode()):
            node = root.descendant_for_byte_range(found.start(), found.start())
            if node is None or node.type not in _QUOTES:
                self.broken.append(self.position(found.start()))
                self.source[found.start() : found.end()] = b" " * (len(found[0]) - 2) + b"\\\n"
        return self._parsed(0, len(self.source)) if len(self.broken) > before else root

    def _top(self, root: Node, start: int, end: int) -> None:
        """Read a tree; lines in which the grammar finds errors are read one by one."""
        if root.type == "ERROR":
            self._lines(start, end)
            return
        wrong: list[tuple[int, int]] = []
        for child in root.children:
            if _has_error(child):
                first = self.source.rfind(b"\n", start, child.start_byte) + 1
                last = self.source.find(b"\n", max(child.end_byte - 1, 0), end) + 1 or end
                wrong.append((min(first, child.start_byte), last))
        if root.end_byte < len(self.source[:end].rstrip()):
            wrong.append((root.end_byte, end))
        at = start
        children = root.children
        for first, last in [*wrong, (end, end)]:
            self._block([each for each in children if at <= each.start_byte and each.end_byte <= first])
            if max(first, at) < last:
                self._lines(max(first, at), last)
            at = max(at, last)

    def _lines(self, start: int, end: int) -> None:
        """Read a part of the text line by line."""
        reported = False
        while start < end:
            found = _LINE.match(self.text.chars, start, end)
            stop = found.end() if found and found.end() > start else end
            if marker := _DOCUMENT.search(self.text.chars, start, stop):
                ending = re.compile(rf"^[ \t]*{re.escape(marker[1])}[ \t]*$\n?", re.MULTILINE)
                closed = ending.search(self.text.chars, stop, end)
                stop = closed.end() if closed else stop
            if self.source[start:stop].strip():
                root = self._parsed(start, stop)
                if _has_error(root) or root.end_byte < start:
                    if not reported:
                        self.unread.append(
                            self.position(start + len(self.source[start:stop]) - len(self.source[start:stop].lstrip()))
                        )
                    reported = True
                    self._leniently(start, stop)
                else:
                    self._block(root.children)
            start = stop

    def _leniently(self, start: int, end: int) -> None:
        """Read a line that bash could not read: quotes without an end are plain characters."""
        words: list[Word] = []
        texts = [raw for raw, _ in split(self.text.cut(start, end), operators=True, comments=True)]
        for raw in [*texts, Text(";", self.text.at[start : start + 1])]:
            if re.fullmatch(r"[;&|()\n]+", raw.chars):
                while words and (str(words[0]) in _KEYWORDS or words[0].text.chars in ("$", "%")):
                    del words[0]
                if words:
                    self.commands.append(Command(tuple(words)))
                words = []
            else:
                word = word_of(raw, raw.at[0] if raw.at else self.position(start))
                unknown = (
                    word.unknown or "$" in raw.chars or "`" in raw.chars or ELIDED.fullmatch(raw.chars) is not None
                )
                words.append(replace(word, unknown=unknown))

    def _block(self, nodes: Sequence[Node]) -> None:
        for index, node in enumerate(nodes):
            following = nodes[index + 1].type if index + 1 < len(nodes) else ""
            if node.is_named:
                self._statement(node, background=following == "&")

    def _statement(self, node: Node, *, background: bool = False) -> None:
        self.steps += 1
        self.here = node.start_byte
        if self.steps > _MOST_STEPS:
            raise _EnoughError
        match node.type:
            case "command":
                self._command(node, background=background)
            case "variable_assignment" | "variable_assignments":
                self._assignments([node] if node.type == "variable_assignment" else node.named_children)
            case "declaration_command":
                self._declaration(node)
            case "unset_command":
                for each in node.named_children:
                    self.variables.pop(self.written(each).chars, None)
            case "redirected_statement":
                self._redirected(node, background=background)
            case "list":
                self._statement(node.children[0])
                self._branches([node.children[-1:], []], background=background)
            case "if_statement" | "elif_clause":
                self._if(node)
            case "while_statement":
                self._block(node.children_by_field_name("condition"))
                self._branches([node.children_by_field_name("body"), []])
            case "for_statement":
                self._for(node)
            case "c_style_for_statement":
                self._counting(node)
            case "case_statement":
                items = [each for each in node.named_children if each.type == "case_item"]
                fixed = [
                    [each for each in item.children if each not in item.children_by_field_name("value")]
                    for item in items
                ]
                self._branches([*fixed, []])
            case "function_definition":
                name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
                if name and body:
                    self.functions[self.written(name).chars] = body
            case "pipeline":
                first = len(self.commands)
                self._block(node.children)
                files = [file for command in self.commands[first + 1 :] if (file := _of_tee(command))]
                if files:
                    self.documents += _printed(self.commands[first], files[0])
            case "compound_statement" if self.source.startswith(b"((", node.start_byte):
                self._count(self.text.chars[node.start_byte + 2 : node.end_byte - 2], self.position(node.start_byte))
            case _ if node.type in _BLOCKS:
                self._block(node.children)

    def _branches(self, branches: list[list[Node]], *, background: bool = False) -> None:
        """Read alternatives. A variable has a value afterwards if no two of them disagree on it."""
        before, after = self.variables, list[Variables]()
        for nodes in branches:
            self.variables = dict(before)
            if background and len(nodes) == 1:
                self._statement(nodes[0], background=True)
            else:
                self._block(nodes)
            after.append(self.variables)
        self.variables = merged_variables(after)

    def _if(self, node: Node) -> None:
        self._block(node.children_by_field_name("condition"))
        conditions = node.children_by_field_name("condition")
        body = [
            each for each in node.children if each not in conditions and each.type not in ("elif_clause", "else_clause")
        ]
        others = [[each] for each in node.named_children if each.type in ("elif_clause", "else_clause")]
        whole = node.type == "if_statement" and any(each[0].type == "else_clause" for each in others)
        self._branches([body, *others, *([] if whole else [[]])])

    def _for(self, node: Node) -> None:
        name, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        if name is None or body is None:
            return
        values: list[Word] = []
        for each in node.children_by_field_name("value"):
            values += self._listed(each)
        known = [value for value in values if not value.unknown][:_MOST_ROUNDS]
        if not known or len(known) < len(values):
            known = [word_at(f"${self.written(name).chars}", self.position(name.start_byte), unknown=True)]
        for value in known:
            self.variables[self.written(name).chars] = (value,)
            self._statement(body)

    def _listed(self, node: Node) -> list[Word]:
        """Return the values of one word after `in`, with its ranges counted."""
        written = self.written(node)
        counted = _BRACES.fullmatch(written.chars) or _SEQUENCE.fullmatch(written.chars)
        if counted is None:
            if node.type in ("word", "concatenation") and re.search(r"[*?]|\[[^@*]", written.chars):
                return [Word(written, self.position(node.start_byte), unknown=True)]  # files
            return self.words(node)
        first, last = (1, counted[1]) if counted[2] is None else (counted[1], counted[2])
        numbers = range(int(first), min(int(last), int(first) + _MOST_ROUNDS) + 1)
        return [word_at(str(each), self.position(node.start_byte)) for each in numbers]

    def _counting(self, node: Node) -> None:
        """Read `for ((i=0; i<N; i++))`."""
        body = node.child_by_field_name("body")
        found = _COUNTING.match(self.text.chars, node.start_byte, node.end_byte)
        if body is None:
            return
        first, last = (self.computed(found[2]), self.computed(found[4])) if found else (None, None)
        if not found or first is None or last is None:
            self._branches([[body], []])
            return
        for number in range(first, min(last + (found[3] == "<="), first + _MOST_ROUNDS)):
            self.variables[found[1]] = (word_at(str(number), self.position(node.start_byte)),)
            self._statement(body)

    def _count(self, text: str, at: Position) -> None:
        """Apply `((PORT++))` or `((PORT += 2))`."""
        for part in text.split(","):
            if found := _COUNTED.fullmatch(part.strip(" \"'")):
                name, sign = found["name"] or found["named"], found["sign"] or found["before"]
                other = found["other"] or "1"
                value = self.computed(other if sign == "=" else f"{name} {sign[0]} ({other})")
                shown = f"${name}" if value is None else str(value)
                self.variables[name] = (word_at(shown, at, unknown=value is None),)

    def _call(self, name: str, body: Node, arguments: tuple[Word, ...] | None) -> None:
        """Read the body of a function."""
        if self.depth >= _DEEPEST:
            return
        self.called.add(name)
        before, outer, local = dict(self.variables), self.arguments, self.local
        self.arguments, self.local, self.depth = arguments, [], self.depth + 1
        self._statement(body)
        for each in self.local:
            self.variables.pop(each, None)
            if each in before:
                self.variables[each] = before[each]
        self.arguments, self.local, self.depth = outer, local, self.depth - 1

    def _redirected(self, node: Node, *, background: bool) -> None:
        """Read a command with redirections: words after a file are arguments, and here-documents are files."""
        body = node.child_by_field_name("body")
        files: list[Node] = []
        documents: list[Node] = []
        extra: list[Node] = []
        for redirect in node.children_by_field_name("redirect"):
            if redirect.type == "heredoc_redirect":
                documents.append(redirect)
                files += [each for each in redirect.children if each.type == "file_redirect"]
                extra += redirect.children_by_field_name("argument")
            elif redirect.type == "file_redirect":
                files.append(redirect)
        target = ""
        for file in files:
            destinations = file.children_by_field_name("destination")
            extra += destinations[1:]
            written = file.children[0].type if file.children else ""
            if destinations and written in (">", ">>", ">|", "&>") and not target:
                target = " ".join(map(str, self.words(destinations[0])))
        first = len(self.commands)
        if body is not None and body.type == "command":
            self._command(body, background=background, extra=extra)
        elif body is not None:
            self._statement(body, background=background)
        started = self.commands[first] if len(self.commands) > first else None
        if started and not documents and target and target != "/dev/null":
            self.documents += _printed(started, target)
        for document in documents:
            inner = [
                each
                for each in document.children
                if each.type in ("pipeline", "command", "redirected_statement", "list")
            ]
            begun = len(self.commands)
            self._block(inner)
            for command in self.commands[begun:]:
                target = target if target and target != "/dev/null" else _of_tee(command)
            content = next((each for each in document.children if each.type == "heredoc_body"), None)
            name = target if target and target != "/dev/null" else _of_tee(started) if started else ""
            if content is not None:
                text = self._content(document, content)
                self.documents.append(Document(text, name, started.words if started and not target else ()))

    def _content(self, redirect: Node, body: Node) -> Text:
        """Return a here-document as bash writes it, with unknown values veiled."""
        begins = next((self.written(each).chars for each in redirect.children if each.type == "heredoc_start"), "")
        text = self.written(body)
        if not re.search(r"['\"\\]", begins):
            parts = self.mixed(body, body.start_byte, body.end_byte, "document")
            text = joined(part.hidden for part in parts)
        if redirect.children[0].type == "<<-":
            kept = [
                text.cut(found.start(1), found.end(1))
                for found in re.finditer(r"^\t*([^\n]*\n?)", text.chars, re.MULTILINE)
            ]
            text = joined(kept)
        return text

    def _command(self, node: Node, *, background: bool, extra: Iterable[Node] = ()) -> None:
        settings: dict[str, Word] = {}
        assigned: Variables = {}
        words: list[Word] = []
        given = EMPTY
        ended = node.start_byte
        for child in node.children:
            if child.type == "comment":
                continue
            if settings and not words and _ENDED.search(self.text.chars, ended, child.start_byte):
                # The grammar takes several assignments on a line for a part of the command below.
                self.variables |= assigned
                self.commands.append(Command((), settings))
                settings, assigned = {}, {}
            if child.type == "variable_assignment":
                name, values = self._assigned(child)
                assigned[name] = values
                settings[name] = values[0] if values else Word(EMPTY, self.position(child.end_byte))
            elif child.type == "herestring_redirect" and child.named_children:
                given = joined(each.text for each in self.words(child.named_children[-1]) if not each.unknown)
            elif (child.is_named or child.type == "$") and not child.type.endswith("_redirect"):
                found = self.words(child)
                if found and words and _GLUED.fullmatch(self.text.chars, ended, child.start_byte):
                    found[0] = joined_words(words.pop(), found[0])  # no blank before the backslash
                words += found
            ended = child.end_byte
            if len(words) > LONGEST:
                break
        for child in extra:
            words += self.words(child)
        if not words:
            return
        self.commands.append(Command(tuple(words), settings, background, cut=self._cut(node.end_byte)))
        self._builtin([str(word) for word in words], words, settings, given)

    def _builtin(self, texts: list[str], words: list[Word], settings: Mapping[str, Word], given: Text) -> None:
        """Apply what a command changes in the shell itself."""
        if texts[0] in self.functions:
            self._call(texts[0], self.functions[texts[0]], tuple(words[1:]))
        elif texts[:2] == ["set", "--"]:
            self.arguments = tuple(words[2:])
        elif texts[0] == "shift" and self.arguments:
            self.arguments = self.arguments[1:]
        elif texts[0] == "let":
            for at, text in enumerate(texts[1:], start=1):
                self._count(text, words[at].start)
        elif texts[0] in ("source", ".") and len(words) > 1:
            self._source(words[1])
        elif texts[0] in ("read", "mapfile", "readarray"):
            names = [word for word in words[1:] if re.fullmatch(r"[A-Za-z_]\w*", str(word))]
            sign = re.escape(str(settings["IFS"])) if "IFS" in settings else ""
            cuts = [found.span() for found in re.finditer(rf"[{sign}]" if sign else r"\s+", given.chars)]
            limits = [0, *(end for _, end in cuts[: len(names) - 1]), len(given.chars)]
            for index, word in enumerate(names):
                value = word_at(f"${word}", word.start, unknown=True)
                if given.chars:
                    first = limits[index] if index < len(limits) - 1 else len(given.chars)
                    last = cuts[index][0] if index < min(len(cuts), len(names) - 1) else len(given.chars)
                    value = Word(given.cut(first, last), word.start)
                self.variables[str(word)] = (value,)

    def _source(self, word: Word) -> None:
        """Read what another file sets. Its characters stand where the file is named."""
        text = self.sibling(str(word).rpartition("/")[2])
        if not text:
            return
        self.sourced += 1
        if self.sourced > _MOST_SOURCED:
            raise _EnoughError
        inner = _Shell(placed(text, word.start), self.variables, steps=self.steps)
        inner.read()
        self.steps = inner.steps
        self.variables = inner.variables
        self.commands += [command for command in inner.commands if not command.words]

    def _cut(self, end: int) -> Cut | None:
        """Return the operator without a blank on either side that ends a command."""
        sign, after = self.text.chars[end : end + 1], self.text.chars[end + 1 : end + 2]
        if sign not in (";", "|", "&", "(") or not after or after in " \t\r\n;|&()<>":
            return None
        behind = re.match(rb"[^\s;|&()<>'\"$`]+", self.source[end + 1 :])
        return Cut(sign, self.position(end), behind[0].decode() if behind else "")

    def _assignments(self, nodes: Iterable[Node]) -> None:
        settings: dict[str, Word] = {}
        for node in nodes:
            name, values = self._assigned(node)
            self.variables[name] = values
            settings[name] = values[0] if values else Word(EMPTY, self.position(node.end_byte))
        self.commands.append(Command((), settings))

    def _declaration(self, node: Node) -> None:
        settings: dict[str, Word] = {}
        names: list[str] = []
        kind = self.written(node.children[0]).chars
        if any(self.written(child).chars == "=" for child in node.children):
            words = tuple(word for child in node.children[1:] for word in self.words(child))
            self.commands.append(Command(words))  # blanks around the sign: it sets nothing
            return
        for child in node.named_children:
            if child.type == "variable_assignment":
                name, values = self._assigned(child)
                self.variables[name] = values
                settings[name] = values[0] if values else Word(EMPTY, self.position(child.end_byte))
                names.append(name)
            elif child.type == "variable_name":
                names.append(self.written(child).chars)
        self.local += names if kind == "local" else []
        exported = kind == "export" or "-x" in self.written(node).chars.split()
        self.commands.append(Command((), settings, exports=tuple(names) if exported else ()))

    def _assigned(self, node: Node) -> tuple[str, tuple[Word, ...]]:
        """Return the name and the value of an assignment: one word, or the elements of an array."""
        named = node.child_by_field_name("name") or node
        name, index, _ = self.written(named).chars.partition("[")
        value = node.child_by_field_name("value")
        before = self.variables.get(name, ()) if any(each.type == "+=" for each in node.children) else ()
        if index:
            at = self.position(named.start_byte)
            return name, (*self.variables.get(name, ()), *self.words(value))[:MOST_ELEMENTS] if value else (
                Word(EMPTY, at),
            )
        if value is not None and value.type == "array":
            elements = [word for each in value.named_children if each.type != "comment" for word in self.words(each)]
            return name, (*before, *elements)[:MOST_ELEMENTS]
        parts = list(self.parts(value)) if value is not None else []
        word = self.word(parts, self.position(value.start_byte if value else node.end_byte), value)
        if before:
            word = joined_words(before[0], word)
        if len(word.text.chars) > LONGEST:
            written = self.written(node).cut(0, LONGEST)
            word = Word(written, word.start, unknown=True)
        return name, (word, *before[1:])


def _masked(chars: str) -> tuple[bytearray, list[int]]:
    """Return a text as ASCII of the same length without prompts, letters for its placeholders, and their places."""
    chars = re.sub(r"(\\?)\r\n", lambda found: " \\\n" if found[1] else " \n", chars) if "\r" in chars else chars
    source = bytearray(ord(char) if " " <= char < "\x7f" or char in "\t\n" else ord("x") for char in chars)
    for found in _PROMPT.finditer(chars):
        source[found.start() : found.end()] = b" " * len(found[0])
    placeholders = [(found.start(), found.end()) for found in _PLACEHOLDER.finditer(chars)]
    for start, end in placeholders:
        source[start:end] = b"x" * (end - start)
    return source, [start for start, _ in placeholders]


def _has_error(node: Node) -> bool:
    """Return whether the grammar skipped a part of a node, or added the end of a quotation."""
    if node.type == "ERROR" or (node.is_missing and node.type in ('"', "'")):
        return True
    return node.has_error and any(map(_has_error, node.children))


def _of_tee(command: Command) -> str:
    """Return the file that `tee` writes; empty for another command."""
    texts = [str(word) for word in command.words if not str(word).startswith("-")]
    names = [text.rpartition("/")[2] for text in texts]
    at = names.index("tee") + 1 if "tee" in names[:2] else len(texts)
    return next((text for text in texts[at:]), "")


def _printed(command: Command, name: str) -> Iterator[Document]:
    """Yield the file that `echo` or `printf` writes."""
    texts = [str(word) for word in command.words]
    if texts[:1] not in (["echo"], ["printf"]):
        return
    words = [word for word in command.words[1:] if not re.fullmatch(r"-[neE]+", str(word))]
    lines = [word.veiled for word in words]
    decoded = texts[0] == "printf" or any(re.fullmatch(r"-[nE]*e[nE]*", text) for text in texts[1:2])
    if texts[0] == "printf" and re.fullmatch(r"%s(?:\\n)?", texts[1] if len(texts) > 1 else ""):
        lines = [each for line in lines[1:] for each in (line, Text("\n", line.at[-1:] or ((1, 1),)))]
    elif decoded:
        lines = [without_escapes(line, r"\\(.)", {"n": "\n", "t": "\t"}) for line in lines]
    yield Document(joined(lines), name)
