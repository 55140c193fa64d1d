"""Several results by their representative cells: the leaderboard, and an instance over time. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from llamaherd.measure.report.charts import Axis, Bar, Bars, Chart, Pane, Point, Series, fewest
from llamaherd.measure.report.geometry import days
from llamaherd.measure.report.results import Figure, Measured, MeasuredCell
from llamaherd.measure.report.tables import NONE, Table, figure, plus_minus, rounded, share, tokens, without_empty
from llamaherd.measure.results.metrics import DECODE, FIRST_TOKEN, PREFILL, STEP, Metric
from llamaherd.measure.results.result import Condition, Kind

KINDS: tuple[str, ...] = get_args(Kind)
"""The kinds of text in the order of the suite; those of other programs come last."""


_CACHES = ("cold", "unknown", "warm")
_OVERHEAD = 1000
"""The tokens of a prompt below which overhead dominates its prefill time."""


def representative(cells: Sequence[MeasuredCell], metric: Metric, kind: str | None = None) -> MeasuredCell | None:
    """Return the cell that measured a metric with the fewest parallel requests and the fewest cached tokens.

    For prefill, it is the shortest cold prompt of at least a thousand tokens with an empty context: shorter prompts
    measure mostly overhead.
    """
    found = [each for each in cells if each.figure(metric) and kind in (None, each.condition.kind)]
    if metric is not DECODE:
        return min(found, key=_prefill_order, default=None)
    return min(found, key=_decode_order, default=None)


def _decode_order(cell: MeasuredCell) -> tuple[float, ...]:
    asked = cell.condition
    limit = asked.power_limit_watts or 0
    return asked.concurrency, cell.filled, asked.context or 0, limit, -asked.generated


def _prefill_order(cell: MeasuredCell) -> tuple[float, ...]:
    asked = cell.condition
    short = (asked.prompt or 0) < _OVERHEAD
    return (
        asked.concurrency,
        _CACHES.index(asked.cache),
        asked.depth,
        short,
        asked.prompt or 0,
        asked.power_limit_watts or 0,
    )


def figure_of(cells: Sequence[MeasuredCell], metric: Metric, kind: str | None = None) -> Figure | None:
    """Return the representative value of a metric."""
    cell = representative(cells, metric, kind)
    return cell.figure(metric) if cell else None


def kinds_of(results: Iterable[Measured]) -> tuple[str, ...]:
    """Return the kinds of text for which any result measured decode."""
    found = {cell.condition.kind for each in results for cell in each.cells if cell.figure(DECODE)}
    return tuple(kind for kind in KINDS if kind in found)


_MOST_BARS = 12
"""The most rows of the chart; the table contains all."""


@dataclass(frozen=True)
class LeaderboardRow:
    """The newest result of a stack. `stale`: its instance has a newer result of another stack."""

    result: Measured
    stale: bool


def leaderboard(results: Sequence[Measured]) -> tuple[LeaderboardRow, ...]:
    """Return the rows, fastest first by the first kind of text that each has, stale rows included."""
    newest: dict[tuple[str, str, str], Measured] = {}
    last: dict[tuple[str, str], Measured] = {}
    for each in sorted(results, key=lambda each: each.order):
        # The instance of other programs' results is unknown: each is a row.
        newest[each.rig, each.instance, each.id if each.less else each.stack] = each
        last[each.rig, each.instance] = each
    rows = [
        LeaderboardRow(each, not each.less and each is not last[each.rig, each.instance]) for each in newest.values()
    ]
    return tuple(sorted(rows, key=_row_order))


def _row_order(row: LeaderboardRow) -> tuple[float, str, str]:
    each = row.result
    speeds = [found.value for kind in kinds_of([each]) if (found := figure_of(each.cells, DECODE, kind))]
    return -(speeds[0] if speeds else 0.0), each.label, each.began


def leaderboard_table(rows: Sequence[LeaderboardRow], *, short: bool = True) -> Table:
    """Return the rows as a table; `short` shows half of an interval instead of its ends."""
    kinds = kinds_of([row.result for row in rows])
    show = plus_minus if short else figure
    headings = ("what", *(f"{kind}, t/s" for kind in kinds), "prefill, t/s", "first token, ms")
    headings += ("accepted", "J/token", "context", "measured", "GPUs")
    made = []
    for row in rows:
        each = row.result
        speeds = [_figure_text(representative(each.cells, DECODE, kind), DECODE, show) for kind in kinds]
        rest = [_figure_text(representative(each.cells, metric), metric, show) for metric in (PREFILL, FIRST_TOKEN)]
        made.append((row_name(row), *speeds, *rest, *_last_columns(each)))
    grey = frozenset(at for at, row in enumerate(rows) if row.stale)
    return without_empty(Table("Every stack by its newest result", headings, tuple(made), grey))


def _figure_text(cell: MeasuredCell | None, metric: Metric, show: Callable[[Figure | None], str]) -> str:
    """Return a value, with the tokens in the context if the condition sets them."""
    if cell is None:
        return NONE
    return f"{show(cell.figure(metric))} at {tokens(cell.filled)}" if cell.filled else show(cell.figure(metric))


def row_name(row: LeaderboardRow) -> str:
    """Return the name of a row: the instance, with its stack, if both are known."""
    each = row.result
    known = each.stack.startswith(each.label)
    named = each.stack if known else f"{each.label}: {each.stack}" if each.stack else each.label
    return f"{named} (stale)" if row.stale else f"{named} (imported)" if each.less else named


def _last_columns(each: Measured) -> tuple[str, ...]:
    cell = representative(each.cells, DECODE)
    context = each.context or max((one.condition.context or one.filled for one in each.cells), default=0)
    return (
        share(cell.acceptance if cell else None),
        NONE if cell is None or cell.joules is None else rounded(cell.joules),
        f"{context:,}" if context else NONE,
        each.day or NONE,
        each.machine[0] if each.machine else NONE,
    )


def bars_by_kind(rows: Sequence[LeaderboardRow]) -> Iterator[Chart]:
    """Return the fastest row for each kind of text that several stacks have."""
    panes = []
    for kind in kinds_of([row.result for row in rows]):
        bars = [_bar(row, found) for row in rows if (found := figure_of(row.result.cells, DECODE, kind))]
        if len(bars) > 1:
            now = sorted(bars, key=lambda each: (each.grey, -each.value))[:_MOST_BARS]
            most = sorted(now, key=lambda each: -each.value)
            about = f"{len(most)} stacks, the fastest is {most[0].name} with {rounded(most[0].value)} t/s"
            panes.append(Bars(f"Decode: {kind}", about, "tokens a second", tuple(most)))
    if panes:
        left = "" if all(len(each.bars) < _MOST_BARS for each in panes) else f" No more than {_MOST_BARS} are drawn."
        caption = "Lines are 95 % intervals, where there are several runs. Speeds of different kinds do not compare."
        yield Chart("The fastest by kind of text", caption + left, bars=tuple(panes))


def _bar(row: LeaderboardRow, found: Figure) -> Bar:
    low, high = found.ends or (None, None)
    return Bar(row_name(row), found.value, low, high, plus_minus(found), row.stale)


MOST_LISTED = 30
"""The most results in the table: the newest ones."""


@dataclass(frozen=True)
class TrackedCondition:
    """A condition that is shown over time, and its name."""

    name: str
    condition: Condition


def history_charts(results: Sequence[Measured]) -> Iterator[Chart]:
    """Return speed by kind of text, step time, prefill, time to first token and energy over time."""
    in_order = sorted(results, key=lambda each: (each.began, each.id))
    kinds = [one for kind in kinds_of(in_order) if (one := _tracked(in_order, kind, DECODE, kind))]
    prefill = [one] if (one := _tracked(in_order, "prefill", PREFILL)) else []
    first = [one] if (one := _tracked(in_order, "first token", FIRST_TOKEN)) else []
    panes = [
        _history_pane("Decode", "t/s", [_metric_series(in_order, one, DECODE) for one in kinds]),
        _history_pane("Time of a step", "ms", [_metric_series(in_order, one, STEP) for one in kinds]),
        _history_pane("Prefill", "t/s", [_metric_series(in_order, one, PREFILL) for one in prefill]),
        _history_pane("Time to the first token", "ms", [_metric_series(in_order, one, FIRST_TOKEN) for one in first]),
        _history_pane("Energy", "J/token", [_energy_series(in_order, one) for one in kinds]),
    ]
    found = tuple(pane for pane in panes if pane)
    if found:
        caption = f"{len(in_order)} results, {in_order[0].day} to {in_order[-1].day}. Lines are 95 % intervals."
        suites = {each.suite for each in in_order if each.suite}
        more = " Their prompts are not the same: compare those of one suite alone." if len(suites) > 1 else ""
        columns = [*((one, DECODE) for one in kinds), *((one, PREFILL) for one in prefill)]
        table = _history_table(in_order[: -MOST_LISTED - 1 : -1], columns)
        yield Chart("Over time", caption + more, found, table=table)


def _tracked(
    results: Sequence[Measured], name: str, metric: Metric, kind: str | None = None
) -> TrackedCondition | None:
    """Return the condition that most results share: only equal conditions are comparable."""
    found = [cell.condition for each in results if (cell := representative(each.cells, metric, kind))]
    if not found:
        return None
    ((condition, _),) = Counter(reversed(found)).most_common(1)
    return TrackedCondition(name, condition)


def _cell_of(each: Measured, followed: TrackedCondition) -> MeasuredCell | None:
    return next((cell for cell in each.cells if cell.condition == followed.condition), None)


def _history_table(results: Sequence[Measured], columns: Sequence[tuple[TrackedCondition, Metric]]) -> Table:
    """Return a table with a row for each result."""
    rows = []
    for each in results:
        cells = [(_cell_of(each, followed), metric) for followed, metric in columns]
        figures = [figure(cell.figure(metric) if cell else None) for cell, metric in cells]
        doubts = str(len(each.doubts)) if each.doubts else NONE
        rows.append((each.began.replace("T", " ").rstrip("Z"), *figures, each.stack or NONE, doubts))
    named = (f"{followed.condition}: {metric.name}, {metric.unit}" for followed, metric in columns)
    return without_empty(Table("Over time", ("measured, UTC", *named, "stack", "doubts"), tuple(rows)))


def _history_pane(title: str, unit: str, every: Sequence[Series]) -> Pane | None:
    kept = fewest(each for each in every if len(each.points) > 1)
    if not kept:
        return None
    about = "; ".join(f"{each.name}: from {each.points[0].about} to {each.points[-1].about}" for each in kept)
    return Pane(title, f"{unit} by date. {about}", Axis("", "date"), Axis(unit, zero=True), kept)


def _metric_series(results: Sequence[Measured], followed: TrackedCondition, metric: Metric) -> Series:
    points = []
    for each in results:
        cell = _cell_of(each, followed)
        if cell and (found := cell.figure(metric)):
            low, high = found.ends or (None, None)
            about = f"{each.day}: {figure(found)} {metric.unit}"
            points.append(Point(days(each.began), found.value, low, high, about))
    return Series(followed.name, tuple(points))


def _energy_series(results: Sequence[Measured], followed: TrackedCondition) -> Series:
    found = [(each, cell.joules) for each in results if (cell := _cell_of(each, followed)) and cell.joules]
    points = [Point(days(each.began), joules, about=f"{each.day}: {rounded(joules)} J/token") for each, joules in found]
    return Series(followed.name, tuple(points))
