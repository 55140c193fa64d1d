"""A result as a report contains it: the figures of its cells with their intervals, checked for plausibility. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.bench.load import total_speed
from llamaherd.measure.results.evaluation import find_doubts
from llamaherd.measure.results.metrics import DECODE, METRICS, STEP, Metric, by_start
from llamaherd.measure.results.result import Cell, Condition, Gpu, Peak, Provenance, Result, Run
from llamaherd.measure.statistics import Estimate, estimate

_WITHOUT_TIME = ("table", "sweep-bench")


@dataclass(frozen=True)
class Figure:
    """A metric with what was measured of it."""

    metric: Metric
    estimate: Estimate

    @property
    def value(self) -> float:
        """In the metric's unit."""
        return self.metric.shown(self.estimate.value)

    @property
    def ends(self) -> tuple[float, float] | None:
        """The interval in the metric's unit, the lower end first; None where there are too few runs for one."""
        if self.estimate.low is None or self.estimate.high is None:
            return None
        low, high = sorted((self.metric.shown(self.estimate.low), self.metric.shown(self.estimate.high)))
        return low, high


@dataclass(frozen=True)
class MeasuredRun:
    """A run of a cell: tokens a second, and milliseconds of a step where it drafted."""

    decode: float
    step: float | None


@dataclass(frozen=True)
class MeasuredCell:
    """A condition and its figures. `acceptance` is the share of drafted tokens that were accepted.

    `watts` are of all GPUs together, on average and at most; `joules` are those of a token: of the answer where there
    is one, else of the prompt. `total` are tokens a second of all streams together, where all were asked at once.
    """

    condition: Condition
    figures: tuple[Figure, ...]
    runs: tuple[MeasuredRun, ...]
    acceptance: float | None
    watts: float | None
    most_watts: float | None
    joules: float | None
    total: Estimate | None

    def figure(self, metric: Metric) -> Figure | None:
        """The figure of a metric, where it was measured."""
        return next((each for each in self.figures if each.metric.name == metric.name), None)

    @property
    def filled(self) -> int:
        """Tokens that were in the cache when the answer began: what was there, and the prompt."""
        return self.condition.depth + (self.condition.prompt or 0)

    @property
    def answers(self) -> bool:
        """Whether tokens of an answer were counted, and not of the prompt alone."""
        return self.figure(DECODE) is not None


@dataclass(frozen=True)
class Measured:
    """A result as a report tells it. `stack` says what served, `whole` that it was not cut off."""

    label: str
    rig: str
    instance: str
    began: str
    id: str
    source: str
    suite: str
    stack: str
    machine: tuple[str, ...]
    serving: tuple[str, ...]
    context: int | None
    cells: tuple[MeasuredCell, ...]
    whole: bool
    peaks: tuple[Peak, ...]
    doubts: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def order(self) -> tuple[bool, str, str]:
        """By which the last one is that which tells most of today: one that was cut off may have nearly nothing."""
        return self.whole, self.began, self.id

    @property
    def less(self) -> bool:
        """Whether less is known of it than of what llamaherd measures."""
        return self.source != "herd"

    @property
    def dated(self) -> bool:
        """Whether it says when it was measured: of others' files, mostly, only their own age is known."""
        return self.source not in _WITHOUT_TIME

    @property
    def day(self) -> str:
        """When it was measured; nothing where nobody knows."""
        return self.began[:10] if self.dated else ""


def measured(result: Result) -> Measured:
    """What is told of a result."""
    origin = result.provenance
    return Measured(
        label=result.label,
        rig=result.rig,
        instance=result.instance,
        began=result.began,
        id=result.id,
        source=result.source.kind,
        suite=result.suite.sha256[:12] if result.suite else "",
        stack=_stack(result),
        machine=tuple(_machine(origin)),
        serving=tuple(_serving(origin)),
        context=origin.server.context,
        cells=tuple(_cell(cell) for cell in result.cells if cell.counted),
        whole=result.ended is not None,
        peaks=result.peaks,
        doubts=tuple(dict.fromkeys([*find_doubts(result), *_doubts(result)])),
        notes=tuple(_notes(result)),
    )


def _cell(cell: Cell) -> MeasuredCell:
    runs = cell.counted
    found = [(metric, estimate(by_start(runs, metric))) for metric in METRICS]
    watts, most = _watts(cell)
    together = total_speed(cell.runs, cell.condition.concurrency)
    return MeasuredCell(
        condition=cell.condition,
        figures=tuple(Figure(metric, known) for metric, known in found if known),
        runs=tuple(_runs(runs)),
        acceptance=_acceptance(runs),
        watts=watts,
        most_watts=most,
        joules=_joules(cell, watts),
        total=together.tokens_per_second if together else None,
    )


def _watts(cell: Cell) -> tuple[float | None, float | None]:
    """On average and at most. The most of each GPU added is more than there ever was at once, and so left out."""
    if taken := cell.telemetry:
        peaks = [gpu.peak_watts for gpu in taken.gpus]
        return taken.watts, peaks[0] if len(peaks) == 1 else None
    told = [run.watts for run in cell.counted if run.watts]
    return (sum(told) / len(told), max(told)) if told else (None, None)


def _joules(cell: Cell, watts: float | None) -> float | None:
    """For a token, by all that was used while requests ran; what others tell is power beside a speed."""
    if (taken := cell.telemetry) and (joules := taken.joules):
        answered = sum(run.predicted_n or 0 for run in cell.runs) if cell.condition.generated > 1 else 0
        tokens = answered or sum(run.prompt_n or 0 for run in cell.runs)
        return joules / tokens if tokens else None
    rate = estimate(by_start(cell.counted, DECODE))
    return watts / rate.value if watts and rate else None


def _runs(runs: Sequence[Run]) -> Iterator[MeasuredRun]:
    for run in runs:
        decode, step = DECODE.of(run), STEP.of(run)
        if decode and decode.amount > 0:
            yield MeasuredRun(decode.rate, STEP.shown(step.rate) if step else None)


def _acceptance(runs: Sequence[Run]) -> float | None:
    drafted = sum(run.draft_n or 0 for run in runs)
    return sum(run.draft_n_accepted or 0 for run in runs) / drafted if drafted else None


def _doubts(result: Result) -> Iterator[str]:
    """What speaks against what the meter has read."""
    for taken in (result.work, *(cell.telemetry for cell in result.cells)):
        yield from taken.doubts if taken else ()


def _notes(result: Result) -> Iterator[str]:
    if not result.ended:
        yield "it was cut off"
    excluded = Counter(run.excluded for cell in result.cells for run in cell.runs if run.excluded)
    for why, many in excluded.items():
        yield f"{many} {'run does' if many == 1 else 'runs do'} not count: {why}"
    yield from result.method.anyway
    yield from result.source.notes
    yield from result.unmeasured


def _stack(result: Result) -> str:
    """Engine and model, as far as they are known: what makes two results of an instance rows of their own."""
    engine, origin = result.provenance.engine, result.provenance
    version = engine.version or (engine.commit or "")[:10]
    quant = next((each.quant for each in origin.files if each.part == "weights" and each.quant), None)
    told = quant and quant in (origin.model or "")
    parts = [result.stack, engine.kind, version, origin.model, None if told else quant]
    return " ".join(dict.fromkeys(part for part in parts if part))


def _machine(origin: Provenance) -> Iterator[str]:
    gpus = Counter(_gpu(gpu) for gpu in origin.gpus)
    yield from (f"{many} {name}" if many > 1 else name for name, many in gpus.items())
    host = origin.host
    yield from (each for each in (host.cpu, host.os, f"driver {origin.driver}" if origin.driver else None) if each)


def _gpu(gpu: Gpu) -> str:
    return f"{gpu.name} at {gpu.power_limit_watts:g} W" if gpu.power_limit_watts else gpu.name


def _serving(origin: Provenance) -> Iterator[str]:
    server = origin.server
    if server.context:
        yield f"context {server.context:,}"
    if server.slots and server.slots > 1:
        yield f"{server.slots} slots"
    if server.group:
        yield f"of group {server.group}"
    if origin.around.instances:
        yield f"beside {', '.join(origin.around.instances)}"


_LEAST, _MOST = 1e-9, 1e13
"""Of any figure, in its unit."""


def check_measured(result: Result, name: str) -> Measured:
    """What is told of a result in a file of this name. Raises UserError where its figures are none."""
    try:
        each = measured(result)
        sane = all(value is None or value == 0 or _LEAST <= value <= _MOST for value in _values_of_result(each))
    except (ArithmeticError, ValueError):
        sane = False
    if not sane:
        raise UserError(f"{name} holds figures that nobody can have measured", "leave it out, or mend it")
    return each


def _values_of_result(each: Measured) -> Iterator[float | None]:
    yield each.context
    for peak in each.peaks:
        yield from (peak.held_bytes, peak.planned_bytes)
    for cell in each.cells:
        yield from _values_of_cell(cell)


def _values_of_cell(cell: MeasuredCell) -> Iterator[float | None]:
    asked = cell.condition
    yield from (asked.depth, asked.prompt, asked.generated, asked.concurrency, asked.context, asked.power_limit_watts)
    yield from (cell.watts, cell.most_watts, cell.joules, cell.total.value if cell.total else None)
    yield from (figure.value for figure in cell.figures)
    for run in cell.runs:
        yield from (run.decode, run.step)
