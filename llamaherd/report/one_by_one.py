"""Runs one by one, with mean and standard deviation: whether a spread is of the machine or of the text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llamaherd.bench.statistics.intervals import standard_deviation
from llamaherd.report.charts import Axis, Chart, Level, Pane, Point, Series
from llamaherd.report.measured import Measured, MeasuredCell
from llamaherd.report.tables import Table, without_empty
from llamaherd.report.values import number, optional, short

SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
_FEWEST, _MOST_CELLS = 5, 6
"""Runs of a cell that are drawn, and cells."""


def runs_charts(each: Measured, when: str) -> Iterator[Chart]:
    """A pane of speeds for each cell with enough runs, and one of the time of a step where it drafts."""
    cells = [cell for cell in each.cells if len(cell.runs) >= _FEWEST and cell.condition.concurrency == 1]
    cells = cells[:_MOST_CELLS]
    if not cells:
        return
    panes = [pane for cell in cells for pane in _panes(cell)]
    rows = [row for cell in cells for row in _rows(cell)]
    table = Table("Run by run", ("condition", "run", "decode, t/s", "step, ms"), tuple(rows))
    caption = f"{when} The line is the mean of the runs, the band one standard deviation ({SIGMA}) to either side."
    yield Chart("Run by run", caption, tuple(panes), table=without_empty(table))


def _panes(cell: MeasuredCell) -> Iterator[Pane]:
    yield _pane(f"Decode: {cell.condition}", "t/s", [run.decode for run in cell.runs])
    steps = [run.step for run in cell.runs if run.step is not None]
    if len(steps) == len(cell.runs):
        yield _pane(f"Step: {cell.condition}", "ms", steps)


def _pane(title: str, unit: str, values: Sequence[float]) -> Pane:
    mean, spread = sum(values) / len(values), standard_deviation(values) or 0.0
    said = f"mean {number(mean)} {unit}, {SIGMA} {short(spread)} ({spread / mean:.1%})"
    points = tuple(Point(at, value, about=f"run {at}: {number(value)}") for at, value in enumerate(values, start=1))
    level = Level(mean, mean - spread, mean + spread)
    about = f"{unit} of {len(values)} runs: {said}, from {number(min(values))} to {number(max(values))}"
    return Pane(
        title, about, Axis(f"run; {said}", whole=True), Axis(unit), (Series("runs", points, line=False),), (level,)
    )


def _rows(cell: MeasuredCell) -> Iterator[tuple[str, ...]]:
    for at, run in enumerate(cell.runs, start=1):
        yield str(cell.condition), str(at), number(run.decode), optional(run.step)
