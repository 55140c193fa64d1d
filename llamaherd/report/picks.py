"""Which cell of a result stands for it where there is room for one figure. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import get_args

from llamaherd.bench.results.metrics import DECODE, Metric
from llamaherd.bench.results.result import Kind
from llamaherd.report.measured import Figure, Measured, MeasuredCell

KINDS: tuple[str, ...] = get_args(Kind)
"""In the order in which a suite has them; what others have measured comes last."""


_CACHES = ("cold", "unknown", "warm")
_OVERHEAD = 1000
"""Tokens of a prompt, below which most of the time is not that of reading it."""


def picked(cells: Sequence[MeasuredCell], metric: Metric, kind: str | None = None) -> MeasuredCell | None:
    """The cell in which a metric was measured with the fewest requests at once and the least in the cache.

    Of prefill, the shortest cold prompt of at least a thousand tokens with nothing before it: what is shorter is
    mostly overhead.
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
    """The figure that stands for a metric."""
    cell = picked(cells, metric, kind)
    return cell.figure(metric) if cell else None


def kinds_of(results: Iterable[Measured]) -> tuple[str, ...]:
    """The kinds of text of which decode was measured in any of these."""
    found = {cell.condition.kind for each in results for cell in each.cells if cell.figure(DECODE)}
    return tuple(kind for kind in KINDS if kind in found)
