"""A forest chart in letters: each ratio with its interval on one axis, over the margin that is the same. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from math import log

from llamaherd.bench.statistics.intervals import Ratio

_SPANS = (0.05, 0.1, 0.2, 0.3, 0.5)
"""How far an axis goes to the slow side, as shares; the fast side is its mirror."""

_DRAWN, _PLAIN = tuple("░│├─┤●◀▶"), tuple(":|[-]o<>")


def span_of(ratios: Iterable[Ratio]) -> float:
    """The axis on which all intervals can be seen, up to the widest one."""
    ends = [abs(log(end)) for each in ratios for end in (each.low or each.value, each.high or each.value)]
    return next((span for span in _SPANS if -log(1 - span) >= max(ends, default=0.0)), _SPANS[-1])


def forest(ratio: Ratio, margin: float | None, span: float, width: int, *, plain: bool = False) -> str:
    """One line of the chart: slower on the left, faster on the right, equal in the middle."""
    band, middle, left, line, right, point, beyond_left, beyond_right = _PLAIN if plain else _DRAWN
    letters = [" "] * width
    if margin:
        for at in range(_at(1 - margin, span, width), _at(1 + margin, span, width) + 1):
            letters[at] = band
    letters[width // 2] = middle
    low, high = ratio.low or ratio.value, ratio.high or ratio.value
    first, last = _at(low, span, width), _at(high, span, width)
    for at in range(first, last + 1):
        letters[at] = line
    if last > first:
        letters[first], letters[last] = left, right
    letters[_at(ratio.value, span, width)] = point
    if _beyond(low, span) < 0:
        letters[0] = beyond_left
    if _beyond(high, span) > 0:
        letters[-1] = beyond_right
    return "".join(letters)


def scale(span: float, width: int) -> str:
    """What the axis says at its ends and in its middle."""
    ends = f"{1 - span:.2f}", f"{1 / (1 - span):.2f}"
    middle = "1.00".center(width - len(ends[0]) - len(ends[1]))
    return f"{ends[0]}{middle}{ends[1]}"


def _at(ratio: float, span: float, width: int) -> int:
    """The column of a ratio; the nearest one there is for what lies beyond."""
    half = width // 2
    column = half + round(log(ratio) / -log(1 - span) * half)
    return min(max(column, 0), width - 1)


def _beyond(ratio: float, span: float) -> int:
    edge = -log(1 - span) * (1 + 1e-9)
    return (log(ratio) > edge) - (log(ratio) < -edge)
