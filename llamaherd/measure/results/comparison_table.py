"""Print a comparison of two results, or the outcome of one measurement, as tables and a forest chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from llamaherd.inventory.schema import Expect
from llamaherd.measure.bench.series import (
    FEWEST_RUNS,
    drift_lines,
    energy_lines,
    judged_metrics,
    lengths_of,
    power_lines,
)
from llamaherd.measure.bench.workloads import total_lines
from llamaherd.measure.results.comparison import (
    UNSEEN_STARTS,
    Comparison,
    ComparisonRow,
    JudgedFigure,
    compare_results,
    find_doubts,
    judge_expectations,
)
from llamaherd.measure.results.metrics import ACCEPTED, DECODE, ENERGY, METRICS, STEP, TOKENS_PER_STEP, Metric, by_start
from llamaherd.measure.results.result import BY_URL, Condition, Result, Telemetry
from llamaherd.measure.statistics import Estimate, Judgement, Ratio, estimate
from llamaherd.text.numbers import show_size
from llamaherd.text.tables import make_table, print_table
from llamaherd.text.terminal import printable

_SPANS = (0.05, 0.1, 0.2, 0.3, 0.5)
"""The slow end of an axis, as shares; the fast end is its mirror."""

_DRAWN, _PLAIN = tuple("░│├─┤●◀▶"), tuple(":|[-]o<>")


def axis_span(ratios: Iterable[Ratio]) -> float:
    """Return the span of an axis that shows all intervals, up to the widest axis."""
    ends = [abs(log(end)) for each in ratios for end in (each.low or each.value, each.high or each.value)]
    return next((span for span in _SPANS if -log(1 - span) >= max(ends, default=0.0)), _SPANS[-1])


def forest_line(ratio: Ratio, margin: float | None, span: float, width: int, *, plain: bool = False) -> str:
    """Return one line of the chart: slower on the left, faster on the right, equal in the middle."""
    band, middle, left, line, right, point, beyond_left, beyond_right = _PLAIN if plain else _DRAWN
    letters = [" "] * width
    if margin:
        for at in range(_column(1 - margin, span, width), _column(1 + margin, span, width) + 1):
            letters[at] = band
    letters[width // 2] = middle
    low, high = ratio.low or ratio.value, ratio.high or ratio.value
    first, last = _column(low, span, width), _column(high, span, width)
    for at in range(first, last + 1):
        letters[at] = line
    if last > first:
        letters[first], letters[last] = left, right
    letters[_column(ratio.value, span, width)] = point
    if _beyond_axis(low, span) < 0:
        letters[0] = beyond_left
    if _beyond_axis(high, span) > 0:
        letters[-1] = beyond_right
    return "".join(letters)


def axis_scale(span: float, width: int) -> str:
    """Return the labels of the axis at its ends and in its middle."""
    ends = f"{1 - span:.2f}", f"{1 / (1 - span):.2f}"
    middle = "1.00".center(width - len(ends[0]) - len(ends[1]))
    return f"{ends[0]}{middle}{ends[1]}"


def _column(ratio: float, span: float, width: int) -> int:
    """Return the column of a ratio; the nearest one for what lies beyond."""
    half = width // 2
    column = half + round(log(ratio) / -log(1 - span) * half)
    return min(max(column, 0), width - 1)


def _beyond_axis(ratio: float, span: float) -> int:
    edge = -log(1 - span) * (1 + 1e-9)
    return (log(ratio) > edge) - (log(ratio) < -edge)


VERDICT_STYLES = {"slower": "bold red", "faster": "green", "same": "dim", "not known yet": "yellow"}
"""The style of each verdict."""
_LONGEST = 60
"""Letters of a value in a table: arguments have hundreds."""

_WIDTH = 41
"""Columns of the chart."""


def print_comparison(found: Comparison, to: Console) -> None:
    """Print the differences, the cells, the chart, and the notes on both."""
    to.print(f"A is [bold]{printable(found.a)}[/], B is [bold]{printable(found.b)}[/]")
    _print_differences(found, to)
    if found.rows:
        _print_rows(found.rows, to)
        _print_forest(found.rows, to)
    else:
        to.print("no condition was measured in both")
        to.print(f"  help: {printable(found.help)}", highlight=False)
    for name, only in (("A", found.only_a), ("B", found.only_b)):
        if only:
            to.print(f"in {name} alone: {'; '.join(map(str, only))}")
    for text in _all_notes(found):
        to.print(f"[yellow]note[/]: {printable(text)}")


def _all_notes(found: Comparison) -> Iterator[str]:
    """Yield the notes, each once if it applies to both."""
    yield from found.notes
    of_a, of_b = (*found.notes_a, *found.doubts_a), (*found.notes_b, *found.doubts_b)
    for text in dict.fromkeys([*of_a, *of_b]):
        whose = "A and B" if text in of_a and text in of_b else "A" if text in of_a else "B"
        yield f"{whose}: {text}"


def _print_differences(found: Comparison, to: Console) -> None:
    if not found.differences:
        to.print("no known difference")
        return
    table = make_table("different", "A", "B")
    for each in found.differences:
        table.add_row(printable(each.what), *(printable(_cut(text)) for text in (each.a, each.b)))
    print_table(table, to)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _print_rows(rows: Sequence[ComparisonRow], to: Console) -> None:
    table = make_table("cell", "", "A", "B", "B vs A", "verdict")
    last = None
    for row in rows:
        cell = "" if row.condition == last else str(row.condition)
        last = row.condition
        verdict = f"[{VERDICT_STYLES[row.judgement.verdict]}]{row.judgement}[/]" if row.judgement else ""
        values = (show_estimate(row.a, row.metric), show_estimate(row.b, row.metric), show_ratio(row))
        table.add_row(printable(cell), row.metric.heading, *values, verdict)
    print_table(table, to)


def _print_forest(rows: Sequence[ComparisonRow], to: Console) -> None:
    """Print the chart, in ASCII if the terminal has no UTF-8."""
    span = axis_span(row.ratio for row in rows)
    plain = not to.encoding.lower().startswith("utf")
    chart = make_table("", f"slower{'faster':>{_WIDTH - 6}}")
    for row in rows:
        line = forest_line(row.ratio, row.metric.margin, span, _WIDTH, plain=plain)
        chart.add_row(f"{printable(str(row.condition))}: {row.metric.name}", Text(line))
    chart.add_row("B / A", axis_scale(span, _WIDTH))
    print_table(chart, to)


def show_estimate(each: Estimate, metric: Metric) -> str:
    """Return a value with its interval and its number: `249 (247 to 251), n = 10`, or `249, n = 2, too few`."""
    value = _number(metric.shown(each.value))
    if each.low is None or each.high is None:
        return f"{value}, {each.counted}"
    low, high = sorted((metric.shown(each.low), metric.shown(each.high)))
    return f"{value} ({_number(low)} to {_number(high)}), {each.counted}"


def show_ratio(row: ComparisonRow) -> str:
    """Return how much faster B is: `-5.0 % (-6.1 to -3.9)`."""
    value = f"{100 * (row.ratio.value - 1):+.1f} %"
    if row.ratio.ends is None:
        return value
    low, high = row.ratio.ends
    return f"{value} ({100 * (low - 1):+.1f} to {100 * (high - 1):+.1f})"


def _number(value: float) -> str:
    """Return four digits, or all before the point."""
    digits = len(f"{abs(value):.0f}")
    return f"{value:,.{max(0, 4 - digits)}f}"


def comparison_json(found: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON. Ratios are of speeds: above 1, B is faster."""
    return {
        "a": found.a,
        "b": found.b,
        "differences": [{"what": each.what, "a": each.a, "b": each.b} for each in found.differences],
        "cells": list(_rows_json(found.rows)),
        "help": found.help or None,
        "only_a": [each.model_dump(mode="json") for each in found.only_a],
        "only_b": [each.model_dump(mode="json") for each in found.only_b],
        "notes": list(found.notes),
        "notes_a": list(found.notes_a),
        "notes_b": list(found.notes_b),
        "doubts_a": list(found.doubts_a),
        "doubts_b": list(found.doubts_b),
    }


def _rows_json(rows: Sequence[ComparisonRow]) -> Iterator[dict[str, Any]]:
    for row in rows:
        ratio, judgement = row.ratio, row.judgement
        yield {
            "condition": row.condition.model_dump(mode="json"),
            "metric": row.metric.name,
            "unit": row.metric.unit,
            "margin": row.metric.margin,
            "a": _estimate_json(row.a, row.metric),
            "b": _estimate_json(row.b, row.metric),
            "ratio": {"value": ratio.value, "low": ratio.low, "high": ratio.high, "n": ratio.n, "of": ratio.unit},
            "verdict": judgement.verdict if judgement else None,
            "more": {"n": judgement.more, "of": judgement.unit}
            if judgement and judgement.verdict == "not known yet"
            else None,
        }


def _estimate_json(each: Estimate, metric: Metric) -> dict[str, Any]:
    known = [metric.shown(end) for end in (each.low, each.high) if end is not None]
    low, high = (min(known), max(known)) if known else (None, None)
    return {
        "value": metric.shown(each.value),
        "low": low,
        "high": high,
        "n": each.n,
        "runs": each.runs,
        "of": each.unit,
    }


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
        words = [printable(cell), value.metric.heading, show_estimate(value.found, value.metric)]
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
