"""The panes that curves are drawn in: over the context, over requests at once, over the power limit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from llamaherd.bench.results.metrics import DECODE, FIRST_TOKEN, PREFILL, Metric
from llamaherd.report.charts import Axis, Chart, Pane, Point, Series, fewest
from llamaherd.report.measured import MeasuredCell
from llamaherd.report.tables import cells_table
from llamaherd.report.values import figure, number, tokens

_KWH = 3.6e6
"""Joules."""

_DECADE = 10

CONTEXT = Axis("tokens in the context", "log2", tokens=True)


@dataclass(frozen=True)
class Sweep:
    """Cells along something, each with its place there; `name` is what its curve is called."""

    name: str
    cells: tuple[tuple[float, MeasuredCell], ...]


Read = Callable[[float, MeasuredCell], Point | None]


def context_charts(sweeps: Sequence[Sweep], when: str) -> Iterator[Chart]:
    """Decode in up to six panes, and prefill in up to four."""
    speed = _pane("Speed", "t/s", CONTEXT, sweeps, _of(DECODE))
    if speed:
        power = Axis("power, W")
        over = _pane("Efficiency over power", "tokens/J", power, sweeps, _over_power, line=False)
        answers = [each for each in sweeps if any(cell.answers for _, cell in each.cells)]
        first = _pane("Time to the first token", "ms", CONTEXT, answers, _of(FIRST_TOKEN))
        panes = [speed, *_energy_panes(answers), first, over]
        yield _chart("Decode over the context", panes, answers, when)
    prompts = [each for each in sweeps if any(cell.figure(PREFILL) for _, cell in each.cells)]
    speed = _pane("Speed", "t/s", CONTEXT, prompts, _of(PREFILL))
    if speed:
        alone = [each for each in prompts if not any(cell.answers for _, cell in each.cells)]
        yield _chart("Prefill over the context", [speed, *_energy_panes(alone)], prompts, when)


def _energy_panes(sweeps: Sequence[Sweep]) -> list[Pane | None]:
    return [
        _pane("Energy", "J/token", CONTEXT, sweeps, _joules),
        _pane("Tokens for a kilowatt-hour", "thousands", CONTEXT, sweeps, _for_a_kwh),
        _pane("Power of all GPUs", "W", CONTEXT, sweeps, _watts),
    ]


def allocated_charts(sweeps: Sequence[Sweep], when: str) -> Iterator[Chart]:
    """Decode over a context that was allocated: it says nothing of a context that is full."""
    axis = Axis("context that was allocated, tokens", "log2", tokens=True)
    if pane := _pane("Speed", "t/s", axis, sweeps, _of(DECODE)):
        yield _chart("Decode over the allocated context", [pane], sweeps, when)


def concurrency_charts(sweeps: Sequence[Sweep], when: str) -> Iterator[Chart]:
    """What all streams get together, and what each of them gets: two panes, as no pane has two axes."""
    axis = Axis("requests at once", "log2")
    total = _pane("All streams together", "t/s", axis, sweeps, _together)
    each = _pane("Each stream", "t/s", axis, sweeps, _of(DECODE))
    first = _pane("Time to the first token", "ms", axis, sweeps, _of(FIRST_TOKEN))
    energy = _pane("Energy", "J/token", axis, sweeps, _joules)
    if each:
        yield _chart("Requests at once", [total, each, first, energy], sweeps, when)


def limit_charts(sweeps: Sequence[Sweep], when: str) -> Iterator[Chart]:
    """Speed and efficiency over the power limit."""
    axis = Axis("power limit of each GPU, W")
    panes = [
        _pane("Decode", "t/s", axis, sweeps, _of(DECODE)),
        _pane("Prefill", "t/s", axis, sweeps, _of(PREFILL)),
        _pane("Efficiency", "tokens/J", axis, sweeps, _per_joule),
        _pane("Power of all GPUs", "W", axis, sweeps, _watts),
    ]
    if any(panes):
        yield _chart("Over the power limit", panes, sweeps, when)


def _chart(title: str, panes: Sequence[Pane | None], sweeps: Sequence[Sweep], when: str) -> Chart:
    cells = [cell for each in sweeps for _, cell in each.cells]
    several = any(found.ends for cell in cells for found in cell.figures)
    how = "Bands and lines are 95 % intervals." if several else "One run each: no error is known."
    runs = sorted({found.estimate.runs for cell in cells for found in cell.figures})
    many = f"n = {runs[0]}" if len(runs) == 1 else f"n = {runs[0]} to {runs[-1]}"
    caption = f"{when} {many} for each point. {how}"
    drawn = tuple(each for each in panes if each)
    conditions = tuple(cell.condition for cell in cells)
    return Chart(title, caption, drawn, table=cells_table(cells, title), conditions=conditions)


def _pane(title: str, unit: str, x: Axis, sweeps: Sequence[Sweep], read: Read, *, line: bool = True) -> Pane | None:
    """A pane with a curve of each sweep that has at least two of these points."""
    every = []
    for sweep in sweeps:
        points = tuple(point for place, cell in sweep.cells if (point := read(place, cell)))
        if len(points) > 1:
            every.append(Series(sweep.name, points, line=line))
    if not every:
        return None
    kept = fewest(every)
    about = "; ".join(f"{each.name}: {_told(each.points)}" for each in kept)
    values = [point.y for each in kept for point in each.points]
    # Seconds and minutes on one axis: only so can both be read.
    log = unit == "ms" and max(values) > _DECADE * min(values)
    y = Axis(unit, "log10" if log else "linear", zero=not log)
    return Pane(title, f"{unit} over {x.name}. {about}", x, y, kept)


def _told(points: Sequence[Point]) -> str:
    first, last = points[0], points[-1]
    return f"from {first.about} to {last.about}"


def _together(place: float, cell: MeasuredCell) -> Point | None:
    """All streams, in the time in which all of them were asked."""
    if cell.total is None:
        return None
    return Point(place, cell.total.value, cell.total.low, cell.total.high, f"{place:g}: {number(cell.total.value)} t/s")


def _of(metric: Metric) -> Read:
    """A metric with its interval."""

    def read(place: float, cell: MeasuredCell) -> Point | None:
        found = cell.figure(metric)
        if found is None:
            return None
        low, high = found.ends or (None, None)
        return Point(place, found.value, low, high, f"{_at(place, cell)}: {figure(found)} {metric.unit}")

    return read


def _at(place: float, cell: MeasuredCell) -> str:
    """Where a point is, as it is pointed at."""
    return tokens(place) if place >= 1024 or cell.condition.concurrency == 1 else f"{place:g}"


def _joules(place: float, cell: MeasuredCell) -> Point | None:
    return (
        Point(place, cell.joules, about=f"{_at(place, cell)}: {number(cell.joules)} J/token") if cell.joules else None
    )


def _per_joule(place: float, cell: MeasuredCell) -> Point | None:
    return _one(place, 1 / cell.joules, f"{place:g} W", "tokens/J") if cell.joules else None


def _for_a_kwh(place: float, cell: MeasuredCell) -> Point | None:
    return _one(place, _KWH / cell.joules / 1000, _at(place, cell), "thousand") if cell.joules else None


def _over_power(_place: float, cell: MeasuredCell) -> Point | None:
    if not cell.joules or not cell.watts or not cell.answers:
        return None
    return _one(cell.watts, 1 / cell.joules, f"{tokens(cell.filled)} at {number(cell.watts)} W", "tokens/J")


def _watts(place: float, cell: MeasuredCell) -> Point | None:
    if not cell.watts:
        return None
    high = cell.most_watts if cell.most_watts and cell.most_watts > cell.watts else None
    low = cell.watts if high else None
    most = f", at most {number(high)} W" if high else ""
    return Point(place, cell.watts, low, high, f"{_at(place, cell)}: {number(cell.watts)} W{most}")


def _one(x: float, y: float, at: str, unit: str) -> Point:
    return Point(x, y, about=f"{at}: {number(y)} {unit}")
