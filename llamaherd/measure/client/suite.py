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
"""Sixty-four, of four letters each: common ones, of which most tokenizers make one token each."""

MOST_CACHE_BUSTERS = len(CACHE_BUSTER_WORDS) ** 3
_COUNTED, _LOTS = 3, 5


def cache_buster(session: str, number: int) -> str:
    """The beginning of the prompt of this number: another for each number, and in each session."""
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
        return SuiteRef(name=SUITE_NAME, sha256=self.sha256)


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
