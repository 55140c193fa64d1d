"""Measure sustained load: several requests at once, or one request repeated for a set time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import ceil, exp, log, sqrt
from queue import SimpleQueue
from typing import Any

from llamaherd.measure.bench.job import WorkloadContext, workload_error
from llamaherd.measure.client.http_client import Answer, Failure, Patience, stream_answer
from llamaherd.measure.client.requests import Prompt, RequestSpec, SeriesProgress, Step, cache_buster, run_from_answer
from llamaherd.measure.results.metrics import DECODE, STEP
from llamaherd.measure.results.result import Condition, Kind, Result, Run
from llamaherd.measure.statistics import Estimate, Ratio, Sample, estimate, student_quantile, unpaired_ratio

LOAD_SECONDS, LOAD_TOKENS = 30.0, 160
"""Of each number of requests at once, and of each response: no other measurement uses this length."""
LOAD_KIND: Kind = "code"
_PATIENCE = Patience()
MOST_PIECES = 100_000
"""Of all responses whose times are kept: a result has room for four times as many values."""
SLICES = 5
"""Parts of the time at full load: the error of the total follows from their differences."""

_FEWEST_FOR_95 = 59
"""Requests below which only the slowest one is known of the slowest twentieth."""


@dataclass(frozen=True)
class Load:
    """Numbers of requests at once, each for so many seconds. No two prompts begin alike, nor like any before."""

    levels: tuple[int, ...]
    prompts: Sequence[Prompt]
    seconds: float = LOAD_SECONDS
    tokens: int = LOAD_TOKENS
    patience: Patience = _PATIENCE
    name: str = "concurrency"
    one_by_one: bool = False

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """One for each number."""
        return tuple(
            Condition(kind=LOAD_KIND, generated=self.tokens, concurrency=level, cache="cold", sampling="instance")
            for level in self.levels
        )

    @property
    def rule(self) -> str:
        """The criterion to stop."""
        return f"{self.seconds:g} s with each number of requests at once"

    def runs(self, context: WorkloadContext) -> Iterator[tuple[int, Run]]:
        """Yield the runs of one number after the other. Raise UserError."""
        numbers, pieces = count(_FIRST_SALT), 0
        for cell, (level, condition) in enumerate(zip(self.levels, self.conditions, strict=True)):
            for run in _Streams(self, context, condition, numbers).runs(level):
                pieces += len(run.pieces_ms)
                yield cell, run if pieces <= MOST_PIECES else run.model_copy(update={"pieces_ms": ()})


_FIRST_SALT = 150_000
"""The numbers below belong to single requests: there are no more of them in two hours."""


class _Streams:
    """So many threads, each with one request at a time. Their runs are passed on as they arrive."""

    def __init__(self, load: Load, context: WorkloadContext, condition: Condition, numbers: Iterator[int]) -> None:
        self._load, self._context, self._condition = load, context, condition
        self._numbers, self._lock = numbers, threading.Lock()
        self._over = threading.Event()
        self._found: SimpleQueue[Run | Failure | None] = SimpleQueue()

    def runs(self, level: int) -> Iterator[Run]:
        """Yield the runs. The first failure ends all threads: a server that fails under load has no speed."""
        ends = self._context.clock() + self._load.seconds
        for _ in range(level):
            threading.Thread(target=self._stream, args=(ends,), daemon=True).start()
        try:
            left = level
            while left:
                found = self._found.get()
                if isinstance(found, Failure):
                    raise workload_error(f"with {level} requests at once", found)
                if found is not None:
                    yield found
                left -= found is None
        finally:
            self._over.set()

    def _stream(self, ends: float) -> None:
        try:
            while not self._over.is_set() and (at := self._context.clock()) < ends:
                found = self._asked()
                self._found.put(self._run(found, at))
        finally:
            self._found.put(None)

    def _run(self, found: Answer | Failure, at: float) -> Run | Failure:
        """Return the run of a response; an empty one was too short."""
        if isinstance(found, Failure) and found.why != "empty":
            return found
        return run_from_answer(found, self._condition, at=at)

    def _asked(self) -> Answer | Failure:
        with self._lock:
            number = next(self._numbers)
        served = self._context.served
        body = _load_body(self._load, served.model, number, cache_buster(self._context.session, number))
        return stream_answer(served.target, served.chat, body, self._load.patience)


def _load_body(load: Load, model: str, number: int, before: str) -> Mapping[str, Any]:
    text = before + load.prompts[number % len(load.prompts)].text
    return {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": load.tokens,
        "stream_options": {"include_usage": True},
        "cache_prompt": False,
    }


@dataclass(frozen=True)
class TotalSpeed:
    """The speed of a server with all requests at once. `waited` is the time to the first token, in ms.

    Nineteen of twenty of these are below `late`; with too few requests for that, it is the longest.
    """

    tokens_per_second: Estimate
    seconds: float
    requests: int
    waited: float
    late: float
    late_is_longest: bool


def total_speed(runs: Sequence[Run], level: int) -> TotalSpeed | None:
    """Compute the total over the time at full load; None if there was none."""
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
    return TotalSpeed(together, end - begin, len(waits), waits[len(waits) // 2], late, few)


def total_lines(result: Result) -> Iterator[str]:
    """Yield a line of the summary for each number of requests at once."""
    for cell in result.cells:
        level = cell.condition.concurrency
        found = total_speed(cell.runs, level) if level > 1 else None
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
    """Return the time from the first to the last moment with so many requests in flight."""
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
    """Return the tokens of a run in a window of time: equally many in each piece, or evenly if pieces are not kept."""
    first = (run.at or 0.0) + (run.first_token_ms or 0.0) / 1000
    if not run.pieces_ms and run.predicted_ms:
        last = first + run.predicted_ms / 1000
        return (run.predicted_n or 0) * max(0.0, min(end, last) - max(begin, first)) / (last - first)
    times = [first]
    for gap in run.pieces_ms:
        times.append(times[-1] + gap / 1000)
    return (run.predicted_n or 0) * sum(begin <= at < end for at in times) / len(times)


def queue_note(levels: Sequence[int], slots: int | None) -> str | None:
    """Return a note if there are more requests at once than the server has slots."""
    most = max(levels, default=0)
    if slots is None or most <= slots:
        return None
    does = "slot" if slots == 1 else "slots"
    return f"the server has {slots} {does}: of {most} requests at once, {most - slots} wait, and their first tokens too"


SOAK_TOKENS = 512
"""More than in other requests, so its runs have a condition of their own."""

_FEWEST_SOAK_RUNS = 8
"""Runs that a drift is computed from."""


@dataclass(frozen=True)
class Soak:
    """One prompt of code, for so many seconds of work."""

    prompt: Prompt
    seconds: float
    name: str = "soak"

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The only condition."""
        return (Condition(kind=self.prompt.kind, generated=SOAK_TOKENS, cache="cold", sampling="instance"),)

    @property
    def rule(self) -> str:
        """The criterion to stop."""
        return f"{self.seconds:.0f} s of work"

    def next_step(self, so_far: SeriesProgress) -> Step | None:
        """Return the same request once more, until the time is over."""
        if self._worked(so_far) >= self.seconds:
            return None
        return Step(
            (RequestSpec(0, self.prompt.text, SOAK_TOKENS, salt=so_far.steps),), about="the same again and again"
        )

    def share_done(self, so_far: SeriesProgress) -> float:
        """Return the share of the time."""
        return min(1.0, self._worked(so_far) / self.seconds)

    @staticmethod
    def _worked(so_far: SeriesProgress) -> float:
        return sum(run.total_ms or 0.0 for run in so_far.cells[0].runs) / 1000


@dataclass(frozen=True)
class SpeedDrift:
    """How a speed changes over a time: as a share of it for all of that time, with its 95 % interval.

    `ends` is the ratio of the last quarter to the first. It is of decode, or with drafts of steps, which do not depend
    on the text. `warmer` is how much warmer the last quarter is, in degrees.
    """

    change: float
    low: float
    high: float
    ends: Ratio
    seconds: float
    runs: int
    warmer: float | None


def soak_drift(runs: Sequence[Run]) -> SpeedDrift | None:
    """Compute the drift of runs in their order; None for too few."""
    counted = [run for run in runs if run.at is not None and not run.excluded]
    metric = STEP if any(run.draft_n for run in counted) else DECODE
    found = [(run, sample) for run in counted if (sample := metric.of(run))]
    if len(found) < _FEWEST_SOAK_RUNS:
        return None
    times = [run.at or 0.0 for run, _ in found]
    span = times[-1] - times[0]
    fitted = (
        _slope([(at - times[0]) / span for at in times], [log(sample.rate) for _, sample in found]) if span else None
    )
    quarter = len(found) // 4
    first, last = found[:quarter], found[-quarter:]
    ends = unpaired_ratio(*([[sample for _, sample in part]] for part in (first, last)), assumed=0.0)
    if fitted is None or ends is None:
        return None
    change, low, high = (exp(each) - 1 for each in fitted)
    return SpeedDrift(change, low, high, ends, span, len(found), _warmer(first, last))


def _warmer(first: Sequence[tuple[Run, Sample]], last: Sequence[tuple[Run, Sample]]) -> float | None:
    before, after = ([run.celsius for run, _ in part if run.celsius is not None] for part in (first, last))
    return sum(after) / len(after) - sum(before) / len(before) if before and after else None


def _slope(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float] | None:
    """Return the slope of a line through points, by least squares, with its 95 % interval; None if all x are equal."""
    n = len(x)
    mean_x, mean_y = sum(x) / n, sum(y) / n
    squares = sum((each - mean_x) ** 2 for each in x)
    if not squares:
        return None
    slope = sum((one - mean_x) * (two - mean_y) for one, two in zip(x, y, strict=True)) / squares
    left = sum((two - mean_y - slope * (one - mean_x)) ** 2 for one, two in zip(x, y, strict=True))
    half = student_quantile(0.975, n - 2) * sqrt(left / (n - 2) / squares)
    return slope, slope - half, slope + half


def drift_lines(result: Result) -> Iterator[str]:
    """Yield the lines of the summary."""
    for cell in result.cells:
        found = soak_drift(cell.runs) if cell.condition.generated == SOAK_TOKENS else None
        if found is None:
            continue
        ends, heat = found.ends, "" if found.warmer is None else f", {found.warmer:+.1f} °C"
        between = f" ({' to '.join(map(_percent, ends.ends))})" if ends.ends else ""
        yield (
            f"over {found.seconds / 60:.0f} minutes, {found.runs} runs: speed changes by {100 * found.change:+.1f} % "
            f"({100 * found.low:+.1f} to {100 * found.high:+.1f}); the last quarter vs the first: "
            f"{_percent(ends.value)} %{between}{heat}"
        )


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}"
