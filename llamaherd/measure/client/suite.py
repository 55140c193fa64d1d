"""Load the prompt suite, and generate cache busters: prompt beginnings that no cache contains."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from llamaherd.measure.results.result import Kind, SuiteRef

_FOUR_LETTERS = """
acid also area army away baby back ball band bank base bath bear beat bell best
bird blue boat body bone book born both bowl burn bush calm came camp card care
case cash cast cell city club coal coat code cold come cook cool corn cost crew
dark data date dawn days dead deal deep desk dish door down draw drop duck dust
"""
CACHE_BUSTER_WORDS = tuple(_FOUR_LETTERS.split())
"""Sixty-four common words of four letters: most tokenizers make one token of each."""

MOST_CACHE_BUSTERS = len(CACHE_BUSTER_WORDS) ** 3
_COUNTED, _LOTS = 3, 5


def cache_buster(session: str, number: int) -> str:
    """Return the beginning of the prompt of this number: different for each number, and in each session."""
    if not 0 <= number < MOST_CACHE_BUSTERS:
        raise ValueError(f"{number} is no number of a prompt; there are {MOST_CACHE_BUSTERS:,}")
    counted = [
        CACHE_BUSTER_WORDS[number // len(CACHE_BUSTER_WORDS) ** place % len(CACHE_BUSTER_WORDS)]
        for place in range(_COUNTED)
    ]
    digest = hashlib.sha256(f"{session}\0{number}".encode()).digest()
    return (
        " ".join([*counted, *(CACHE_BUSTER_WORDS[byte % len(CACHE_BUSTER_WORDS)] for byte in digest[:_LOTS])]) + ".\n\n"
    )


SUITE_NAME = "llamaherd"
KINDS: tuple[Kind, ...] = ("code", "prose", "copy-edit", "extract", "reasoning")

_FOLDER = Path(__file__).parent / "prompts"
_LONG = _FOLDER / "long.txt.gz"
_TRIES = 24
"""How often a server counts tokens at most: halving a million characters takes no more."""


@dataclass(frozen=True)
class Prompt:
    """A task whose response is long by itself, so that no model must be forced to continue."""

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
        """The suite's name and hash in a result."""
        return SuiteRef(name=SUITE_NAME, sha256=self.sha256)


@cache
def suite() -> Suite:
    """Read our suite."""
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
    """Read our own prose and code of one day, in alternating pieces: a million characters that stay the same."""
    with gzip.open(_LONG, "rt", encoding="utf-8") as stream:
        return stream.read()


def long_text(characters: int) -> str:
    """Return so many characters of it, repeated from its end; no context of 262,144 tokens reaches it."""
    base = long_base()
    return base * (characters // len(base)) + base[: characters % len(base)]


def long_text_of(tokens: int, count: Callable[[str], int]) -> str:
    """Return the longest text of at most so many tokens, as `count`, the server's own tokenizer, counts them.

    It is the same for the same tokenizer. If no text has exactly so many tokens, it is some tokens shorter.
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
