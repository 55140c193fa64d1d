"""Parse shell text as commands: tokens and words that keep the position of each character, and variables."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

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


@dataclass(frozen=True)
class Word:
    """One word of a command. Parts that only a running shell can compute stay as they are written."""

    text: Text
    start: Position
    unknown: bool = False
    """Whether it contains a variable that the text does not set, or another command's output."""
    unset: tuple[str, ...] = ()
    tilde: bool = False
    """Whether it begins with a quoted `~`, which no shell replaces by a home."""

    def __str__(self) -> str:
        return self.text.chars


@dataclass(frozen=True)
class Cut:
    """An operator inside of an apparent word, and the text behind it."""

    operator: str
    start: Position
    behind: str


@dataclass(frozen=True)
class Command:
    """A program with its arguments, and the variables before it."""

    words: tuple[Word, ...]
    settings: Mapping[str, Word] = field(default_factory=dict)
    background: bool = False
    exports: tuple[str, ...] = ()
    """The variables that it exports to the programs that follow."""
    cut: Cut | None = None
    """The operator that ends it without a blank on either side."""


@dataclass(frozen=True)
class Script:
    """The commands and files of a shell text."""

    commands: tuple[Command, ...]
    documents: tuple[Text, ...]
    """Here-documents: files that the script writes."""
    broken: tuple[Position, ...]
    """Backslashes with blanks or a comment after them: they continue no line."""


_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[\w*\])?(\+?)=")
_KEYWORDS = {"if", "then", "else", "elif", "do", "while", "until", "!", "{", "$", "%", ">"}
_DECLARING = {"export", "declare", "local", "readonly", "typeset"}
_MOST_ELEMENTS, _LONGEST_VALUE = 1000, 4000
"""The limit that keeps `A=$A$A` on many lines from filling the memory."""
_ELIDED = re.compile(r"[\w./:-]*(?:\.\.\.|…)|\[[^\]\"']+\]|\{[\w.+-]+(?:[,|][\w.+-]+)*\}")
"""Placeholders: `...`, `[options]`, `{none,mean}`, `{size}`."""
_PROMPT = re.compile(r"\S+@\S+[$#%]")


def read_commands(text: Text, known: Mapping[str, str] | None = None) -> Script:
    """Return the commands of a script, in order. `known` are variables that are set outside of it."""
    return _Reader(text, known or {}).read()


def expand(text: Text, known: Mapping[str, str]) -> tuple[Word, ...]:
    """Return the words of a command line that no shell reads, as for Compose: operators and comments are words."""
    reader = _Reader(text, known)
    words: list[Word] = []
    for token in tokens(text, comments=False):
        if token.kind == "word":
            words += reader.words(token)
        elif token.kind == "operator" and token.text.strip():
            at = (token.start,) * len(token.text)
            words.append(Word(Text(token.text, at), token.start))
    return tuple(words)


class _Reader:
    def __init__(self, text: Text, known: Mapping[str, str]) -> None:
        self.text = text
        self.variables: dict[str, tuple[Word, ...]] = {
            name: (Word(Text(value, ((1, 1),) * len(value)), (1, 1)),) for name, value in known.items()
        }

    def read(self) -> Script:
        commands: list[Command] = []
        documents: list[Text] = []
        broken: list[Position] = []
        pending: list[Token] = []
        found = tuple(tokens(self.text))
        stream, cuts = iter(found), _cuts(found)
        target = False
        for token in stream:
            if token.kind == "document":
                documents.append(token.document)
            elif token.kind == "broken":
                broken.append(token.start)
            elif token.kind == "word":
                if not target:
                    pending.append(token)
                target = False
            elif token.text == "(" and pending and _ASSIGNMENT.fullmatch(pending[-1].text):
                self._array(pending.pop(), stream)
            elif token.text[-1] in "<>" or token.text[-2:] in {">|", "<-"}:
                target = True  # the next word is a file
            elif not re.search(r">&[\d-]*$", token.text):
                cut = cuts.get(token.start)
                commands += self._command(pending, background=token.text == "&", cut=cut)
                pending, target = [], False
        commands += self._command(pending, background=False)
        return Script(tuple(commands), tuple(documents), tuple(broken))

    def words(self, token: Token) -> list[Word]:
        """Return the words that a word becomes: several, if an unquoted variable in it has blanks or is an array."""
        if token.text in {'"$@"', "$@", "$*", '"$*"'}:
            return []
        if len(token.pieces) <= 2 and (array := self._whole_array(token)) is not None:
            return list(array)
        words: list[Word] = []
        here: list[Text] = []
        """Return the parts of the current word so far."""
        unknown, unset, split = False, list[str](), False
        for piece in token.pieces:
            value, piece_unknown, piece_unset = self._value(piece)
            unknown, unset = unknown or piece_unknown, unset + piece_unset
            blanks = bool(piece.variable) and not piece.quoted and not piece_unknown
            first, *others = _parts(value) if blanks else [value]
            here.append(first)
            for part in others:
                split = True
                if (text := joined(here)).chars:
                    words.append(Word(text, text.at[0], unknown, tuple(unset)))
                here = [part]
        text = joined(here)
        if not text.chars and not any(piece.quoted for piece in token.pieces):
            return words
        start = text.at[0] if split and text.at else token.start
        unknown = unknown or _ELIDED.fullmatch(token.text) is not None
        return [*words, Word(text, start, unknown, tuple(unset), text.chars[:2] == "~/" and self._quoted(token))]

    def _quoted(self, token: Token) -> bool:
        """Return whether the beginning of a word is quoted, here or where its variable is set."""
        first = next(piece for piece in token.pieces if piece.text.chars)
        value = self.variables.get(first.variable, ()) if first.variable else ()
        return value[0].tilde if value else first.quoted

    def _whole_array(self, token: Token) -> tuple[Word, ...] | None:
        """Return the elements of `"${NAME[@]}"`; None for any other word."""
        pieces = [piece for piece in token.pieces if piece.text.chars]
        if len(pieces) == 1 and pieces[0].text.chars.endswith(("[@]}", "[*]}")):
            return self.variables.get(pieces[0].variable)
        return None

    def _value(self, piece: Piece) -> tuple[Text, bool, list[str]]:
        if piece.unknown or not piece.variable:
            return piece.text, piece.unknown, []
        values = self.variables.get(piece.variable)
        if values is None:
            if piece.default is not None:
                default = piece.default.strip("\"'")
                return Text(default, piece.text.at[-1:] * len(default)), "$" in default, []
            return piece.text, True, [piece.variable]
        blank = (Text(" ", values[0].text.at[:1] or (values[0].start,)),) if values else ()
        value = joined(text for each in values for text in (*blank, each.text))
        return (
            value.cut(1, len(value.chars)),
            any(each.unknown for each in values),
            [name for each in values for name in each.unset],
        )

    def _array(self, name: Token, stream: Iterator[Token]) -> None:
        """Store the words of `NAME=( … )` or `NAME+=( … )`, up to the closing bracket."""
        elements: list[Word] = []
        for token in stream:
            if token.kind == "operator" and token.text == ")":
                break
            if token.kind == "word":
                elements += self.words(token)
        found = _ASSIGNMENT.fullmatch(name.text)
        if found:
            before = self.variables.get(found[1], ()) if found[2] else ()
            self.variables[found[1]] = (*before, *elements)[:_MOST_ELEMENTS]

    def _command(self, pending: list[Token], *, background: bool, cut: Cut | None = None) -> Iterator[Command]:
        settings: dict[str, Word] = {}
        rest = list(pending)
        while rest and (rest[0].text in _KEYWORDS or _PROMPT.fullmatch(rest[0].text)):
            rest.pop(0)
        declaring = bool(rest) and rest[0].text in _DECLARING
        exporting = declaring and rest.pop(0).text == "export"
        names = tuple(token.text.partition("=")[0] for token in rest) if exporting else ()
        while rest and ((found := _ASSIGNMENT.match(rest[0].text)) or (declaring and rest[0].text.startswith("-"))):
            token = rest.pop(0)
            if found:
                settings[found[1]] = self._assigned(token, found)
        spaced = len(rest) > 1 and rest[1].text == "="
        words = [] if declaring and not spaced else [word for token in rest for word in self.words(token)]
        if words:
            yield Command(tuple(words), settings, background, cut=cut)
            return
        for name, word in settings.items():
            self.variables[name] = (word,)
        if settings or names:
            yield Command((), settings, exports=names)

    def _assigned(self, token: Token, found: re.Match[str]) -> Word:
        """Return the value in `NAME=VALUE`, which is never split."""
        texts, unknown, unset = list[Text](), False, list[str]()
        for piece in token.pieces:
            value, piece_unknown, piece_unset = self._value(piece)
            texts.append(value)
            unknown, unset = unknown or piece_unknown, unset + piece_unset
        text = joined(texts)
        value = text.cut(len(found[0]), len(text.chars))
        if found[2] and (before := self.variables.get(found[1])):
            value = joined((before[0].text, value))
        if len(value.chars) > _LONGEST_VALUE:
            return Word(Text(token.text, (token.start,) * len(token.text)), token.start, unknown=True)
        tilde = re.match(r"['\"]~/", token.text[len(found[0]) :]) is not None
        return Word(value, value.at[0] if value.at else token.start, unknown, tuple(unset), tilde)


def _cuts(found: tuple[Token, ...]) -> dict[Position, Cut]:
    """Return the operators between two words without a blank on either side, by their place."""
    three = zip(found, found[1:], found[2:], strict=False)
    return {
        operator.start: Cut(operator.text, operator.start, after.text)
        for before, operator, after in three
        if (before.kind, operator.kind, after.kind) == ("word", "operator", "word")
        and operator.text in {";", "|", "&", "("}
        and _end(before) == operator.start
        and _end(operator) == after.start
    }


def _end(token: Token) -> Position:
    return token.start[0], token.start[1] + len(token.text)


def _parts(text: Text) -> Iterator[Text]:
    """Yield the text split at blanks, at least one part; a backslash before a line's end is a blank."""
    ends = [match.span() for match in re.finditer(r"(?:\s|\\\n)+", text.chars)]
    start = 0
    for blank_start, blank_end in ends:
        yield text.cut(start, blank_start)
        start = blank_end
    yield text.cut(start, len(text.chars))
