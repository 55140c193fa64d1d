"""Where an axis begins, ends and has its marks: numbers that people would have chosen. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, floor, log2, log10

from llamaherd.report.charts import Axis
from llamaherd.report.values import tokens

_ABOUT = 5
"""Marks that an axis should have."""
_MILLIONS, _MONTHS = 5e5, 300
"""Steps from which on values are told in millions, and days from which on dates have years."""
_DAYS = (*(each / 1440 for each in (1, 5, 15, 60, 180, 360, 720)), 1, 2, 7, 14, 28, 91, 182, 365, 730, 3650)
_DAY = 86_400.0


@dataclass(frozen=True)
class Scaled:
    """An axis with its ends, and its marks with what they say."""

    axis: Axis
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def share(self, value: float) -> float:
        """Where a value lies: 0 at the low end, 1 at the high one, and nowhere beyond."""
        low, high, at = (_along(self.axis, each) for each in (self.low, self.high, value))
        return min(max((at - low) / (high - low), 0.0), 1.0) if high > low else 0.5


def _along(axis: Axis, value: float) -> float:
    if axis.scale in ("log2", "log10"):
        return log2(value) if value > 0 else -1e3
    return value


def scaled(axis: Axis, values: Sequence[float]) -> Scaled:
    """The axis on which all values can be seen."""
    if axis.scale in ("log2", "log10"):
        positive = [each for each in values if each > 0] or [1.0]
        return (_by_two if axis.scale == "log2" else _by_ten)(axis, min(positive), max(positive))
    low, high = min(values, default=0.0), max(values, default=1.0)
    if axis.scale == "date":
        return _by_day(axis, low, high)
    return _linear(axis, min(low, 0.0) if axis.zero else low, high)


def _linear(axis: Axis, low: float, high: float) -> Scaled:
    if high <= low:
        # A single value: something to either side, that it can be seen to be alone.
        low, high = (0.0 if axis.zero else low - abs(low) * 0.1 - 1e-9), high + abs(high) * 0.1 + 1e-9
    step = nice_step((high - low) / _ABOUT)
    if axis.whole:
        step = max(1.0, float(ceil(step)))
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    marks = [at * step for at in range(first, last + 1)]
    return Scaled(axis, marks[0], marks[-1], tuple((each, _said(axis, each, step)) for each in marks))


def nice_step(rough: float) -> float:
    """The next larger one of 1, 2, 2.5 and 5 times a power of ten."""
    power: float = 10.0 ** floor(log10(rough))
    return next((each * power for each in (1.0, 2.0, 2.5, 5.0) if each * power >= rough * (1 - 1e-9)), 10 * power)


def _said(axis: Axis, value: float, step: float) -> str:
    if axis.tokens:
        return tokens(value)
    digits = next((each for each in range(12) if abs(step * 10**each - round(step * 10**each)) < 1e-6), 12)
    return f"{value / 1e6:,g}M" if step >= _MILLIONS else f"{value + 0.0:,.{digits}f}"


def _by_two(axis: Axis, low: float, high: float) -> Scaled:
    """Powers of two; the ends are those of the values, or of the one mark that there would be."""
    first, last = ceil(log2(low) - 1e-9), floor(log2(high) + 1e-9)
    if last <= first:
        first, last = floor(log2(low) + 1e-9), max(ceil(log2(high) - 1e-9), floor(log2(low) + 1e-9) + 1)
        low, high = min(low, 2.0**first), max(high, 2.0**last)
    every = max(1, ceil((last - first) / 6))
    marks = [2.0**at for at in range(first, last + 1, every)]
    said = tuple((each, tokens(each) if axis.tokens else f"{each:g}") for each in marks)
    return Scaled(axis, low, high, said)


def _by_ten(axis: Axis, low: float, high: float) -> Scaled:
    first, last = floor(log10(low) + 1e-9), ceil(log10(high) - 1e-9)
    last = max(last, first + 1)
    parts = tuple(range(1, 10)) if high < 5 * low else (1, 2, 5) if last - first <= 3 else (1,)
    marks = [part * 10.0**at for at in range(first, last + 1) for part in parts]
    inside = [each for each in marks if _below(marks, low) <= each <= _above(marks, high)]
    return Scaled(axis, inside[0], inside[-1], tuple((each, f"{each:,.10g}") for each in inside))


def _below(marks: Sequence[float], low: float) -> float:
    return max((each for each in marks if each <= low * (1 + 1e-9)), default=marks[0])


def _above(marks: Sequence[float], high: float) -> float:
    return min((each for each in marks if each >= high * (1 - 1e-9)), default=marks[-1])


def _by_day(axis: Axis, low: float, high: float) -> Scaled:
    """Days since 1970, with marks at midnight, or at hours where all is within few days."""
    if high <= low:
        low, high = low - 0.5, high + 0.5
    every = next((each for each in _DAYS if (high - low) / each <= _ABOUT), _DAYS[-1])
    marks = [at * every for at in range(ceil(low / every), floor(high / every) + 1)] or [low]
    return Scaled(axis, low, high, tuple((each, _moment(each, every, high - low)) for each in marks))


def _moment(day: float, every: float, span: float) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)
    if every < 1 and (moment.hour or moment.minute):
        return f"{moment:%H:%M}"
    return f"{moment:%d %b}" if span < _MONTHS else f"{moment:%b %Y}"


def days(moment: str) -> float:
    """A time as days since 1970."""
    return datetime.fromisoformat(moment).timestamp() / _DAY
