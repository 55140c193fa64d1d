"""Speed by depth in one prefill: a prompt that grows from rung to rung, on each of which some tokens are written.

What was written stays in the prompt: so it is only ever extended, which recurrent models can do as well. Each answer
tells what came from the cache; where that is not all that was there, a run does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from llamaherd.bench.client import Failure, Patience
from llamaherd.bench.course import Road, broken
from llamaherd.bench.plain import Told, tell
from llamaherd.bench.result import Condition, Run
from llamaherd.bench.salt import salt
from llamaherd.bench.suite import long_text
from llamaherd.diagnostics.findings import UserError

TOKENS, TIMES = 128, 3
"""Tokens that are written at once, and how often on each rung."""

_PATIENCE = Patience(first=3600, silence=3600, total=3600)
"""A long prompt is read in silence."""

_KEPT = ["tokens", "timings", "stop_type"]
"""Of an answer: its prompt is known here."""

Complete = Callable[[Sequence[int], int, bool], Told | Failure]
"""Asks for so many tokens after these, and whether what is in the cache is to be taken."""


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
        """Climb it. Raises UserError."""
        target = road.served.root

        def complete(tokens: Sequence[int], most: int, reuse: bool) -> Told | Failure:
            return tell(target, "/completion", _body(tokens, most, reuse), _PATIENCE)

        climb = _Climb(self, complete, road.clock)
        yield from climb.runs(_words(road, self.context))

    def _piece(self, rung: Rung) -> Condition:
        piece = Condition(kind="long", depth=rung.begin, prompt=rung.depth - rung.begin, sampling="instance")
        return piece.model_copy(update={"cache": "warm" if rung.begin else "cold"})

    def _decode(self, rung: Rung) -> Condition:
        return Condition(kind="long", depth=rung.depth, generated=self.tokens, cache="warm", sampling="instance")


@dataclass
class _Climb:
    """One way up: the prompt so far, and how much of it the server has in its cache."""

    ladder: Ladder
    complete: Complete
    clock: Callable[[], float]
    tokens: list[int] = field(default_factory=list)
    cached: int = 0

    def runs(self, words: Sequence[int]) -> Iterator[tuple[int, Run]]:
        """Two runs of the first answer on each rung, of the piece and of what was written; one of each other."""
        used = 0
        for number, rung in enumerate(self.ladder.rungs):
            piece = rung.depth - len(self.tokens)
            self.tokens += words[used : used + piece]
            used += piece
            for time in range(self.ladder.times):
                run = self._run()
                if time == 0:
                    yield 2 * number, run.model_copy(update={"predicted_n": None, "predicted_ms": None})
                yield 2 * number + 1, run.model_copy(update={"prompt_n": None, "prompt_ms": None})
            # Where the server does not give back what it wrote, the way goes on from the prompt.
            missing = self.ladder.tokens * self.ladder.times - (len(self.tokens) - rung.depth)
            self.tokens += words[used : used + missing]
            used += missing

    def _run(self) -> Run:
        at = round(self.clock(), 3)
        found = self.complete(self.tokens, self.ladder.tokens, self.cached > 0)
        if isinstance(found, Failure):
            raise broken(f"at a depth of {len(self.tokens):,} tokens", found)
        value = found.value if isinstance(found.value, dict) else {}
        told = value.get("timings")
        told = told if isinstance(told, dict) else {}
        run = Run(
            at=at,
            prompt_n=_count(told.get("prompt_n")),
            cache_n=_count(told.get("cache_n")),
            prompt_ms=_time(told.get("prompt_ms")),
            predicted_n=_count(told.get("predicted_n")),
            predicted_ms=_time(told.get("predicted_ms")),
            draft_n=_count(told.get("draft_n")),
            draft_n_accepted=_count(told.get("draft_n_accepted")),
            total_ms=found.total_ms,
        )
        excluded = self._why_not(run)
        self._extend(value.get("tokens"), run)
        return run.model_copy(update={"excluded": excluded})

    def _why_not(self, run: Run) -> str | None:
        """Why a run says nothing of its depth: the cache had less than was there, or nobody knows."""
        if run.prompt_n is None or run.predicted_n is None:
            return "the server does not tell what it read and wrote"
        if run.predicted_n != self.ladder.tokens:
            return f"it wrote {run.predicted_n:,} tokens, and not {self.ladder.tokens:,}"
        expected = min(self.cached, len(self.tokens) - 1)
        # ik_llama.cpp tells only what it has read.
        found = len(self.tokens) - run.prompt_n if run.cache_n is None else run.cache_n
        if found != expected:
            return f"{found:,} tokens came from the cache, and not the {expected:,} that were there"
        return None

    def _extend(self, written: Any, run: Run) -> None:
        """The last token that was written was never read: it is not in the cache."""
        self.cached = len(self.tokens)
        if isinstance(written, list) and len(written) == run.predicted_n and all(type(each) is int for each in written):
            self.tokens += written
            self.cached = len(self.tokens) - 1


def fitting(ladder: Ladder, context: int | None) -> tuple[Ladder, str | None]:
    """The rungs that the server has room for, and a sentence of those that are left out."""
    room = (context or 0) - ladder.tokens * ladder.times
    kept = tuple(depth for depth in ladder.depths if context is None or depth <= room)
    left = [f"{depth:,}" for depth in ladder.depths if depth not in kept]
    if not left:
        return ladder, None
    told = f"a slot of the server has room for {context:,} tokens: {' and '.join(left)} deep is left out"
    return Ladder(kept, ladder.tokens, ladder.times), told


def _words(road: Road, most: int) -> Sequence[int]:
    """So many tokens of a text that begins as none before, by the server's own tokenizer."""
    for letters in (5, 10, 20):
        text = salt(road.session, 0) + long_text(most * letters)
        found = tell(road.served.root, "/tokenize", {"content": text, "add_special": True}, _PATIENCE)
        if isinstance(found, Failure):
            raise broken("a text for a depth cannot be counted", found)
        tokens = found.value.get("tokens") if isinstance(found.value, dict) else None
        if not isinstance(tokens, list) or not all(type(each) is int for each in tokens):
            break
        if len(tokens) >= most:
            return tokens[:most]
    raise UserError("the server does not tell the tokens of a text", "leave out `--depth`")


def _body(tokens: Sequence[int], most: int, reuse: bool) -> dict[str, Any]:
    """Always the same slot, and always as many tokens: a text that goes on is no task that could be done."""
    return {
        "prompt": list(tokens),
        "n_predict": most,
        "ignore_eos": True,
        "cache_prompt": reuse,
        "return_tokens": True,
        "response_fields": _KEPT,
        "id_slot": 0,
        "stream": False,
    }


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 40 else None


def _time(value: object) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e12
    return float(value) if good and isinstance(value, int | float) else None
