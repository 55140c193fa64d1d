"""Parse shell text into commands, with variables expanded and without prompts and redirections."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from llamaherd.recipes.tokens import Piece, Position, Text, Token, joined, tokens


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
