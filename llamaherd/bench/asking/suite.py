"""Our own prompts, by kind of text: how fast a server is depends on what it writes, most of all where it drafts.

A suite is known by the hash of all of its prompts: results of different suites do not compare. It needs no network,
and no tokenizer but that of the server.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from llamaherd.bench.results.result import Kind, SuiteRef

NAME = "llamaherd"
KINDS: tuple[Kind, ...] = ("code", "prose", "copy-edit", "extract", "reasoning")

_FOLDER = Path(__file__).parent / "prompts"
_LONG = _FOLDER / "long.txt.gz"
_TRIES = 24
"""Times that a server is asked for the number of tokens: halving a million characters takes no more."""


@dataclass(frozen=True)
class Prompt:
    """A task that fills an answer of its own accord, so that nothing must be forced to go on."""

    kind: Kind
    name: str
    text: str


@dataclass(frozen=True)
class Suite:
    """All prompts, those of each kind in a fixed order."""

    prompts: Mapping[Kind, tuple[Prompt, ...]]
    sha256: str

    @property
    def ref(self) -> SuiteRef:
        """What a result says of it."""
        return SuiteRef(name=NAME, sha256=self.sha256)


@cache
def suite() -> Suite:
    """Our suite."""
    prompts = {
        kind: tuple(
            Prompt(kind, file.stem, file.read_text(encoding="utf-8")) for file in sorted((_FOLDER / kind).glob("*.txt"))
        )
        for kind in KINDS
    }
    whole = hashlib.sha256()
    for each in (prompt for kind in KINDS for prompt in prompts[kind]):
        whole.update(f"{each.kind}/{each.name}\0{each.text}\0".encode())
    whole.update(long_base().encode())
    return Suite(prompts, whole.hexdigest())


@cache
def long_base() -> str:
    """Our own prose and code as they once were, piece by piece in turn: a million characters that stay the same."""
    with gzip.open(_LONG, "rt", encoding="utf-8") as stream:
        return stream.read()


def long_text(characters: int) -> str:
    """So many characters of it; it begins anew where it ends, which no context of 262,144 tokens comes to."""
    base = long_base()
    return base * (characters // len(base)) + base[: characters % len(base)]


def long_text_of(tokens: int, count: Callable[[str], int]) -> str:
    """The longest text of at most so many tokens, as `count` counts them: the server's own tokenizer.

    The same for the same tokenizer. Where it never comes to exactly so many, the text is some tokens shorter.
    """
    least, most = 0, max(64, tokens * 16)
    guess = tokens * 4
    for _ in range(_TRIES):
        found = count(long_text(guess))
        if found == tokens:
            return long_text(guess)
        least, most = (guess, most) if found < tokens else (least, guess)
        if most - least <= 1:
            break
        # Tokens come evenly enough to aim by their mean length; a step that leads nowhere new is halved.
        aim = round(guess * tokens / found) if found else most
        guess = aim if least < aim < most else (least + most) // 2
    return long_text(least)
