"""Shell text as words that keep the position of each character, also from Compose commands and YAML values."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from llamaherd.inventory.yaml_file import Document, Path_

Position = tuple[int, int]
"""Line and column, from 1."""


@dataclass(frozen=True)
class Text:
    """Characters, and the position of each."""

    chars: str
    at: tuple[Position, ...]

    def cut(self, start: int, end: int) -> Text:
        """Return the characters from `start` up to `end`."""
        return Text(self.chars[start:end], self.at[start:end])


def joined(texts: Iterable[Text]) -> Text:
    """Return the texts as one, in their order."""
    parts = list(texts)
    return Text("".join(part.chars for part in parts), tuple(at for part in parts for at in part.at))


EMPTY = Text("", ())
_POWERSHELL = re.compile(r"(?<=[ \t])`(?=[ \t]*\r?\n)")


def unixed(text: Text) -> Text:
    """Return the text with backslashes for PowerShell's backquotes at line ends, if it has no other backquotes."""
    chars, found = _POWERSHELL.subn("\\\\", text.chars)
    return Text(chars, text.at) if found == text.chars.count("`") else text


def positioned(chars: str, line: int = 1, column: int = 1) -> Text:
    """Return a text whose first character is at this line and column."""
    at = []
    for char in chars:
        at.append((line, column))
        line, column = (line + 1, 1) if char == "\n" else (line, column + 1)
    return Text(chars, tuple(at))


@dataclass(frozen=True)
class Piece:
    """A part of a word: plain characters, a variable, or an expansion that only a shell can compute: `$(nproc)`."""

    text: Text
    """The part as written; the default of a variable is in `default`."""
    variable: str = ""
    default: str | None = None
    unknown: bool = False
    quoted: bool = False


@dataclass(frozen=True)
class Token:
    """A word before its variables are known, an operator, a here-document, or a broken line continuation."""

    kind: str
    """`word`, `operator`, `document` or `broken`."""
    start: Position
    text: str = ""
    pieces: tuple[Piece, ...] = ()
    document: Text = EMPTY


_OPERATOR = re.compile(r"\d*>&\d?-?|&>>|&>|\d*>>|\d*>\|?|<<<|<<-?|<|\|\||&&|;;|\|&|[|&;()\n]")
_NAME = re.compile(r"[A-Za-z_]\w*")
_EXPANSION = re.compile(r"([A-Za-z_]\w*)(\[[@*]\])?(?:(:?[-=])(.*))?", re.DOTALL)
_LITERAL_IN_DOUBLE_QUOTES = '$`"\\'
_ENDS_WORD = " \t\r\n;&|()<>"
_PLAIN = re.compile(r"[^\\'\"$` \t\r\n;&|()<>]+")
_PLAIN_IN_DOUBLE_QUOTES = re.compile(r"[^\\$`]+")
_CONTINUED = re.compile(r"\\([ \t]*(?:[ \t]#[^\n]*)?)\r?\n")
"""A backslash at the end of its line; the group has blanks or a comment after it."""
_PLACEHOLDER = re.compile(r"<[A-Za-z](?:[^<>\n|&;]*[^<>\n|&; ])?>|\[--?[A-Za-z][^\[\]\n]*\]")
"""`<model>` and `[--port PORT]`, as pages have them; to a shell the first is two redirections.
`<in >out` has a blank."""


def tokens(text: Text, *, comments: bool = True) -> Iterator[Token]:
    """Yield the tokens of a shell text. Unclosed quotes are plain characters. `comments`: whether `#` begins one."""
    return _Lexer(text, comments=comments).tokens()


class _Lexer:
    def __init__(self, text: Text, *, comments: bool) -> None:
        self.text = text
        self.comments = comments
        self.chars = text.chars
        self.here = 0
        self.partners = _partners(text.chars)
        self.awaited: list[str] = []
        """Words that end the here-documents which begin after this line."""

    def tokens(self) -> Iterator[Token]:
        document_next = False
        while self.here < len(self.chars):
            char = self.chars[self.here]
            if char in " \t\r":
                self.here += 1
            elif continued := _CONTINUED.match(self.chars, self.here):
                if continued[1]:
                    yield Token("broken", self.text.at[self.here])
                self.here = continued.end()
            elif char == "#" and self.comments:
                self.here = self._until("\n")
            elif (operator := _OPERATOR.match(self.chars, self.here)) and not self._placeholder():
                yield Token("operator", self.text.at[self.here], operator[0])
                self.here = operator.end()
                document_next = operator[0] in {"<<", "<<-"}
                if operator[0] == "\n":
                    yield from self._documents()
            else:
                word = self._word()
                yield word
                if document_next:
                    self.awaited.append("".join(piece.text.chars for piece in word.pieces))
                    document_next = False

    def _until(self, end: str) -> int:
        found = self.chars.find(end, self.here)
        return len(self.chars) if found < 0 else found

    def _documents(self) -> Iterator[Token]:
        """Yield the here-documents that begin on this line."""
        for end in self.awaited:
            start = self.here
            while self.here < len(self.chars):
                line_end = self._until("\n")
                line = self.chars[self.here : line_end]
                if line.strip() == end:
                    break
                self.here = min(line_end + 1, len(self.chars))
            if start < len(self.chars):
                yield Token("document", self.text.at[start], document=self.text.cut(start, self.here))
            self.here = self._until("\n")
        self.awaited.clear()

    def _word(self) -> Token:
        start = self.here
        pieces: list[Piece] = []
        while self.here < len(self.chars):
            char = self.chars[self.here]
            if placeholder := self._placeholder():
                pieces.append(Piece(self.text.cut(self.here, placeholder), unknown=True))
                self.here = placeholder
            elif char in _ENDS_WORD:
                break
            elif char == "\\":
                if _CONTINUED.match(self.chars, self.here):
                    break
                self._escaped(pieces)
            elif char == "'" and (end := self.chars.find("'", self.here + 1)) > 0:
                pieces.append(Piece(self.text.cut(self.here + 1, end), quoted=True))
                self.here = end + 1
            elif char == '"' and (end := self._closing_quote()) > 0:
                pieces += self._double_quoted(end)
            elif char in "$`":
                pieces.append(self._expansion(quoted=False))
            else:
                plain = _PLAIN.match(self.chars, self.here)
                pieces.append(self._taken(plain.end() if plain else self.here + 1))
        return Token("word", self.text.at[start], self.chars[start : self.here], tuple(pieces))

    def _placeholder(self) -> int:
        """Return the end of the placeholder at this position; 0 for none."""
        found = _PLACEHOLDER.match(self.chars, self.here) if self.chars[self.here] in "<[" else None
        return found.end() if found else 0

    def _taken(self, end: int, *, quoted: bool = False) -> Piece:
        """Return the characters from this position up to `end`, unchanged."""
        start, self.here = self.here, end
        return Piece(self.text.cut(start, end), quoted=quoted)

    def _escaped(self, pieces: list[Piece]) -> None:
        pieces.append(Piece(self.text.cut(self.here + 1, self.here + 2), quoted=True))
        self.here += 2

    def _closing_quote(self) -> int:
        index = self.here + 1
        while index < len(self.chars):
            if self.chars[index] == "\\":
                index += 1
            elif self.chars[index] == '"':
                return index
            index += 1
        return -1

    def _double_quoted(self, end: int) -> list[Piece]:
        self.here += 1
        pieces = [Piece(EMPTY, quoted=True)]  # `""` is a word
        while self.here < end:
            char = self.chars[self.here]
            if char == "\\" and self.chars[self.here + 1] == "\n":
                self.here += 2
            elif char == "\\" and self.chars[self.here + 1] in _LITERAL_IN_DOUBLE_QUOTES:
                self._escaped(pieces)
            elif char in "$`":
                pieces.append(self._expansion(quoted=True))
            else:
                plain = _PLAIN_IN_DOUBLE_QUOTES.match(self.chars, self.here, end)
                pieces.append(self._taken(plain.end() if plain else self.here + 1, quoted=True))
        self.here = max(self.here, end) + 1
        return pieces

    def _expansion(self, *, quoted: bool) -> Piece:
        """Return the expansion that begins with `$` or a backquote at this position, or the plain character."""
        start = self.here
        after = self.chars[start + 1 : start + 2]
        end = start + 1
        piece = Piece(self.text.cut(start, end), quoted=quoted)
        if self.chars[start] == "`":
            end = self.chars.find("`", start + 1) + 1
            piece = Piece(self.text.cut(start, end), unknown=True, quoted=quoted)
        elif after in {"(", "{"}:
            end = self.partners.get(start + 1, -1) + 1
            inner = self.chars[start + 2 : end - 1]
            parts = _EXPANSION.fullmatch(inner) if after == "{" else None
            piece = Piece(
                self.text.cut(start, end),
                variable=parts[1] if parts else "",
                default=parts[4] if parts else None,
                unknown=parts is None,
                quoted=quoted,
            )
        elif name := _NAME.match(self.chars, start + 1):
            end = name.end()
            piece = Piece(self.text.cut(start, end), variable=name[0], quoted=quoted)
        elif after and after in "'\"" and not quoted:  # `$'…'`: the quotes follow
            piece = Piece(EMPTY)
        elif after and after in "@*#?!$0123456789":
            end = start + 2
            piece = Piece(self.text.cut(start, end), unknown=True, quoted=quoted)
        if end <= start:
            end = start + 1
            piece = Piece(self.text.cut(start, end), quoted=quoted)
        self.here = end
        return piece


def _partners(chars: str) -> dict[int, int]:
    """Return the positions of closing brackets by those of `(` and `{`; unclosed ones are left out."""
    partners: dict[int, int] = {}
    opened: dict[str, list[int]] = {")": [], "}": []}
    for index, char in enumerate(chars):
        if char in "({":
            opened[")" if char == "(" else "}"].append(index)
        elif char in ")}" and opened[char]:
            partners[opened[char].pop()] = index
    return partners


@dataclass(frozen=True)
class ComposeCommand:
    """The intended command, and the positions where Compose reads it otherwise."""

    text: Text
    """The command without backslashes at line ends, and without the part that Compose drops."""
    continued: Position | None = None
    """The first backslash before a blank or a line's end."""
    operator: tuple[str, Position] | None = None
    """The operator at which the command ends for Compose."""


def read_compose_command(text: Text) -> ComposeCommand:
    """Read a text as Compose does, outside of quotes."""
    kept: list[Text] = []
    continued: Position | None = None
    quote = ""
    index = 0
    while index < len(text.chars):
        char, one = text.chars[index], text.cut(index, index + 1)
        if char == "\\" and quote != "'":
            if not quote and text.chars[index + 1 : index + 2].isspace():
                continued = continued or text.at[index]
                one = Text(" ", one.at)
            else:
                one = text.cut(index, index + 2)
        elif char in "'\"":
            quote = "" if quote == char else quote or char
        elif char in ";&|<>" and not quote:
            return ComposeCommand(joined(kept), continued, (char, text.at[index]))
        kept.append(one)
        index += len(one.chars)
    return ComposeCommand(joined(kept), continued)


def yaml_text_at(document: Document, whole: Text, path: Path_, value: str) -> Text:
    """Return a value with the position of each of its characters, whether it is quoted, folded or plain.

    `whole` is the text of the file.
    """
    place = document.value(path)
    start = bisect_left(whole.at, (place.line, place.column))
    positions: list[tuple[int, int]] = []
    here = start
    if whole.chars[start : start + 1] in {">", "|"}:
        here = max(whole.chars.find("\n", start), start)
    for char in value:
        found = here if char.isspace() else whole.chars.find(char, here)
        if found < 0 or found >= len(whole.at):
            return Text(value, ((place.line, place.column),) * len(value))
        positions.append(whole.at[found])
        here = found + 1 if not char.isspace() else here
    return Text(value, tuple(positions))
