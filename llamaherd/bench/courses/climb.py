"""The way up a ladder of depths: requests that only ever extend one prompt, and what each answer says of the cache.

On the standard library alone, as it may be brought to a host. It speaks llama.cpp's own API, which takes tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from llamaherd.bench.asking.client import Failure, Patience, Target
from llamaherd.bench.asking.plain import Told, tell
from llamaherd.bench.asking.stream import Timings, timings_of
from llamaherd.diagnostics.findings import UserError

_PATIENCE = Patience(first=3600, silence=3600, total=3600)
"""A long prompt is read in silence."""

_KEPT = ["tokens", "timings", "stop_type"]
"""Of an answer: its prompt is known here."""

Complete = Callable[[Sequence[int], int, bool], Told | Failure]
"""Asks for so many tokens after these, and whether what is in the cache is to be taken."""


@dataclass(frozen=True)
class Written:
    """One answer: on which rung, its number there, and why it does not count, if so."""

    rung: int
    number: int
    at: float
    timings: Timings
    total_ms: float
    excluded: str | None


@dataclass
class Climb:
    """One way up: the prompt so far, and how much of it the server has in its cache.

    On each depth `tokens` are written `times` times.
    """

    depths: Sequence[int]
    tokens: int
    times: int
    complete: Complete
    clock: Callable[[], float]
    prompt: list[int] = field(default_factory=list)
    cached: int = 0

    def answers(self, words: Sequence[int]) -> Iterator[Written]:
        """All of them; the prompt grows by these words. Raises UserError where the server gives none."""
        used = 0
        for rung, depth in enumerate(self.depths):
            used += self._grow(depth, words[used:])
            for number in range(self.times):
                yield self._answer(rung, number)
            # Where the server does not give back what it wrote, the way goes on from the prompt.
            used += self._grow(depth + self.tokens * self.times, words[used:])

    def _grow(self, length: int, words: Sequence[int]) -> int:
        missing = length - len(self.prompt)
        self.prompt += words[:missing]
        return missing

    def _answer(self, rung: int, number: int) -> Written:
        at = self.clock()
        found = self.complete(self.prompt, self.tokens, self.cached > 0)
        if isinstance(found, Failure):
            raise UserError(f"at a depth of {len(self.prompt):,} tokens: {found.message}", found.help)
        value = found.value if isinstance(found.value, dict) else {}
        told = value.get("timings")
        timings = timings_of(told if isinstance(told, dict) else {})
        excluded = self._why_not(timings)
        self._extend(value.get("tokens"))
        return Written(rung, number, at, timings, found.total_ms, excluded)

    def _why_not(self, timings: Timings) -> str | None:
        """Why an answer says nothing of its depth: the cache had less than was there, or nobody knows."""
        if timings.prompt_n is None or timings.predicted_n is None:
            return "the server does not tell what it read and wrote"
        if timings.predicted_n != self.tokens:
            return f"it wrote {timings.predicted_n:,} tokens, and not {self.tokens:,}"
        expected = min(self.cached, len(self.prompt) - 1)
        # ik_llama.cpp tells only what it has read.
        found = len(self.prompt) - timings.prompt_n if timings.cache_n is None else timings.cache_n
        if found != expected:
            return f"{found:,} tokens came from the cache, and not the {expected:,} that were there"
        return None

    def _extend(self, written: Any) -> None:
        """The last token that was written was never read: it is not in the cache."""
        self.cached = len(self.prompt)
        if _are_tokens(written) and len(written) == self.tokens:
            self.prompt += written
            self.cached = len(self.prompt) - 1


def completing(target: Target, model: str) -> Complete:
    """Asks a server, always for the same slot: a text that goes on is no task that could be done."""

    def complete(prompt: Sequence[int], most: int, reuse: bool) -> Told | Failure:
        body = {"prompt": list(prompt), "n_predict": most, "ignore_eos": True, "cache_prompt": reuse, "id_slot": 0}
        body |= {"return_tokens": True, "response_fields": _KEPT, "stream": False, "model": model}
        return tell(target, "/completion", body, _PATIENCE)

    return complete


def words_of(target: Target, model: str, most: int, text_of: Callable[[int], str]) -> Sequence[int]:
    """So many tokens by the server's own tokenizer, of a text of so many letters. Raises UserError."""
    for letters in (5, 10, 20):
        body = {"model": model, "content": text_of(most * letters), "add_special": True}
        found = tell(target, "/tokenize", body, _PATIENCE)
        if isinstance(found, Failure):
            raise UserError(f"a text for a depth cannot be counted: {found.message}", found.help)
        tokens = found.value.get("tokens") if isinstance(found.value, dict) else None
        if not _are_tokens(tokens):
            break
        if len(tokens) >= most:
            return tokens[:most]
    raise UserError("the server does not tell the tokens of a text", "leave out `--depth`")


def _are_tokens(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(each) is int for each in value)
