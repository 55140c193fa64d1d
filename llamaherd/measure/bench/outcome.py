"""Compare a measurement with the expected speeds and the previous result, and print it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from llamaherd.inventory.schema import Expect
from llamaherd.measure.bench.load import drift_lines, total_lines
from llamaherd.measure.bench.series import FEWEST_RUNS, energy_lines, judged_metrics, lengths_of, power_lines
from llamaherd.measure.results.comparison import (
    UNSEEN_STARTS,
    ComparisonRow,
    JudgedFigure,
    compare_results,
    find_doubts,
    judge_expectations,
)
from llamaherd.measure.results.comparison_table import VERDICT_STYLES, show_estimate, show_ratio
from llamaherd.measure.results.metrics import ACCEPTED, DECODE, ENERGY, METRICS, STEP, TOKENS_PER_STEP, Metric, by_start
from llamaherd.measure.results.result import BY_URL, Condition, Result, Telemetry
from llamaherd.measure.statistics import Estimate, Judgement, estimate
from llamaherd.text.numbers import show_size
from llamaherd.text.tables import make_table, print_table
from llamaherd.text.terminal import printable

_BESIDES = (STEP, TOKENS_PER_STEP, ACCEPTED, ENERGY)
"""The metrics of responses that are shown with their speed."""


@dataclass(frozen=True)
class MetricValue:
    """A metric of a cell, and its comparison with the last measurement, if there is one."""

    condition: Condition
    metric: Metric
    found: Estimate
    before: ComparisonRow | None

    @property
    def judgement(self) -> Judgement | None:
        """The verdict against the last measurement; None for fewer than three runs."""
        known = self.before is not None and self.before.ratio.n >= FEWEST_RUNS
        return self.before.judgement if self.before and known else None

    @property
    def slower(self) -> bool:
        """Return True if it is slower than before."""
        return self.judgement is not None and self.judgement.verdict == "slower"


@dataclass(frozen=True)
class MeasurementOutcome:
    """A result with its values. `expected` compares it with what its owner expects, figure by figure."""

    result: Result
    values: tuple[MetricValue, ...]
    expected: tuple[JudgedFigure, ...]
    apart: tuple[str, ...] = ()
    """Why some speeds are not compared with the last measurement."""

    @property
    def known(self) -> bool:
        """Return True if any run counts."""
        return bool(self.values)

    @property
    def fine(self) -> bool:
        """Return True if nothing misses what is expected, or is slower than before."""
        return not (any(each.missed for each in self.expected) or any(each.slower for each in self.values))


def measurement_outcome(result: Result, expect: Expect | None, before: Result | None) -> MeasurementOutcome:
    """Judge a result. Only the metrics that a condition is meant for have verdicts."""
    rows = {(row.condition, row.metric.name): row for row in compare_results(before, result).rows} if before else {}
    apart = tuple(_apart(lengths_of(result.conditions), lengths_of(before.conditions))) if before else ()
    if result.rig == BY_URL and any(row.ratio.assumed for row in rows.values()):
        apart = (*apart, UNSEEN_STARTS)
    return MeasurementOutcome(result, tuple(_values(result, rows)), judge_expectations(result, expect), apart)


def _apart(now: tuple[int | None, int | None], before: tuple[int | None, int | None]) -> Iterator[str]:
    for what, tokens, last in zip(("responses", "a prompt"), now, before, strict=True):
        if tokens and last and tokens != last:
            yield f"{what} of {tokens:,} tokens, and the last measurement has {last:,}: their speeds are not compared"


def _values(result: Result, rows: dict[tuple[Condition, str], ComparisonRow]) -> Iterator[MetricValue]:
    for cell in result.cells:
        judged = judged_metrics(cell.condition)
        shown = judged + (_BESIDES if DECODE in judged else ())
        for metric in METRICS:
            found = estimate(by_start(cell.counted, metric)) if metric in shown else None
            if found:
                before = rows.get((cell.condition, metric.name)) if metric in judged else None
                yield MetricValue(cell.condition, metric, found, before)


def print_outcome(found: MeasurementOutcome, to: Console) -> None:
    """Print the outcome."""
    if found.values:
        print_table(_table(found), to)
    else:
        to.print("no run counts")
    for each in found.expected:
        style = "bold red" if each.missed else "green" if each.outcome == "met" else "yellow"
        to.print(f"expected: {each.figure} {each.expected:g} {each.unit}: [{style}]{each}[/]{_measured(each)}")
    for line in (*_of_series(found.result), *_took(found.result), *_held(found.result)):
        to.print(printable(line))
    for text in dict.fromkeys(_notes(found)):
        to.print(f"[yellow]note[/]: {printable(text)}")


def _of_series(result: Result) -> Iterator[str]:
    """Yield the summaries of several requests at once, a soak, energy and power limits."""
    yield from total_lines(result)
    yield from drift_lines(result)
    yield from energy_lines(result)
    yield from power_lines(result)


def _table(found: MeasurementOutcome) -> Table:
    """Return the table; it has columns for the last measurement if there is one."""
    before = any(value.before for value in found.values)
    headings = ["cell", "", "value", *(["vs the last", ""] if before else [])]
    table = make_table(*headings)
    last = None
    for value in found.values:
        cell = "" if value.condition == last else str(value.condition)
        last = value.condition
        name = f"{value.metric.name}, {value.metric.unit}" if value.metric.unit else value.metric.name
        words = [printable(cell), name, show_estimate(value.found, value.metric)]
        words += [show_ratio(value.before) if value.before else "", _verdict(value)] if before else []
        table.add_row(*words)
    return table


def _verdict(value: MetricValue) -> str:
    judged = value.judgement
    if judged is None:
        return "too few runs" if value.before else ""
    return f"[{VERDICT_STYLES[judged.verdict]}]{judged}[/]"


def _measured(judged: JudgedFigure) -> str:
    if judged.value is None:
        return ""
    return printable(f", {judged.value:.4g} {judged.unit} ({judged.where})")


def _took(result: Result) -> Iterator[str]:
    """Yield power, heat and clocks of each GPU, and the power of the processor."""
    work, rest = result.work, result.rest
    if work is None:
        return
    for gpu in work.gpus:
        name = result.provenance.gpus[gpu.gpu].name if gpu.gpu < len(result.provenance.gpus) else "GPU"
        at_rest = _watts_at_rest(rest, gpu.gpu)
        parts = [f"{gpu.watts:.0f} W{at_rest}, {gpu.peak_watts or gpu.watts:.0f} W at most" if gpu.watts else ""]
        parts += [f"{gpu.celsius_most:.0f} °C at most" if gpu.celsius_most is not None else ""]
        parts += [f"{gpu.sm_mhz:.0f} MHz" if gpu.sm_mhz is not None else ""]
        parts += [f"slowed {each.share:.0%} of the time: {each.reason}" for each in gpu.slowed]
        yield f"GPU {gpu.gpu}, {name}: {'; '.join(part for part in parts if part) or 'it reports nothing'}"
    if work.processor_joules is not None and work.seconds:
        yield f"processor: {work.processor_joules / work.seconds:.0f} W"


def _watts_at_rest(rest: Telemetry | None, number: int) -> str:
    found = next((gpu.watts for gpu in rest.gpus if gpu.gpu == number), None) if rest else None
    return f" ({found:.0f} W at rest)" if found is not None else ""


def _held(result: Result) -> Iterator[str]:
    """Yield the peaks of memory, with the planned amounts."""
    for peak in result.peaks:
        where = "RAM" if peak.gpu is None else f"GPU {peak.gpu}'s memory"
        if peak.held_bytes is not None:
            planned = f", {show_size(peak.planned_bytes)} planned" if peak.planned_bytes else ""
            yield f"{where}: {show_size(peak.held_bytes)} at most{planned}"


def _notes(found: MeasurementOutcome) -> Iterator[str]:
    """Yield the notes: on excluded runs, on doubts, and on what could not be measured."""
    result = found.result
    if group := result.provenance.server.group:
        yield f"measured while group {group} had its model loaded; the time of a swap is not included"
    excluded = Counter(run.excluded for cell in result.cells for run in cell.runs if run.excluded)
    for why, many in excluded.items():
        yield f"{many} {'run does' if many == 1 else 'runs do'} not count: {why}"
    if result.method.anyway:
        yield f"measured despite: {', '.join(result.method.anyway)}"
    yield from found.apart
    yield from find_doubts(result)
    yield from result.work.doubts if result.work else ()
    yield from (f"not measured: {each}" for each in result.unmeasured)
    yield from result.source.notes
