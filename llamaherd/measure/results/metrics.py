"""Compute metrics from runs, and how far the speed of the machine drifted between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log, sqrt
from statistics import fmean

from llamaherd.measure.results.result import Cell, Run
from llamaherd.measure.statistics import BETWEEN_STARTS, Sample

DRIFT_WINDOWS = 6
"""Parts of a measurement that are compared with each other."""
FEWEST_REQUESTS = 12
"""Requests, below which no drift can be detected."""
_FISHER_F = 2.0
"""The F of Fisher that the windows of a steady machine exceed in one measurement of ten."""
_DRIFT_FACTOR = sqrt(2)
"""Drift continues: two measurements one after another differ by so much more than the windows of one."""


@dataclass(frozen=True)
class TimedSample:
    """A request: when it was sent in seconds, its cell, and its sample."""

    at: float
    cell: str
    sample: Sample


def speed_drift(every: Iterable[TimedSample]) -> float:
    """Return the standard deviation between two measurements like this one, as a share of speed; 0 if there is none.

    By analysis of variance: windows of time are the groups, and each request is compared with the others of its cell.
    """
    samples = list(every)
    if len(samples) < FEWEST_REQUESTS:
        return 0.0
    left = _cell_residuals(samples)
    first, last = (pick(each.at for each in samples) for pick in (min, max))
    groups: dict[int, list[float]] = {}
    for each, rest in zip(samples, left, strict=True):
        window = int(DRIFT_WINDOWS * (each.at - first) / (last - first)) if last > first else 0
        groups.setdefault(min(window, DRIFT_WINDOWS - 1), []).append(rest)
    freedom = len(samples) - len(groups) - len({each.cell for each in samples}) + 1
    if len(groups) < 2 or freedom < 1:
        return 0.0
    return _DRIFT_FACTOR * sqrt(_variance_between(list(groups.values()), freedom))


def _cell_residuals(samples: Sequence[TimedSample]) -> list[float]:
    logs: dict[str, list[float]] = {}
    for each in samples:
        logs.setdefault(each.cell, []).append(log(each.sample.rate))
    means = {cell: fmean(found) for cell, found in logs.items()}
    return [log(each.sample.rate) - means[each.cell] for each in samples]


def _variance_between(groups: Sequence[Sequence[float]], freedom: int) -> float:
    """Return the variance of the groups' means beyond what the spread within them explains; 0 if that may be all."""
    total = sum(map(len, groups))
    within = sum((value - fmean(group)) ** 2 for group in groups for value in group) / freedom
    among = sum(len(group) * fmean(group) ** 2 for group in groups) / (len(groups) - 1)
    if among <= _FISHER_F * within:
        return 0.0
    size = (total - sum(len(group) ** 2 for group in groups) / total) / (len(groups) - 1)
    return (among - within) / size


@dataclass(frozen=True)
class Metric:
    """One figure of a cell. `margin` is the share within which two are equal; None: it is shown, but not judged.

    `between_starts` is how far two starts of a server are assumed to differ if only one of each was measured, and
    `between_times` how far one start differs from one measurement to the next. `scale` converts the rate to the unit.
    With `as_time`, the time of one is shown, and not how many a second. A metric that is not `timed` does not depend on
    the speed of its machine.
    """

    name: str
    unit: str
    of: Callable[[Run], Sample | None]
    margin: float | None
    scale: float = 1.0
    as_time: bool = False
    between_starts: float = BETWEEN_STARTS
    between_times: float = 0.0
    timed: bool = True

    @property
    def heading(self) -> str:
        """The name with its unit, if it has one."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    def shown(self, rate: float) -> float:
        """Convert a rate to the metric's unit."""
        return self.scale / rate if self.as_time else rate * self.scale


FEW = 8
"""Tokens of a response that was requested for its prompt alone, or of a prompt with a cached rest: too few."""


def _decode(run: Run) -> Sample | None:
    """Return the tokens after the first, which the prompt yields."""
    if run.predicted_n is not None and run.predicted_n <= FEW:
        return None
    if run.predicted_ms is None:
        return Sample(run.predicted_per_second, 1.0) if run.predicted_per_second else None
    return Sample(run.predicted_n - 1, run.predicted_ms / 1000) if run.predicted_n else None


def _prefill(run: Run) -> Sample | None:
    if run.cache_n and run.prompt_n is not None and run.prompt_n <= FEW:
        return None
    if run.prompt_n and run.prompt_ms:
        return Sample(run.prompt_n, run.prompt_ms / 1000)
    return Sample(run.prompt_per_second, 1.0) if run.prompt_per_second else None


def _step(run: Run) -> Sample | None:
    """Return the steps, if there are drafts: without them, a step is a token."""
    seconds = run.predicted_seconds
    return Sample(run.steps, seconds) if run.draft_n and run.steps and seconds and _decode(run) else None


def _tokens_per_step(run: Run) -> Sample | None:
    drafted = run.draft_n and run.steps and _decode(run)
    return Sample(run.predicted_n - 1, run.steps) if drafted and run.steps and run.predicted_n else None


def _accepted(run: Run) -> Sample | None:
    return Sample(run.draft_n_accepted or 0, run.draft_n) if run.draft_n and _decode(run) else None


def _energy(run: Run) -> Sample | None:
    """Return the energy of a request over the tokens that it generated."""
    return Sample(run.predicted_n, run.joules) if run.joules and run.predicted_n and _decode(run) else None


def _first_token(run: Run) -> Sample | None:
    return Sample(1.0, run.first_token_ms / 1000) if run.first_token_ms and run.predicted_n != 0 else None


def _response(run: Run) -> Sample | None:
    """Return the time of a request that generates nothing."""
    return Sample(1.0, run.total_ms / 1000) if run.total_ms and run.predicted_n == 0 else None


DECODE = Metric("decode", "t/s", _decode, 0.02)
PREFILL = Metric("prefill", "t/s", _prefill, 0.03, between_starts=0.03)
STEP = Metric("step", "ms", _step, 0.005, scale=1000, as_time=True)
TOKENS_PER_STEP = Metric("tokens a step", "", _tokens_per_step, None, timed=False)
# It includes the network and the host's processor, and of a warm prompt hardly anything else.
FIRST_TOKEN = Metric(
    "first token", "ms", _first_token, 0.05, scale=1000, as_time=True, between_starts=0.05, between_times=0.05
)
# Of embeddings and rerank: all inputs of a request.
RESPONSE = Metric("response", "ms", _response, 0.05, scale=1000, as_time=True, between_starts=0.05, between_times=0.05)
ACCEPTED = Metric("accepted", "%", _accepted, None, scale=100, timed=False)
ENERGY = Metric("energy", "J/token", _energy, None, as_time=True)
METRICS = (DECODE, STEP, TOKENS_PER_STEP, PREFILL, FIRST_TOKEN, RESPONSE, ACCEPTED, ENERGY)


def by_start(runs: Sequence[Run], metric: Metric) -> list[list[Sample]]:
    """Return the samples of a metric, for each start of the server."""
    starts: dict[int, list[Sample]] = {}
    for run in runs:
        if (sample := metric.of(run)) and sample.amount > 0:
            starts.setdefault(run.start, []).append(sample)
    return [starts[number] for number in sorted(starts)]


def cells_drift(cells: Sequence[Cell], prompts: bool) -> float:
    """Return the drift of generation or of cold prompts; if there are few requests of that sort, of both together.

    What slows one of them down may not affect the other, and the random spread of prompts is several times as large.
    """
    cold = [cell for cell in cells if cell.condition.cache != "warm"]
    own = [sample for cell in cold if bool(cell.condition.prompt) == prompts for sample in _timed_samples(cell)]
    every = [sample for cell in cold for sample in _timed_samples(cell)]
    return speed_drift(own if len(own) >= FEWEST_REQUESTS else every)


def _timed_samples(cell: Cell) -> Iterator[TimedSample]:
    metric = PREFILL if cell.condition.prompt else DECODE
    for run in cell.counted:
        if run.at is not None and (sample := metric.of(run)):
            yield TimedSample(run.at, str(cell.condition), sample)
