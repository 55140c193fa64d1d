"""The same request again and again, for as long as somebody likes: whether a server gets slower, and how warm. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

from llamaherd.bench.asking.suite import Prompt
from llamaherd.bench.results.metrics import DECODE, STEP
from llamaherd.bench.results.result import Condition, Result, Run
from llamaherd.bench.schedule import Ask, SoFar, Step
from llamaherd.bench.statistics.intervals import Ratio, Sample, unpaired_ratio
from llamaherd.bench.statistics.student import student_quantile

TOKENS = 512
"""More than are asked for otherwise: so its runs have a condition of their own."""

_FEWEST = 8
"""Runs of which a drift is told."""


@dataclass(frozen=True)
class Soak:
    """One prompt of code, for so many seconds of work."""

    prompt: Prompt
    seconds: float
    name: str = "soak"

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """One."""
        return (Condition(kind=self.prompt.kind, generated=TOKENS, cache="cold", sampling="instance"),)

    @property
    def rule(self) -> str:
        """When it is enough."""
        return f"{self.seconds:.0f} s of work"

    def next_step(self, so_far: SoFar) -> Step | None:
        """The same once more, until the time is over."""
        if self._worked(so_far) >= self.seconds:
            return None
        return Step((Ask(0, self.prompt.text, TOKENS, salt=so_far.steps),), about="the same again and again")

    def share_done(self, so_far: SoFar) -> float:
        """By the time."""
        return min(1.0, self._worked(so_far) / self.seconds)

    @staticmethod
    def _worked(so_far: SoFar) -> float:
        return sum(run.total_ms or 0.0 for run in so_far.cells[0].runs) / 1000


@dataclass(frozen=True)
class Drift:
    """How a speed changes over a time: as a share of it for all of that time, with its 95 % interval.

    `ends` is the last quarter beside the first. Without drafts it is of decode, with drafts of steps: the text is not
    in these. `warmer` is by how many degrees it is warmer in the last quarter.
    """

    change: float
    low: float
    high: float
    ends: Ratio
    seconds: float
    runs: int
    warmer: float | None


def drift(runs: Sequence[Run]) -> Drift | None:
    """The drift of runs in the order in which they were; None of too few."""
    counted = [run for run in runs if run.at is not None and not run.excluded]
    metric = STEP if any(run.draft_n for run in counted) else DECODE
    found = [(run, sample) for run in counted if (sample := metric.of(run))]
    if len(found) < _FEWEST:
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
    return Drift(change, low, high, ends, span, len(found), _warmer(first, last))


def _warmer(first: Sequence[tuple[Run, Sample]], last: Sequence[tuple[Run, Sample]]) -> float | None:
    before, after = ([run.celsius for run, _ in part if run.celsius is not None] for part in (first, last))
    return sum(after) / len(after) - sum(before) / len(before) if before and after else None


def _slope(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float] | None:
    """The slope of a line through points, by least squares, and its 95 % interval; None where all are of one moment."""
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
    """What people are told of a soak."""
    for cell in result.cells:
        found = drift(cell.runs) if cell.condition.generated == TOKENS else None
        if found is None:
            continue
        ends, heat = found.ends, "" if found.warmer is None else f", {found.warmer:+.1f} °C"
        between = f" ({' to '.join(map(_percent, ends.ends))})" if ends.ends else ""
        yield (
            f"over {found.seconds / 60:.0f} minutes, {found.runs} runs: speed changes by {100 * found.change:+.1f} % "
            f"({100 * found.low:+.1f} to {100 * found.high:+.1f}); the last quarter beside the first: "
            f"{_percent(ends.value)} %{between}{heat}"
        )


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}"
