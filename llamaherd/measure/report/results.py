"""A result as a report contains it: the figures of its cells with their intervals, checked for plausibility. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.bench.workloads import total_speed
from llamaherd.measure.results.comparison import find_doubts
from llamaherd.measure.results.metrics import DECODE, METRICS, STEP, Metric, by_start
from llamaherd.measure.results.result import Cell, Condition, Gpu, Peak, Provenance, Result, Run, lost_runs
from llamaherd.measure.statistics import Estimate, estimate

_WITHOUT_TIME = ("table", "sweep-bench")


@dataclass(frozen=True)
class Figure:
    """A metric with its measured values."""

    metric: Metric
    estimate: Estimate

    @property
    def value(self) -> float:
        """Return the value in the metric's unit."""
        return self.metric.shown(self.estimate.value)

    @property
    def ends(self) -> tuple[float, float] | None:
        """Return the interval in the metric's unit, lower end first; None with too few runs."""
        if self.estimate.low is None or self.estimate.high is None:
            return None
        low, high = sorted((self.metric.shown(self.estimate.low), self.metric.shown(self.estimate.high)))
        return low, high


@dataclass(frozen=True)
class MeasuredRun:
    """A run of a cell: tokens per second, and milliseconds per step if it drafted."""

    decode: float
    step: float | None


@dataclass(frozen=True)
class MeasuredCell:
    """A condition and its values. `acceptance` is the share of drafted tokens that were accepted.

    `watts` are the average and maximum of all GPUs together. `joules` are per output token, or per prompt token
    without output. `total` are tokens per second of all parallel streams together.
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
        """Return the values of a metric; None if it was not measured."""
        return next((each for each in self.figures if each.metric.name == metric.name), None)

    @property
    def filled(self) -> int:
        """Return the tokens in the cache at the first output token: the depth and the prompt."""
        return self.condition.depth + (self.condition.prompt or 0)

    @property
    def generates(self) -> bool:
        """Return whether output tokens were counted, not only prompt tokens."""
        return self.figure(DECODE) is not None


@dataclass(frozen=True)
class Measured:
    """A result as a report shows it. `stack` is the engine and model; `whole`: it is complete.

    `model`, `quant` and `engine` are empty if unknown; `gpus` are the first entries of `machine`.
    """

    label: str
    rig: str
    instance: str
    began: str
    id: str
    source: str
    suite: str
    stack: str
    model: str
    quant: str
    engine: str
    gpus: tuple[str, ...]
    machine: tuple[str, ...]
    serving: tuple[str, ...]
    context: int | None
    cells: tuple[MeasuredCell, ...]
    whole: bool
    peaks: tuple[Peak, ...]
    doubts: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def weights(self) -> str:
        """Return the model with its quant; empty if unknown."""
        return " ".join(filter(None, [self.model, "" if self.quant in self.model else self.quant]))

    @property
    def named(self) -> str:
        """Return model, quant and engine, as far as known."""
        return ", ".join(filter(None, [self.weights, self.engine])) or ("" if self.stack == self.label else self.stack)

    @property
    def processors(self) -> str:
        """Return the GPUs, or the CPU if there are none; empty if unknown."""
        return ", ".join(self.gpus or self.machine[:1])

    @property
    def order(self) -> tuple[bool, str, str]:
        """Return the sort key by which the most informative result is last: an incomplete one may be nearly empty."""
        return self.whole, self.began, self.id

    @property
    def less(self) -> bool:
        """Return whether another program measured it, with less information."""
        return self.source != "herd"

    @property
    def dated(self) -> bool:
        """Return whether the time of measurement is known: other programs often do not store it."""
        return self.source not in _WITHOUT_TIME

    @property
    def day(self) -> str:
        """Return the time of measurement; empty if unknown."""
        return self.began[:10] if self.dated else ""


def measured(result: Result) -> Measured:
    """Return a result as a report shows it."""
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
        model=origin.model or "",
        quant=_quant(origin),
        engine=_engine(origin),
        gpus=tuple(_gpus(origin)),
        machine=(*_gpus(origin), *_host(origin)),
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
    """Return average and maximum power. The sum of several GPUs' maxima never occurred, so it is left out."""
    if taken := cell.telemetry:
        peaks = [gpu.peak_watts for gpu in taken.gpus]
        return taken.watts, peaks[0] if len(peaks) == 1 else None
    watts = [run.watts for run in cell.counted if run.watts]
    return (sum(watts) / len(watts), max(watts)) if watts else (None, None)


def _joules(cell: Cell, watts: float | None) -> float | None:
    """Return joules per token, of the energy used while requests ran; for other programs, power divided by speed."""
    if (taken := cell.telemetry) and (joules := taken.joules):
        generated = sum(run.predicted_n or 0 for run in cell.runs) if cell.condition.generated > 1 else 0
        tokens = generated or sum(run.prompt_n or 0 for run in cell.runs)
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
    """Return the doubts about the meter's values."""
    for taken in (result.work, *(cell.telemetry for cell in result.cells)):
        yield from taken.doubts if taken else ()


def _notes(result: Result) -> Iterator[str]:
    yield from lost_runs(result)
    yield from result.method.anyway
    yield from result.source.notes
    yield from result.unmeasured


def _stack(result: Result) -> str:
    """Return engine and model, as far as known: results of an instance with different stacks have separate rows."""
    origin = result.provenance
    quant = _quant(origin)
    named = quant and quant in (origin.model or "")
    parts = [result.stack, _engine(origin), origin.model, None if named else quant]
    return " ".join(dict.fromkeys(part for part in parts if part))


def _engine(origin: Provenance) -> str:
    """Return the kind and the version of the engine."""
    version = origin.engine.version or (origin.engine.commit or "")[:10]
    return " ".join(part for part in (origin.engine.kind, version) if part)


def _quant(origin: Provenance) -> str:
    return next((each.quant for each in origin.files if each.part == "weights" and each.quant), "")


def _gpus(origin: Provenance) -> Iterator[str]:
    gpus = Counter(_gpu(gpu) for gpu in origin.gpus)
    yield from (f"{many} {name}" if many > 1 else name for name, many in gpus.items())


def _host(origin: Provenance) -> Iterator[str]:
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
        yield f"side by side with {', '.join(origin.around.instances)}"


_LEAST, _MOST = 1e-9, 1e13
"""The largest value, in the unit of its metric."""


def check_measured(result: Result, name: str) -> Measured:
    """Return a result of a file as a report shows it. Raise UserError if its values are invalid."""
    try:
        each = measured(result)
        sane = all(value is None or value == 0 or _LEAST <= value <= _MOST for value in _values_of_result(each))
    except (ArithmeticError, ValueError):
        sane = False
    if not sane:
        raise UserError(f"{name} contains impossible values", "leave it out, or correct it")
    return each


def _values_of_result(each: Measured) -> Iterator[float | None]:
    yield each.context
    for peak in each.peaks:
        yield from (peak.held_bytes, peak.planned_bytes)
    for cell in each.cells:
        yield from _values_of_cell(cell)


def _values_of_cell(cell: MeasuredCell) -> Iterator[float | None]:
    condition = cell.condition
    yield from (
        condition.depth,
        condition.prompt,
        condition.generated,
        condition.concurrency,
        condition.context,
        condition.power_limit_watts,
    )
    yield from (cell.watts, cell.most_watts, cell.joules, cell.total.value if cell.total else None)
    yield from (figure.value for figure in cell.figures)
    for run in cell.runs:
        yield from (run.decode, run.step)
