"""Rates with their intervals, and the ratio of two.

A rate is what was counted over the time that it took, both summed: a long run weighs more than a short one. Logarithms
carry the arithmetic, as errors of speeds are shares of them. The unit is the start of a server wherever there are
several: requests to one process agree with each other better than the next process agrees with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, hypot, log, sqrt
from typing import Literal

from llamaherd.bench.statistics.student import NORMAL, half_width, student_quantile

Unit = Literal["block", "start", "run"]

BETWEEN_STARTS = 0.01
"""How much starts of one configuration differ, as a share, where one start each is all there is. Seen: 0.5 % mostly,
2 % with routed experts on an H100 (193, 186, 193 tokens/s)."""


WIDEST = 4.0
"""How many times its lower end the upper end of an interval may be. A wider one only means that there are too few runs:
it is not printed, and nothing is compared with its value."""


@dataclass(frozen=True)
class Sample:
    """What was counted, and over what: tokens over seconds mostly, or 1 over the seconds that it took."""

    amount: float
    over: float

    @property
    def rate(self) -> float:
        """How many of the one for each of the other."""
        return self.amount / self.over


Starts = Sequence[Sequence[Sample]]
"""The samples of each start of a server."""


@dataclass(frozen=True)
class Estimate:
    """A rate: `value` with its 95 % interval, where there are enough units for one that is not wider than `WIDEST`.

    `least` and `most` are the slowest and the fastest unit, `spread` the standard deviation of units as a share.
    """

    value: float
    low: float | None
    high: float | None
    least: float
    most: float
    spread: float | None
    n: int
    runs: int
    unit: Unit

    @property
    def too_few(self) -> bool:
        """Whether there are too few units for an interval."""
        return self.low is None or self.high is None

    @property
    def counted(self) -> str:
        """Return how many units there are, and whether they are too few: `n = 1`, `n = 2, too few`, `n = 10`."""
        many = f"n = {self.n} starts" if self.unit == "start" else f"n = {self.n}"
        return f"{many}, too few" if self.too_few and self.n > 1 else many


@dataclass(frozen=True)
class Ratio:
    """How fast B is beside A: above 1 is faster. As `Estimate`; `n` counts units of an arm, the fewer of both."""

    value: float
    low: float | None
    high: float | None
    spread: float | None
    n: int
    unit: Unit
    assumed: float = 0.0
    """The spread between starts that had to be assumed; 0 where it is measured, or where both are of one start."""

    @property
    def ends(self) -> tuple[float, float] | None:
        """Return the interval as it may be printed; None where there is none, or it is wider than `WIDEST`.

        Verdicts go by `low` and `high`: a server that is ten times slower, give or take, is slower.
        """
        if self.low is None or self.high is None or self.high > WIDEST * self.low:
            return None
        return self.low, self.high


def rate(samples: Iterable[Sample]) -> float:
    """All that was counted over all the time that it took."""
    every = list(samples)
    return sum(each.amount for each in every) / sum(each.over for each in every)


def units(starts: Starts) -> tuple[Unit, list[float]]:
    """The rates that count as independent of each other: of starts, or of the runs of the only one."""
    filled = [each for each in starts if each]
    if len(filled) == 1:
        return "run", [sample.rate for sample in filled[0]]
    return "start", [rate(each) for each in filled]


def estimate(starts: Starts, level: float = 0.95) -> Estimate | None:
    """The rate of some starts; None where nothing was measured."""
    every = [sample for each in starts for sample in each]
    if not every:
        return None
    unit, rates = units(starts)
    value, n = rate(every), len(rates)
    spread = standard_deviation([log(each) for each in rates])
    low = high = None
    if spread is not None:
        half = half_width(spread, n, n - 1, level)
        if 2 * half <= log(WIDEST):
            low, high = value * exp(-half), value * exp(half)
    return Estimate(value, low, high, min(rates), max(rates), spread, n, len(every), unit)


def unpaired_ratio(a: Starts, b: Starts, *, assumed: float = BETWEEN_STARTS, level: float = 0.95) -> Ratio | None:
    """B's rate over A's, measured one after the other; None where one of them was not measured.

    Where each has one start alone, these are `assumed` to differ: by nothing where both are the same process.
    """
    if not any(a) or not any(b):
        return None
    several = max(sum(map(bool, a)), sum(map(bool, b))) > 1
    logs = [[log(each) for each in _unit_rates(starts, several)] for starts in (a, b)]
    value = rate(sample for each in b for sample in each) / rate(sample for each in a for sample in each)
    unit: Unit = "start" if several else "run"
    assumed = 0.0 if several else assumed
    half = _unpaired_half(logs[0], logs[1], level)
    n, spread = min(map(len, logs)), pooled_deviation(*logs)
    if half is None:
        return Ratio(value, None, None, spread, n, unit, assumed)
    half = hypot(half, NORMAL * assumed * sqrt(2))
    return Ratio(value, value * exp(-half), value * exp(half), spread, n, unit, assumed)


def _unit_rates(starts: Starts, several: bool) -> list[float]:
    return [rate(each) for each in starts if each] if several else units(starts)[1]


def _unpaired_half(a: Sequence[float], b: Sequence[float], level: float) -> float | None:
    """Half the width of the interval of a difference of means: Welch's, or by the one spread that is known."""
    spreads = [standard_deviation(each) for each in (a, b)]
    if spreads[0] is None or spreads[1] is None:
        pooled, freedom = pooled_deviation(a, b), float(len(a) + len(b) - 2)
        if pooled is None:
            return None
        return student_quantile((1 + level) / 2, freedom) * pooled * sqrt(1 / len(a) + 1 / len(b))
    parts = [spread**2 / len(each) for spread, each in zip(spreads, (a, b), strict=True) if spread is not None]
    if not sum(parts):
        return 0.0
    freedom = sum(parts) ** 2 / sum(part**2 / (len(each) - 1) for part, each in zip(parts, (a, b), strict=True))
    return student_quantile((1 + level) / 2, freedom) * sqrt(sum(parts))


def standard_deviation(values: Sequence[float]) -> float | None:
    """Of a sample, by n - 1; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    return sqrt(sum((each - mean) ** 2 for each in values) / (len(values) - 1))


def pooled_deviation(*groups: Sequence[float]) -> float | None:
    """The spread within groups, whatever lies between them; None where no group has two values."""
    freedom = sum(len(each) - 1 for each in groups)
    if freedom < 1:
        return None
    squares = sum((standard_deviation(each) or 0.0) ** 2 * (len(each) - 1) for each in groups)
    return sqrt(squares / freedom)
