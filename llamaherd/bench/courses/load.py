"""Several requests at once for a fixed time: each stream asks anew as soon as it was answered."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import ceil
from queue import SimpleQueue
from typing import Any

from llamaherd.bench.asking.client import Answer, Failure, Patience, ask
from llamaherd.bench.asking.runs import run_of
from llamaherd.bench.asking.salt import salt
from llamaherd.bench.asking.suite import Prompt
from llamaherd.bench.courses.course import Road, broken
from llamaherd.bench.results.result import Condition, Kind, Result, Run
from llamaherd.bench.statistics.intervals import Estimate, Sample, estimate

SECONDS, TOKENS = 30.0, 160
"""Of each number of requests at once, and of each answer: a length that nothing else is measured with."""
KIND: Kind = "code"
_PATIENCE = Patience()
MOST_PIECES = 100_000
"""Of all answers, whose times are kept: a result has room for four times as many values."""
SLICES = 5
"""Parts of the time in which all were asked: the error of a total is by how these differ."""

_FEWEST_FOR_95 = 59
"""Requests below which the slowest one is all that is known of the slowest twentieth."""


@dataclass(frozen=True)
class Load:
    """Numbers of requests at once, each for so many seconds. No two prompts begin alike, nor as any before."""

    levels: tuple[int, ...]
    prompts: Sequence[Prompt]
    seconds: float = SECONDS
    tokens: int = TOKENS
    patience: Patience = _PATIENCE
    name: str = "concurrency"
    one_by_one: bool = False

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """One for each number."""
        return tuple(
            Condition(kind=KIND, generated=self.tokens, concurrency=level, cache="cold", sampling="instance")
            for level in self.levels
        )

    @property
    def rule(self) -> str:
        """When it is enough."""
        return f"{self.seconds:g} s with each number of requests at once"

    def runs(self, road: Road) -> Iterator[tuple[int, Run]]:
        """One number after the other. Raises UserError."""
        numbers, pieces = count(_FIRST_SALT), 0
        for cell, (level, condition) in enumerate(zip(self.levels, self.conditions, strict=True)):
            for run in _Streams(self, road, condition, numbers).runs(level):
                pieces += len(run.pieces_ms)
                yield cell, run if pieces <= MOST_PIECES else run.model_copy(update={"pieces_ms": ()})


_FIRST_SALT = 150_000
"""Below are those of single requests, of which there are no more in two hours."""


class _Streams:
    """So many threads, each with one request at a time. What they have is handed over as it comes."""

    def __init__(self, load: Load, road: Road, condition: Condition, numbers: Iterator[int]) -> None:
        self._load, self._road, self._condition = load, road, condition
        self._numbers, self._lock = numbers, threading.Lock()
        self._over = threading.Event()
        self._found: SimpleQueue[Run | Failure | None] = SimpleQueue()

    def runs(self, level: int) -> Iterator[Run]:
        """Their runs. The first failure ends them all: a server that fails under a load is not measured by the rest."""
        ends = self._road.clock() + self._load.seconds
        for _ in range(level):
            threading.Thread(target=self._stream, args=(ends,), daemon=True).start()
        try:
            left = level
            while left:
                found = self._found.get()
                if isinstance(found, Failure):
                    raise broken(f"with {level} requests at once", found)
                if found is not None:
                    yield found
                left -= found is None
        finally:
            self._over.set()

    def _stream(self, ends: float) -> None:
        try:
            while not self._over.is_set() and (at := self._road.clock()) < ends:
                found = self._asked()
                self._found.put(self._run(found, at))
        finally:
            self._found.put(None)

    def _run(self, found: Answer | Failure, at: float) -> Run | Failure:
        """An empty answer is one that was too short."""
        if isinstance(found, Answer):
            return run_of(found, self._condition, at=at)
        return Run(at=round(at, 3), excluded=found.message) if found.why == "empty" else found

    def _asked(self) -> Answer | Failure:
        with self._lock:
            number = next(self._numbers)
        served = self._road.served
        body = _body(self._load, served.model, number, salt(self._road.session, number))
        return ask(served.target, served.chat, body, self._load.patience)


def _body(load: Load, model: str, number: int, before: str) -> Mapping[str, Any]:
    text = before + load.prompts[number % len(load.prompts)].text
    return {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": load.tokens,
        "stream_options": {"include_usage": True},
        "cache_prompt": False,
    }


@dataclass(frozen=True)
class Total:
    """What a server did with all requests that it had at once. `waited` is the time to the first token, in ms.

    `late` is below which nineteen of twenty of these lie; with fewer requests than tell that, it is the longest.
    """

    tokens_per_second: Estimate
    seconds: float
    requests: int
    waited: float
    late: float
    late_is_longest: bool


def total(runs: Sequence[Run], level: int) -> Total | None:
    """All streams together, from when all were asked at once to when they last were; None where they never were."""
    timed = [run for run in runs if run.at is not None and run.total_ms and run.first_token_ms and not run.excluded]
    window = _window(timed, level)
    if window is None:
        return None
    begin, end = window
    each = (end - begin) / SLICES
    slices = [(begin + number * each, begin + (number + 1) * each) for number in range(SLICES)]
    samples = [Sample(sum(_tokens_within(run, *part) for run in timed), each) for part in slices]
    together = estimate([[sample for sample in samples if sample.amount > 0]])
    waits = sorted(run.first_token_ms or 0 for run in timed)
    if together is None:
        return None
    few = len(waits) < _FEWEST_FOR_95
    late = waits[-1] if few else waits[ceil(0.95 * len(waits)) - 1]
    return Total(together, end - begin, len(waits), waits[len(waits) // 2], late, few)


def total_lines(result: Result) -> Iterator[str]:
    """What people are told of all streams together, a line for each number of requests at once."""
    for cell in result.cells:
        level = cell.condition.concurrency
        found = total(cell.runs, level) if level > 1 else None
        if found is None:
            continue
        together = found.tokens_per_second
        error = f" ({together.low:.4g} to {together.high:.4g})" if together.low and together.high else ""
        late = "at most" if found.late_is_longest else "19 of 20 within"
        yield (
            f"{level} at once: {together.value:.4g} t/s{error} of all together over {found.seconds:.0f} s; "
            f"first token after {found.waited:.0f} ms, {late} {found.late:.0f} ms, of {found.requests} requests"
        )


def _window(runs: Sequence[Run], level: int) -> tuple[float, float] | None:
    """From the first to the last moment in which so many requests were on their way."""
    changes = sorted(
        change
        for run in runs
        for change in (((run.at or 0.0), 1), ((run.at or 0.0) + (run.total_ms or 0.0) / 1000, -1))
    )
    begin = end = None
    now = 0
    for at, change in changes:
        if change < 0 and now == level:
            end = at
        now += change
        if now == level and begin is None:
            begin = at
    return (begin, end) if begin is not None and end is not None and end > begin else None


def _tokens_within(run: Run, begin: float, end: float) -> float:
    """The tokens of a run that came in a time: as many in each piece, or evenly where these are not kept."""
    first = (run.at or 0.0) + (run.first_token_ms or 0.0) / 1000
    if not run.pieces_ms and run.predicted_ms:
        last = first + run.predicted_ms / 1000
        return (run.predicted_n or 0) * max(0.0, min(end, last) - max(begin, first)) / (last - first)
    times = [first]
    for gap in run.pieces_ms:
        times.append(times[-1] + gap / 1000)
    return (run.predicted_n or 0) * sum(begin <= at < end for at in times) / len(times)


def queued(levels: Sequence[int], slots: int | None) -> str | None:
    """A sentence where more is asked at once than the server answers at once."""
    most = max(levels, default=0)
    if slots is None or most <= slots:
        return None
    does = "slot" if slots == 1 else "slots"
    return f"the server has {slots} {does}: of {most} requests at once, {most - slots} wait, and their first tokens too"
