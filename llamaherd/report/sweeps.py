"""Which cells of a result make a curve: those that differ in one thing alone. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Literal

from llamaherd.report.charts import Chart
from llamaherd.report.curves import Sweep, allocated_charts, concurrency_charts, context_charts, limit_charts
from llamaherd.report.measured import Measured, MeasuredCell
from llamaherd.report.one_by_one import runs_charts
from llamaherd.report.power_law import law_charts

Along = Literal["filled", "allocated", "at once", "limit"]
_FEWEST, _SPAN = 3, 3
"""Points that make a curve, and how many times as long the longest context is as the shortest."""


def charts_of(each: Measured) -> Iterator[Chart]:
    """All charts that a result has the points for."""
    when = f"Measured {each.day}." if each.day else "Nobody says when it was measured."
    filled = _over(each, "filled")
    yield from context_charts(filled, when)
    yield from law_charts(filled, when)
    yield from allocated_charts(_over(each, "allocated"), when)
    yield from concurrency_charts(_over(each, "at once"), when)
    yield from limit_charts(_over(each, "limit"), when)
    yield from runs_charts(each, when)


def _over(each: Measured, what: Along) -> tuple[Sweep, ...]:
    """The sweeps of a result along something: cells that are the same otherwise, and enough of them."""
    groups: dict[tuple[str, ...], dict[float, MeasuredCell]] = {}
    for cell in each.cells:
        if (place := _place(cell, what)) > 0:
            groups.setdefault(_otherwise(cell, what), {})[place] = cell
    curves = {key: cells for key, cells in groups.items() if _enough(cells, what)}
    return tuple(
        Sweep(_name(key, curves), tuple((place, cells[place]) for place in sorted(cells)))
        for key, cells in curves.items()
    )


def _place(cell: MeasuredCell, what: Along) -> float:
    """Where a cell lies along it. A context that was only allocated was not filled."""
    asked = cell.condition
    places = {
        "filled": 0 if asked.context else cell.filled,
        "allocated": asked.context or 0,
        "at once": asked.concurrency,
        "limit": asked.power_limit_watts or 0,
    }
    return float(places[what])


def _otherwise(cell: MeasuredCell, what: Along) -> tuple[str, ...]:
    """What must be the same of two cells of a curve. What fills a context is prompt and depth together."""
    asked = cell.condition
    others = {"at once": asked.concurrency, "limit": asked.power_limit_watts}
    if what != "filled":
        others |= {"depth": asked.depth, "prompt": asked.prompt, "generated": asked.generated}
    others.pop(what, None)
    return (asked.kind, asked.cache, asked.sampling, str(cell.answers), *map(str, others.values()))


def _name(key: tuple[str, ...], keys: Iterable[tuple[str, ...]]) -> str:
    """The kind of text, and whether it was cached where that tells two curves apart."""
    twins = {other[1] for other in keys if other[0] == key[0] and other[3:] == key[3:]}
    return f"{key[0]}, {key[1]}" if len(twins) > 1 else key[0]


def _enough(places: Collection[float], what: Along) -> bool:
    if what in ("filled", "allocated"):
        return len(places) >= _FEWEST and max(places) >= _SPAN * min(places)
    return len(places) >= 2
