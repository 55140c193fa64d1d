"""An instance over time: each metric by date, with its interval. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llamaherd.bench.metrics import DECODE, FIRST_TOKEN, PREFILL, STEP, Metric
from llamaherd.report.charts import Axis, Chart, Pane, Point, Series, fewest
from llamaherd.report.measured import Measured
from llamaherd.report.picks import figure_of, kinds_of, picked
from llamaherd.report.tables import history_table
from llamaherd.report.ticks import days
from llamaherd.report.values import figure, number

MOST_LISTED = 30
"""Results that the table lists, the newest."""


def history_charts(results: Sequence[Measured]) -> Iterator[Chart]:
    """Speed by kind, time of a step, prefill, time to the first token and energy, of each result at its time."""
    in_order = sorted(results, key=lambda each: (each.began, each.id))
    kinds = kinds_of(in_order)
    panes = [
        _pane("Decode", "t/s", [_series(in_order, kind, DECODE, kind) for kind in kinds]),
        _pane("Time of a step", "ms", [_series(in_order, kind, STEP, kind) for kind in kinds]),
        _pane("Prefill", "t/s", [_series(in_order, "prefill", PREFILL)]),
        _pane("Time to the first token", "ms", [_series(in_order, "first token", FIRST_TOKEN)]),
        _pane("Energy", "J/token", [_energy(in_order)]),
    ]
    found = tuple(pane for pane in panes if pane)
    if found:
        caption = f"{len(in_order)} results, {in_order[0].day} to {in_order[-1].day}. Lines are 95 % intervals."
        suites = {each.suite for each in in_order if each.suite}
        more = " Their prompts are not the same: compare those of one suite alone." if len(suites) > 1 else ""
        table = history_table(in_order[: -MOST_LISTED - 1 : -1], kinds)
        yield Chart("Over time", caption + more, found, table=table)


def _pane(title: str, unit: str, every: Sequence[Series]) -> Pane | None:
    kept = fewest(each for each in every if len(each.points) > 1)
    if not kept:
        return None
    about = "; ".join(f"{each.name}: from {each.points[0].about} to {each.points[-1].about}" for each in kept)
    return Pane(title, f"{unit} by date. {about}", Axis("", "date"), Axis(unit, zero=True), kept)


def _series(results: Sequence[Measured], name: str, metric: Metric, kind: str | None = None) -> Series:
    points = []
    for each in results:
        if found := figure_of(each.cells, metric, kind):
            low, high = found.ends or (None, None)
            about = f"{each.day}: {figure(found)} {metric.unit}"
            points.append(Point(days(each.began), found.value, low, high, about))
    return Series(name, tuple(points))


def _energy(results: Sequence[Measured]) -> Series:
    found = [(each, cell.joules) for each in results if (cell := picked(each.cells, DECODE)) and cell.joules]
    points = [Point(days(each.began), joules, about=f"{each.day}: {number(joules)} J/token") for each, joules in found]
    return Series("energy", tuple(points))
