"""A command of Compose that is one text, as Compose splits it.

Source: mattn/go-shellwords 1.0.12, shellwords.go (Parse). It is no shell: a backslash makes the next character a
part of an argument, also a blank and a line's end; and what stands behind an operator is dropped without a word.
"""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.recipes.tokens import Position, Text, joined


@dataclass(frozen=True)
class Mistaken:
    """What its author meant, and where Compose takes it otherwise."""

    text: Text
    """Without backslashes that were to continue a line, and without what is dropped."""
    continued: Position | None = None
    """The first backslash before a blank or a line's end."""
    operator: tuple[str, Position] | None = None
    """Where the command ends for Compose."""


def compose_words(text: Text) -> Mistaken:
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
            return Mistaken(joined(kept), continued, (char, text.at[index]))
        kept.append(one)
        index += len(one.chars)
    return Mistaken(joined(kept), continued)
