"""An instance over time: each metric by date, with its interval, under the same condition each time. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llamaherd.bench.results.metrics import DECODE, FIRST_TOKEN, PREFILL, STEP, Metric
from llamaherd.bench.results.result import Condition
from llamaherd.report.charts import Axis, Chart, Pane, Point, Series, fewest
from llamaherd.report.measured import Measured, MeasuredCell
from llamaherd.report.picks import kinds_of, picked
from llamaherd.report.tables import Table, without_empty
from llamaherd.report.ticks import days
from llamaherd.report.values import NONE, figure, number

MOST_LISTED = 30
"""Results that the table lists, the newest."""


@dataclass(frozen=True)
class Followed:
    """A condition that is followed over time, and what it is called."""

    name: str
    condition: Condition


def history_charts(results: Sequence[Measured]) -> Iterator[Chart]:
    """Speed by kind, time of a step, prefill, time to the first token and energy, of each result at its time."""
    in_order = sorted(results, key=lambda each: (each.began, each.id))
    kinds = [one for kind in kinds_of(in_order) if (one := _followed(in_order, kind, DECODE, kind))]
    prefill = [one] if (one := _followed(in_order, "prefill", PREFILL)) else []
    first = [one] if (one := _followed(in_order, "first token", FIRST_TOKEN)) else []
    panes = [
        _pane("Decode", "t/s", [_series(in_order, one, DECODE) for one in kinds]),
        _pane("Time of a step", "ms", [_series(in_order, one, STEP) for one in kinds]),
        _pane("Prefill", "t/s", [_series(in_order, one, PREFILL) for one in prefill]),
        _pane("Time to the first token", "ms", [_series(in_order, one, FIRST_TOKEN) for one in first]),
        _pane("Energy", "J/token", [_energy(in_order, one) for one in kinds]),
    ]
    found = tuple(pane for pane in panes if pane)
    if found:
        caption = f"{len(in_order)} results, {in_order[0].day} to {in_order[-1].day}. Lines are 95 % intervals."
        suites = {each.suite for each in in_order if each.suite}
        more = " Their prompts are not the same: compare those of one suite alone." if len(suites) > 1 else ""
        columns = [*((one, DECODE) for one in kinds), *((one, PREFILL) for one in prefill)]
        table = _table(in_order[: -MOST_LISTED - 1 : -1], columns)
        yield Chart("Over time", caption + more, found, table=table)


def _followed(results: Sequence[Measured], name: str, metric: Metric, kind: str | None = None) -> Followed | None:
    """The condition that most of them have in common: only what is equal is compared."""
    found = [cell.condition for each in results if (cell := picked(each.cells, metric, kind))]
    if not found:
        return None
    ((condition, _),) = Counter(reversed(found)).most_common(1)
    return Followed(name, condition)


def _cell(each: Measured, followed: Followed) -> MeasuredCell | None:
    return next((cell for cell in each.cells if cell.condition == followed.condition), None)


def _table(results: Sequence[Measured], columns: Sequence[tuple[Followed, Metric]]) -> Table:
    """A row for each result."""
    rows = []
    for each in results:
        cells = [(_cell(each, followed), metric) for followed, metric in columns]
        figures = [figure(cell.figure(metric) if cell else None) for cell, metric in cells]
        doubts = str(len(each.doubts)) if each.doubts else NONE
        rows.append((each.began.replace("T", " ").rstrip("Z"), *figures, each.stack or NONE, doubts))
    named = (f"{followed.condition}: {metric.name}, {metric.unit}" for followed, metric in columns)
    return without_empty(Table("Over time", ("measured, UTC", *named, "stack", "doubts"), tuple(rows)))


def _pane(title: str, unit: str, every: Sequence[Series]) -> Pane | None:
    kept = fewest(each for each in every if len(each.points) > 1)
    if not kept:
        return None
    about = "; ".join(f"{each.name}: from {each.points[0].about} to {each.points[-1].about}" for each in kept)
    return Pane(title, f"{unit} by date. {about}", Axis("", "date"), Axis(unit, zero=True), kept)


def _series(results: Sequence[Measured], followed: Followed, metric: Metric) -> Series:
    points = []
    for each in results:
        cell = _cell(each, followed)
        if cell and (found := cell.figure(metric)):
            low, high = found.ends or (None, None)
            about = f"{each.day}: {figure(found)} {metric.unit}"
            points.append(Point(days(each.began), found.value, low, high, about))
    return Series(followed.name, tuple(points))


def _energy(results: Sequence[Measured], followed: Followed) -> Series:
    found = [(each, cell.joules) for each in results if (cell := _cell(each, followed)) and cell.joules]
    points = [Point(days(each.began), joules, about=f"{each.day}: {number(joules)} J/token") for each, joules in found]
    return Series(followed.name, tuple(points))
