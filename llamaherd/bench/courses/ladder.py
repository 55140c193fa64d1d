"""Speed by depth in one prefill: a prompt that grows from rung to rung, on each of which some tokens are written.

What was written stays in the prompt: so it is only ever extended, which recurrent models can do as well. Each answer
tells what came from the cache; where that is not all that was there, a run does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llamaherd.bench.asking.salt import salt
from llamaherd.bench.asking.suite import long_text
from llamaherd.bench.courses.climb import Climb, Written, completing, words_of
from llamaherd.bench.courses.course import Road
from llamaherd.bench.results.result import Condition, Run

TOKENS, TIMES = 128, 3
"""Tokens that are written at once, and how often on each rung."""


@dataclass(frozen=True)
class Rung:
    """A depth. `begin` is what was in the cache before: the piece from there on is read at once."""

    begin: int
    depth: int


@dataclass(frozen=True)
class Ladder:
    """Depths from the least on. `tokens` are written `times` times on each."""

    depths: tuple[int, ...]
    tokens: int = TOKENS
    times: int = TIMES
    name: str = "depth"
    one_by_one: bool = True

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """Each depth, and where the one before has ended."""
        ends = [0, *(depth + self.tokens * self.times for depth in self.depths)]
        return tuple(Rung(begin, depth) for begin, depth in zip(ends, self.depths, strict=False))

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """For each rung its piece of the prompt, by the range that it has, and what is written there."""
        return tuple(each for rung in self.rungs for each in (self._piece(rung), self._decode(rung)))

    @property
    def rule(self) -> str:
        """When it is enough."""
        return f"{self.times} times {self.tokens} tokens at each of {len(self.depths)} depths, in one prefill"

    @property
    def context(self) -> int:
        """Tokens that the last rung takes."""
        return self.depths[-1] + self.tokens * self.times if self.depths else 0

    def runs(self, road: Road) -> Iterator[tuple[int, Run]]:
        """Two runs of the first answer on each rung, of the piece and of what was written; one of each other."""
        target, model = road.served.root, road.served.model
        climb = Climb(self.depths, self.tokens, self.times, completing(target, model), road.clock)
        words = words_of(target, model, self.context, lambda letters: salt(road.session, 0) + long_text(letters))
        for each in climb.answers(words):
            run = _run(each)
            if each.number == 0:
                yield 2 * each.rung, run.model_copy(update={"predicted_n": None, "predicted_ms": None})
            yield 2 * each.rung + 1, run.model_copy(update={"prompt_n": None, "prompt_ms": None})

    def _piece(self, rung: Rung) -> Condition:
        piece = Condition(kind="long", depth=rung.begin, prompt=rung.depth - rung.begin, sampling="instance")
        return piece.model_copy(update={"cache": "warm" if rung.begin else "cold"})

    def _decode(self, rung: Rung) -> Condition:
        return Condition(kind="long", depth=rung.depth, generated=self.tokens, cache="warm", sampling="instance")


def fitting(ladder: Ladder, context: int | None) -> tuple[Ladder, str | None]:
    """The rungs that the server has room for, and a sentence of those that are left out."""
    room = (context or 0) - ladder.tokens * ladder.times
    kept = tuple(depth for depth in ladder.depths if context is None or depth <= room)
    left = [f"{depth:,}" for depth in ladder.depths if depth not in kept]
    if not left:
        return ladder, None
    told = f"a slot of the server has room for {context:,} tokens: {' and '.join(left)} deep is left out"
    return Ladder(kept, ladder.tokens, ladder.times), told


def _run(each: Written) -> Run:
    told = each.timings
    return Run(
        at=round(each.at, 3),
        prompt_n=told.prompt_n,
        cache_n=told.cache_n,
        prompt_ms=told.prompt_ms,
        predicted_n=told.predicted_n,
        predicted_ms=told.predicted_ms,
        draft_n=told.draft_n,
        draft_n_accepted=told.draft_n_accepted,
        total_ms=each.total_ms,
        excluded=each.excluded,
    )
