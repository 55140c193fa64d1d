"""The charts of one result: sweeps of cells that differ in one thing, a power law, the spread of runs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from typing import Literal

from llamaherd.measure.report.charts import (
    Axis,
    Chart,
    Level,
    Pane,
    Point,
    Series,
    Table,
    cells_table,
    fewest,
    figure,
    optional,
    rounded,
    short,
    tokens,
    without_empty,
)
from llamaherd.measure.report.results import Measured, MeasuredCell
from llamaherd.measure.results.metrics import DECODE, FIRST_TOKEN, PREFILL, Metric
from llamaherd.measure.statistics import fit_line, standard_deviation

_KWH = 3.6e6
"""Joules."""

_DECADE = 10

CONTEXT = Axis("tokens in the context", "log2", tokens=True)


@dataclass(frozen=True)
class Sweep:
    """Cells along one condition, each with its value of the condition. `name` is the name of the curve."""

    name: str
    cells: tuple[tuple[float, MeasuredCell], ...]


PointOf = Callable[[float, MeasuredCell], Point | None]


def context_charts(sweeps: Sequence[Sweep], when: str) -> Iterator[Chart]:
    """Return the charts over depth: decode in up to six panes, prefill in up to four."""
    speed = _sweep_pane("Speed", "t/s", CONTEXT, sweeps, _metric_point(DECODE))
    if speed:
        power = Axis("power, W")
        over = _sweep_pane("Efficiency over power", "tokens/J", power, sweeps, _over_power, line=False)
        generating = [each for each in sweeps if any(cell.generates for _, cell in each.cells)]
        first = _sweep_pane("Time to the first token", "ms", CONTEXT, generating, _metric_point(FIRST_TOKEN))
        panes = [speed, *_energy_panes(generating), first, over]
        yield _sweep_chart("Decode over the context", panes, generating, when)
    prompts = [each for each in sweeps if any(cell.figure(PREFILL) for _, cell in each.cells)]
    speed = _sweep_pane("Speed", "t/s", CONTEXT, prompts, _metric_point(PREFILL))
    if speed:
        alone = [each for each in prompts if not any(cell.generates for _, cell in each.cells)]
        yield _sweep_chart("Prefill over the context", [speed, *_energy_panes(alone)], prompts, when)


def speed_over_context(each: Measured) -> Pane | None:
    """Return decode over the context, or prefill if decode was not measured there; None without enough points."""
    sweeps = _sweeps_along(each, "filled")
    for name, metric in (("Decode", DECODE), ("Prefill", PREFILL)):
        if pane := _sweep_pane(name, "t/s", CONTEXT, sweeps, _metric_point(metric)):
            return pane
    return None


def _energy_panes(sweeps: Sequence[Sweep]) -> list[Pane | None]:
    return [
        _sweep_pane("Energy", "J/token", CONTEXT, sweeps, _joules),
        _sweep_pane("Tokens for a kilowatt-hour", "thousands", CONTEXT, sweeps, _for_a_kwh),
        _sweep_pane("Power of all GPUs", "W", CONTEXT, sweeps, _watts),
    ]


def allocated_charts(sweeps: Sequence[Sweep], when: str) -> Iterator[Chart]:
    """Return decode over the allocated context, which does not show decode at a full context."""
    axis = Axis("context that was allocated, tokens", "log2", tokens=True)
    if pane := _sweep_pane("Speed", "t/s", axis, sweeps, _metric_point(DECODE)):
        yield _sweep_chart("Decode over the allocated context", [pane], sweeps, when)


def concurrency_charts(sweeps: Sequence[Sweep], when: str) -> Iterator[Chart]:
    """Return the speed of all streams together and of each stream, in two panes."""
    axis = Axis("requests at once", "log2")
    total = _sweep_pane("All streams together", "t/s", axis, sweeps, _together)
    each = _sweep_pane("Each stream", "t/s", axis, sweeps, _metric_point(DECODE))
    first = _sweep_pane("Time to the first token", "ms", axis, sweeps, _metric_point(FIRST_TOKEN))
    energy = _sweep_pane("Energy", "J/token", axis, sweeps, _joules)
    if each:
        yield _sweep_chart("Requests at once", [total, each, first, energy], sweeps, when)


def limit_charts(sweeps: Sequence[Sweep], when: str) -> Iterator[Chart]:
    """Return speed and efficiency over the power limit."""
    axis = Axis("power limit of each GPU, W")
    panes = [
        _sweep_pane("Decode", "t/s", axis, sweeps, _metric_point(DECODE)),
        _sweep_pane("Prefill", "t/s", axis, sweeps, _metric_point(PREFILL)),
        _sweep_pane("Efficiency", "tokens/J", axis, sweeps, _per_joule),
        _sweep_pane("Power of all GPUs", "W", axis, sweeps, _watts),
    ]
    if any(panes):
        yield _sweep_chart("Over the power limit", panes, sweeps, when)


def _sweep_chart(title: str, panes: Sequence[Pane | None], sweeps: Sequence[Sweep], when: str) -> Chart:
    cells = [cell for each in sweeps for _, cell in each.cells]
    several = any(found.ends for cell in cells for found in cell.figures)
    how = "Bands and lines are 95 % intervals." if several else "One run each: the error is unknown."
    runs = sorted({found.estimate.runs for cell in cells for found in cell.figures})
    many = f"n = {runs[0]}" if len(runs) == 1 else f"n = {runs[0]} to {runs[-1]}"
    caption = f"{when} {many} for each point. {how}"
    drawn = tuple(each for each in panes if each)
    conditions = tuple(cell.condition for cell in cells)
    return Chart(title, caption, drawn, table=cells_table(cells, title), conditions=conditions)


def _sweep_pane(
    title: str, unit: str, x: Axis, sweeps: Sequence[Sweep], read: PointOf, *, line: bool = True
) -> Pane | None:
    """Return a pane with a curve of each sweep that has at least two points."""
    every = []
    for sweep in sweeps:
        points = tuple(point for place, cell in sweep.cells if (point := read(place, cell)))
        if len(points) > 1:
            every.append(Series(sweep.name, points, line=line))
    if not every:
        return None
    kept = fewest(every)
    about = "; ".join(f"{each.name}: {_range_text(each.points)}" for each in kept)
    values = [point.y for each in kept for point in each.points]
    # Seconds and minutes on one axis: only a logarithmic axis shows both.
    log = unit == "ms" and max(values) > _DECADE * min(values)
    y = Axis(unit, "log10" if log else "linear", zero=not log)
    return Pane(title, f"{unit} over {x.name}. {about}", x, y, kept)


def _range_text(points: Sequence[Point]) -> str:
    first, last = points[0], points[-1]
    return f"from {first.about} to {last.about}"


def _together(place: float, cell: MeasuredCell) -> Point | None:
    """Return the total speed while all streams were active."""
    if cell.total is None:
        return None
    return Point(
        place, cell.total.value, cell.total.low, cell.total.high, f"{place:g}: {rounded(cell.total.value)} t/s"
    )


def _metric_point(metric: Metric) -> PointOf:
    """Return a metric with its interval."""

    def read(place: float, cell: MeasuredCell) -> Point | None:
        found = cell.figure(metric)
        if found is None:
            return None
        low, high = found.ends or (None, None)
        return Point(place, found.value, low, high, f"{_place_text(place, cell)}: {figure(found)} {metric.unit}")

    return read


def _place_text(place: float, cell: MeasuredCell) -> str:
    """Return the tooltip of a point."""
    return tokens(place) if place >= 1024 or cell.condition.concurrency == 1 else f"{place:g}"


def _joules(place: float, cell: MeasuredCell) -> Point | None:
    return (
        Point(place, cell.joules, about=f"{_place_text(place, cell)}: {rounded(cell.joules)} J/token")
        if cell.joules
        else None
    )


def _per_joule(place: float, cell: MeasuredCell) -> Point | None:
    return _plain_point(place, 1 / cell.joules, f"{place:g} W", "tokens/J") if cell.joules else None


def _for_a_kwh(place: float, cell: MeasuredCell) -> Point | None:
    return _plain_point(place, _KWH / cell.joules / 1000, _place_text(place, cell), "thousand") if cell.joules else None


def _over_power(_place: float, cell: MeasuredCell) -> Point | None:
    if not cell.joules or not cell.watts or not cell.generates:
        return None
    return _plain_point(cell.watts, 1 / cell.joules, f"{tokens(cell.filled)} at {rounded(cell.watts)} W", "tokens/J")


def _watts(place: float, cell: MeasuredCell) -> Point | None:
    if not cell.watts:
        return None
    high = cell.most_watts if cell.most_watts and cell.most_watts > cell.watts else None
    low = cell.watts if high else None
    most = f", at most {rounded(high)} W" if high else ""
    return Point(place, cell.watts, low, high, f"{_place_text(place, cell)}: {rounded(cell.watts)} W{most}")


def _plain_point(x: float, y: float, at: str, unit: str) -> Point:
    return Point(x, y, about=f"{at}: {rounded(y)} {unit}")


_FEWEST_FITTED = 4
"""The fewest points of a law: two fit any."""
_DRAWN = 24


@dataclass(frozen=True)
class PowerLaw:
    """y = factor · x ** power, between the smallest and largest fitted x; `error` is that of the power.

    `left` is the relative residual of a point, for each x.
    """

    factor: float
    power: float
    error: float
    least: float
    most: float
    left: tuple[tuple[float, float], ...]

    def at(self, x: float) -> float:
        """Return the value of the law at `x`."""
        return float(self.factor * x**self.power)


def fit_power_law(points: Sequence[tuple[float, float]]) -> PowerLaw | None:
    """Return the law by least squares of logarithms, with the 95 % interval of its power; None for too few points."""
    if len(points) < _FEWEST_FITTED or len({x for x, _ in points}) < _FEWEST_FITTED:
        return None
    line = fit_line([(log(x), log(y)) for x, y in points])
    if line is None:
        return None
    places = [x for x, _ in points]
    shares = tuple((x, exp(left) - 1) for x, left in zip(places, line.left, strict=True))
    return PowerLaw(exp(line.start), line.slope, line.half, min(places), max(places), shares)


def law_charts(sweeps: Sequence[Sweep], when: str) -> Iterator[Chart]:
    """Return each curve of decode with its law and the residuals."""
    for sweep in sweeps:
        points = [(place, found.value) for place, cell in sweep.cells if (found := cell.figure(DECODE))]
        if law := fit_power_law(points):
            yield _law_chart(sweep.name, points, law, when)


def _law_chart(name: str, points: Sequence[tuple[float, float]], law: PowerLaw, when: str) -> Chart:
    power = f"{law.power:.3f} ± {law.error:.3f}"
    reach = f"{tokens(law.least)} to {tokens(law.most)} tokens"
    worst = max(abs(each) for _, each in law.left)
    caption = (
        f"{when} n = {len(points)}. Speed is {rounded(law.factor)} times tokens to the power of {power}, from {reach}; "
        f"it does not hold beyond that. The largest residual is {100 * worst:.1f} %. "
        f"{'They bend: it is no power law, and the error of its power means little.' if bends(law) else ''}"
    )
    rows = [
        (tokens(x), rounded(y), rounded(law.at(x)), f"{100 * left:+.1f} %")
        for (x, y), (_, left) in zip(points, law.left, strict=True)
    ]
    table = Table(f"A power law: {name}", ("context", "decode, t/s", "the law, t/s", "residual"), tuple(rows))
    return Chart(f"A power law: {name}", caption, (_law_pane(points, law), _residual_pane(law)), table=table)


def _law_pane(points: Sequence[tuple[float, float]], law: PowerLaw) -> Pane:
    measured = tuple(Point(x, y, about=f"{tokens(x)}: {rounded(y)} t/s") for x, y in points)
    places = [law.least * (law.most / law.least) ** (at / _DRAWN) for at in range(_DRAWN + 1)]
    line = tuple(Point(x, law.at(x)) for x in places)
    about = f"t/s over tokens in the context, with a line of the power {law.power:.3f}"
    series = (Series("measured", measured, line=False), Series("the law", line, marks=False))
    return Pane("Decode and the law", about, CONTEXT, Axis("t/s", "log10"), series)


def _residual_pane(law: PowerLaw) -> Pane:
    points = tuple(Point(x, 100 * left, about=f"{tokens(x)}: {100 * left:+.1f} %") for x, left in law.left)
    about = f"percent above the law: {', '.join(point.about for point in points)}"
    zero = Level(0.0)
    return Pane("Residuals", about, CONTEXT, Axis("%"), (Series("residual", points, line=False),), (zero,))


def bends(law: PowerLaw) -> bool:
    """Return whether residuals have one sign at both ends and the other between: a curve instead of noise."""
    signs = [left > 0 for _, left in sorted(law.left)]
    turns = sum(a != b for a, b in pairwise(signs))
    return len(signs) >= 5 and turns == 2 and signs[0] == signs[-1]


SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
_FEWEST_RUNS, _MOST_CELLS = 5, 6
"""The most runs of a cell, and cells, that are drawn."""


def runs_charts(each: Measured, when: str) -> Iterator[Chart]:
    """Return a pane of speeds for each cell with enough runs and, if it drafts, one of step times."""
    cells = [cell for cell in each.cells if len(cell.runs) >= _FEWEST_RUNS and cell.condition.concurrency == 1]
    cells = cells[:_MOST_CELLS]
    if not cells:
        return
    panes = [pane for cell in cells for pane in _run_panes(cell)]
    rows = [row for cell in cells for row in _run_rows(cell)]
    table = Table("Run by run", ("condition", "run", "decode, t/s", "step, ms"), tuple(rows))
    caption = f"{when} The line is the mean of the runs, the band one standard deviation ({SIGMA}) to either side."
    yield Chart("Run by run", caption, tuple(panes), table=without_empty(table))


def _run_panes(cell: MeasuredCell) -> Iterator[Pane]:
    yield _run_pane(f"Decode: {cell.condition}", "t/s", [run.decode for run in cell.runs])
    steps = [run.step for run in cell.runs if run.step is not None]
    if len(steps) == len(cell.runs):
        yield _run_pane(f"Step: {cell.condition}", "ms", steps)


def _run_pane(title: str, unit: str, values: Sequence[float]) -> Pane:
    mean, spread = sum(values) / len(values), standard_deviation(values) or 0.0
    figures = f"mean {rounded(mean)} {unit}, {SIGMA} {short(spread)} ({spread / mean:.1%})"
    points = tuple(Point(at, value, about=f"run {at}: {rounded(value)}") for at, value in enumerate(values, start=1))
    level = Level(mean, mean - spread, mean + spread)
    about = f"{unit} of {len(values)} runs: {figures}, from {rounded(min(values))} to {rounded(max(values))}"
    return Pane(
        title, about, Axis(f"run; {figures}", whole=True), Axis(unit), (Series("runs", points, line=False),), (level,)
    )


def _run_rows(cell: MeasuredCell) -> Iterator[tuple[str, ...]]:
    for at, run in enumerate(cell.runs, start=1):
        yield str(cell.condition), str(at), rounded(run.decode), optional(run.step)


Along = Literal["filled", "allocated", "at once", "limit"]
_FEWEST_POINTS, _SPAN = 3, 3
"""The fewest points of a curve, and the smallest ratio of its longest to its shortest context."""


def result_charts(each: Measured) -> Iterator[Chart]:
    """Return all charts for which a result has enough points."""
    when = f"Measured {each.day}." if each.day else "The time of measurement is unknown."
    filled = _sweeps_along(each, "filled")
    yield from context_charts(filled, when)
    yield from law_charts(filled, when)
    yield from allocated_charts(_sweeps_along(each, "allocated"), when)
    yield from concurrency_charts(_sweeps_along(each, "at once"), when)
    yield from limit_charts(_sweeps_along(each, "limit"), when)
    yield from runs_charts(each, when)


def _sweeps_along(each: Measured, what: Along) -> tuple[Sweep, ...]:
    """Return the sweeps of a result along one condition: enough cells that are equal in all other conditions."""
    groups: dict[tuple[str, ...], dict[float, MeasuredCell]] = {}
    for cell in each.cells:
        if (place := _place_along(cell, what)) > 0:
            groups.setdefault(_rest_of_condition(cell, what), {})[place] = cell
    curves = {key: cells for key, cells in groups.items() if _has_enough_points(cells, what)}
    return tuple(
        Sweep(_sweep_name(key, curves), tuple((place, cells[place]) for place in sorted(cells)))
        for key, cells in curves.items()
    )


def _place_along(cell: MeasuredCell, what: Along) -> float:
    """Return the value of the condition. An allocated context was not filled."""
    condition = cell.condition
    places = {
        "filled": 0 if condition.context else cell.filled,
        "allocated": condition.context or 0,
        "at once": condition.concurrency,
        "limit": condition.power_limit_watts or 0,
    }
    return float(places[what])


def _rest_of_condition(cell: MeasuredCell, what: Along) -> tuple[str, ...]:
    """Return what the cells of a curve have in common. Prompt and depth together fill a context."""
    condition = cell.condition
    others = {"at once": condition.concurrency, "limit": condition.power_limit_watts}
    if what != "filled":
        others |= {"depth": condition.depth, "prompt": condition.prompt, "generated": condition.generated}
    others.pop(what, None)
    return (condition.kind, condition.cache, condition.sampling, str(cell.generates), *map(str, others.values()))


def _sweep_name(key: tuple[str, ...], keys: Iterable[tuple[str, ...]]) -> str:
    """Return the kind of text and, if it distinguishes two curves, whether it was cached."""
    twins = {other[1] for other in keys if other[0] == key[0] and other[3:] == key[3:]}
    return f"{key[0]}, {key[1]}" if len(twins) > 1 else key[0]


def _has_enough_points(places: Collection[float], what: Along) -> bool:
    if what in ("filled", "allocated"):
        return len(places) >= _FEWEST_POINTS and max(places) >= _SPAN * min(places)
    return len(places) >= 2
