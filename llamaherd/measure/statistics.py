"""Compute intervals, ratios and verdicts from 3 to 20 samples: pure functions of numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from math import exp, hypot, inf, lgamma, log, log1p, pi, sqrt
from typing import Literal

NORMAL = 1.959963984540054
"""The 95 % interval of the normal distribution, in standard deviations to each side."""

_SMALL, _PRECISE, _TERMS = 1e-300, 1e-15, 500


@lru_cache(maxsize=4096)
def student_quantile(probability: float, freedom: float) -> float:
    """Return the t that a share of `probability` lies below, for degrees of freedom that may be fractions.

    It is found from the distribution's own integral: exact at small numbers, unlike approximations. It uses Newton's
    method, and bisection for steps that leave the interval.
    """
    if not 0 < probability < 1 or freedom <= 0:
        raise ValueError(f"no quantile of t at {probability} with {freedom} degrees of freedom")
    if probability < 0.5:
        return -student_quantile(1 - probability, freedom)
    low, high = 0.0, 1.0
    while student_below(high, freedom) < probability and high < inf:
        low, high = high, high * 2
    t = (low + high) / 2
    for _ in range(200):
        off = student_below(t, freedom) - probability
        low, high = (t, high) if off < 0 else (low, t)
        better = t - off / student_density(t, freedom)
        t, before = better if low < better < high else (low + high) / 2, t
        if abs(t - before) <= 4 * _PRECISE * t:
            break
    return t


def student_density(t: float, freedom: float) -> float:
    """Return the density of Student's distribution at `t`."""
    front = lgamma((freedom + 1) / 2) - lgamma(freedom / 2) - log(freedom * pi) / 2
    return exp(front - (freedom + 1) / 2 * log1p(t * t / freedom))


def student_below(t: float, freedom: float) -> float:
    """Return the share of Student's distribution that lies below `t`."""
    beyond = _beta_share(freedom / (freedom + t * t), freedom / 2, 0.5) / 2
    return 1 - beyond if t >= 0 else beyond


def _beta_share(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function, I_x(a, b)."""
    if x in (0.0, 1.0):
        return x
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x))
    if x < (a + 1) / (a + b + 2):  # where the fraction converges quickly
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction of I_x(a, b) (Abramowitz and Stegun, 26.5.8), by Lentz's method."""
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < _PRECISE:
            break
    return value


def _away_from_zero(number: float) -> float:
    return number if abs(number) > _SMALL else _SMALL


def half_width(spread: float, n: float, freedom: float, level: float = 0.95) -> float:
    """Return half the width of the interval of a mean of `n` values with this standard deviation."""
    return student_quantile((1 + level) / 2, freedom) * spread / sqrt(n)


Unit = Literal["block", "start", "run"]

BETWEEN_STARTS = 0.01
"""How much starts of one configuration differ, as a share, if there is only one start each.

Measured: mostly 0.5 %, and 2 % with routed experts on an H100 (193, 186, 193 tokens/s).
"""


WIDEST = 4.0
"""The most that the upper end of an interval may be, in lower ends.

A wider interval only means that there are too few runs: it is not printed, and nothing is compared with its value.
"""


@dataclass(frozen=True)
class Sample:
    """An amount, and what it is divided by: mostly tokens and seconds, or 1 and the seconds that something took."""

    amount: float
    over: float

    @property
    def rate(self) -> float:
        """The amount for each unit of the other."""
        return self.amount / self.over


Starts = Sequence[Sequence[Sample]]
"""The samples of each start of a server."""


@dataclass(frozen=True)
class Estimate:
    """A rate: `value` with its 95 % interval, if there are enough units, and it is not wider than `WIDEST`.

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
        """Return True if there are too few units for an interval."""
        return self.low is None or self.high is None

    @property
    def counted(self) -> str:
        """Return how many units there are, and whether they are too few: `n = 1`, `n = 2, too few`, `n = 10`."""
        many = f"n = {self.n} starts" if self.unit == "start" else f"n = {self.n}"
        return f"{many}, too few" if self.too_few and self.n > 1 else many


@dataclass(frozen=True)
class Ratio:
    """The speed of B divided by that of A: above 1 is faster.

    As `Estimate`; `n` counts units of a variant, the fewer of both.
    """

    value: float
    low: float | None
    high: float | None
    spread: float | None
    n: int
    unit: Unit
    assumed: float = 0.0
    """The spread between starts that had to be assumed; 0 if it is measured, or if both are of one start."""

    @property
    def ends(self) -> tuple[float, float] | None:
        """Return the interval as it may be printed; None if there is none, or it is wider than `WIDEST`.

        Verdicts go by `low` and `high`: a server that is ten times slower, give or take, is slower.
        """
        if self.low is None or self.high is None or self.high > WIDEST * self.low:
            return None
        return self.low, self.high


def rate(samples: Iterable[Sample]) -> float:
    """Return the sum of amounts divided by the sum of what they took."""
    every = list(samples)
    return sum(each.amount for each in every) / sum(each.over for each in every)


def independent_rates(starts: Starts) -> tuple[Unit, list[float]]:
    """Return the rates that count as independent of each other: of starts, or of the runs of the only one."""
    filled = [each for each in starts if each]
    if len(filled) == 1:
        return "run", [sample.rate for sample in filled[0]]
    return "start", [rate(each) for each in filled]


def estimate(starts: Starts, level: float = 0.95) -> Estimate | None:
    """Return the rate of some starts; None without samples."""
    every = [sample for each in starts for sample in each]
    if not every:
        return None
    unit, rates = independent_rates(starts)
    value, n = rate(every), len(rates)
    spread = standard_deviation([log(each) for each in rates])
    low = high = None
    if spread is not None:
        half = half_width(spread, n, n - 1, level)
        if 2 * half <= log(WIDEST):
            low, high = value * exp(-half), value * exp(half)
    return Estimate(value, low, high, min(rates), max(rates), spread, n, len(every), unit)


def unpaired_ratio(a: Starts, b: Starts, *, assumed: float = BETWEEN_STARTS, level: float = 0.95) -> Ratio | None:
    """Return B's rate over A's, measured one after the other; None if one of them has no samples.

    If each has only one start, these are `assumed` to differ: by 0 if both are the same process.
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
    return [rate(each) for each in starts if each] if several else independent_rates(starts)[1]


def _unpaired_half(a: Sequence[float], b: Sequence[float], level: float) -> float | None:
    """Return half the width of the interval of a difference of means: Welch's, or by the only known spread."""
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
    """Return the standard deviation of a sample, by n - 1; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    return sqrt(sum((each - mean) ** 2 for each in values) / (len(values) - 1))


def pooled_deviation(*groups: Sequence[float]) -> float | None:
    """Return the spread within groups, without the differences between them; None if no group has two values."""
    freedom = sum(len(each) - 1 for each in groups)
    if freedom < 1:
        return None
    squares = sum((standard_deviation(each) or 0.0) ** 2 * (len(each) - 1) for each in groups)
    return sqrt(squares / freedom)


@dataclass(frozen=True)
class FittedLine:
    """A line through points by least squares. `half` is half of the 95 % interval of its slope.

    `left` are the residuals of the points.
    """

    slope: float
    start: float
    half: float
    left: tuple[float, ...]


def fit_line(points: Sequence[tuple[float, float]]) -> FittedLine | None:
    """Fit a line to three points or more; None if all x are equal."""
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    squares = sum((x - mean_x) ** 2 for x, _ in points)
    if not squares:
        return None
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / squares
    left = tuple(y - mean_y - slope * (x - mean_x) for x, y in points)
    half = student_quantile(0.975, n - 2) * sqrt(sum(each**2 for each in left) / (n - 2) / squares)
    return FittedLine(slope, mean_y - slope * mean_x, half, left)


FEWEST_BLOCKS = 3
"""Blocks that an interval needs."""

_FOUR_BLOCKS = tuple(sorted(set(permutations(("AB", "AB", "BA", "BA")))))
"""All orders in which each variant comes first twice in four blocks."""


@dataclass(frozen=True)
class Block:
    """The rates of A and of B in one block."""

    a: float
    b: float


def block_orders(seed: str, blocks: int) -> tuple[str, ...]:
    """Return the order of each block, `AB` or `BA`: random, and equal for equal seeds."""
    drawn: list[str] = []
    while len(drawn) < blocks:
        lot = hashlib.sha256(f"{seed}:{len(drawn)}".encode()).digest()
        drawn += _FOUR_BLOCKS[int.from_bytes(lot) % len(_FOUR_BLOCKS)]
    return tuple(drawn[:blocks])


def paired_ratio(blocks: Sequence[Block], level: float = 0.95) -> Ratio | None:
    """Return B's rate over A's, by the logarithms of the ratio in each block; None without a block."""
    if not blocks:
        return None
    logs = [log(each.b / each.a) for each in blocks]
    center, n = sum(logs) / len(logs), len(logs)
    spread = standard_deviation(logs)
    if spread is None or n < FEWEST_BLOCKS:
        return Ratio(exp(center), None, None, spread, n, "block")
    half = half_width(spread, n, n - 1, level)
    return Ratio(exp(center), exp(center - half), exp(center + half), spread, n, "block")


Verdict = Literal["slower", "same", "faster", "not known yet"]

MOST_MORE = 50
"""Units. If more are needed, the difference lies at the margin, and measuring for days does not help."""


@dataclass(frozen=True)
class Judgement:
    """A verdict. If it is inconclusive, `more` is about how many more units of each variant would decide.

    `more` is None if more than `MOST_MORE` would be needed.
    """

    verdict: Verdict
    more: int | None = 0
    unit: Unit = "run"

    def __str__(self) -> str:
        if self.verdict != "not known yet":
            return self.verdict
        many = f"about {self.more}" if self.more else f"over {MOST_MORE}"
        plural = "" if self.more == 1 else "s"
        return f"{self.verdict} ({many} more {self.unit}{plural})"


def judge_ratio(ratio: Ratio, margin: float) -> Judgement:
    """Judge a ratio: slower or faster if the whole interval lies beyond the margin, the same if it lies inside."""
    if ratio.low is not None and ratio.high is not None:
        if ratio.high < 1 - margin:
            return Judgement("slower")
        if ratio.low > 1 + margin:
            return Judgement("faster")
        if ratio.low >= 1 - margin and ratio.high <= 1 + margin:
            return Judgement("same")
    # If starts are assumed to differ, more runs do not decide: more starts do.
    unit: Unit = "start" if ratio.assumed else ratio.unit
    have = 1 if ratio.assumed else ratio.n
    return Judgement("not known yet", _more(ratio, margin, have), unit)


def _more(ratio: Ratio, margin: float, have: int) -> int | None:
    """Return how many more of each variant would decide, if ratio and spread stay as they are."""
    if ratio.spread is None:
        return max(1, FEWEST_BLOCKS - have)
    gap = min(abs(log(ratio.value) - log(1 - margin)), abs(log(ratio.value) - log(1 + margin)))
    spread = hypot(ratio.spread / sqrt(ratio.n), ratio.assumed) if ratio.assumed else ratio.spread
    paired = ratio.unit == "block"
    for n in range(max(FEWEST_BLOCKS, have + 1), have + MOST_MORE + 1):
        half = half_width(spread, n, n - 1) if paired else half_width(spread * sqrt(2), n, 2 * n - 2)
        if half < gap:
            return n - have
    return None
