"""The leaderboard: a row for each stack of each instance, by its newest result. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from llamaherd.bench.results.metrics import DECODE, FIRST_TOKEN, PREFILL, Metric
from llamaherd.report.charts import Bar, Bars, Chart
from llamaherd.report.measured import Figure, Measured, MeasuredCell
from llamaherd.report.picks import figure_of, kinds_of, picked
from llamaherd.report.tables import Table, without_empty
from llamaherd.report.values import NONE, figure, number, plus_minus, share, tokens

_MOST_BARS = 12
"""In one chart; the table has all."""


@dataclass(frozen=True)
class Row:
    """A stack's newest result. `stale`: its instance has a newer one, of another stack."""

    result: Measured
    stale: bool


def leaderboard(results: Sequence[Measured]) -> tuple[Row, ...]:
    """The rows, fastest first by the first kind of text that each has; stale ones stay in their place."""
    newest: dict[tuple[str, str, str], Measured] = {}
    last: dict[tuple[str, str], Measured] = {}
    for each in sorted(results, key=lambda each: each.order):
        # Of what others have measured nobody knows which instance it is of: each is a row.
        newest[each.rig, each.instance, each.id if each.less else each.stack] = each
        last[each.rig, each.instance] = each
    rows = [Row(each, not each.less and each is not last[each.rig, each.instance]) for each in newest.values()]
    return tuple(sorted(rows, key=_order))


def _order(row: Row) -> tuple[float, str, str]:
    each = row.result
    speeds = [found.value for kind in kinds_of([each]) if (found := figure_of(each.cells, DECODE, kind))]
    return -(speeds[0] if speeds else 0.0), each.label, each.began


def leaderboard_table(rows: Sequence[Row], *, short: bool = True) -> Table:
    """The rows as a table; `short` has half of an interval instead of its ends."""
    kinds = kinds_of([row.result for row in rows])
    show = plus_minus if short else figure
    headings = ("what", *(f"{kind}, t/s" for kind in kinds), "prefill, t/s", "first token, ms")
    headings += ("accepted", "J/token", "context", "measured", "GPUs")
    made = []
    for row in rows:
        each = row.result
        speeds = [_told(picked(each.cells, DECODE, kind), DECODE, show) for kind in kinds]
        rest = [_told(picked(each.cells, metric), metric, show) for metric in (PREFILL, FIRST_TOKEN)]
        made.append((name(row), *speeds, *rest, *_others(each)))
    grey = frozenset(at for at, row in enumerate(rows) if row.stale)
    return without_empty(Table("Every stack by its newest result", headings, tuple(made), grey))


def _told(cell: MeasuredCell | None, metric: Metric, show: Callable[[Figure | None], str]) -> str:
    """A figure with the tokens that were in the context, where these are part of the condition."""
    if cell is None:
        return NONE
    return f"{show(cell.figure(metric))} at {tokens(cell.filled)}" if cell.filled else show(cell.figure(metric))


def name(row: Row) -> str:
    """What a row is called: the instance, with what serves it, where both are known."""
    each = row.result
    known = each.stack.startswith(each.label)
    named = each.stack if known else f"{each.label}: {each.stack}" if each.stack else each.label
    return f"{named} (stale)" if row.stale else f"{named} (imported)" if each.less else named


def _others(each: Measured) -> tuple[str, ...]:
    cell = picked(each.cells, DECODE)
    context = each.context or max((one.condition.context or one.filled for one in each.cells), default=0)
    return (
        share(cell.acceptance if cell else None),
        NONE if cell is None or cell.joules is None else number(cell.joules),
        f"{context:,}" if context else NONE,
        each.day or NONE,
        each.machine[0] if each.machine else NONE,
    )


def bars_by_kind(rows: Sequence[Row]) -> Iterator[Chart]:
    """The fastest of each kind of text that several stacks have."""
    panes = []
    for kind in kinds_of([row.result for row in rows]):
        bars = [_bar(row, found) for row in rows if (found := figure_of(row.result.cells, DECODE, kind))]
        if len(bars) > 1:
            now = sorted(bars, key=lambda each: (each.grey, -each.value))[:_MOST_BARS]
            most = sorted(now, key=lambda each: -each.value)
            about = f"{len(most)} stacks, the fastest is {most[0].name} with {number(most[0].value)} t/s"
            panes.append(Bars(f"Decode: {kind}", about, "tokens a second", tuple(most)))
    if panes:
        left = "" if all(len(each.bars) < _MOST_BARS for each in panes) else f" No more than {_MOST_BARS} are drawn."
        caption = "Lines are 95 % intervals, where there are several runs. Speeds of different kinds do not compare."
        yield Chart("The fastest by kind of text", caption + left, bars=tuple(panes))


def _bar(row: Row, found: Figure) -> Bar:
    low, high = found.ends or (None, None)
    return Bar(name(row), found.value, low, high, plus_minus(found), row.stale)
