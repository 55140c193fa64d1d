"""Student's t: how wide an interval must be where the spread itself is known from a few samples only."""

from __future__ import annotations

from functools import lru_cache
from math import exp, inf, lgamma, log, log1p, pi, sqrt

NORMAL = 1.959963984540054
"""Of the normal distribution: 95 % lie within so many standard deviations."""

_SMALL, _PRECISE, _TERMS = 1e-300, 1e-15, 500


@lru_cache(maxsize=4096)
def student_quantile(probability: float, freedom: float) -> float:
    """The t that a share of `probability` lies below, for degrees of freedom that may be broken.

    It is found from the distribution's own integral: no table, and exact at small numbers, where approximations are
    not. Steps go along the density, and halve what is left where they would leave it.
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
    """How densely Student's distribution lies at `t`."""
    front = lgamma((freedom + 1) / 2) - lgamma(freedom / 2) - log(freedom * pi) / 2
    return exp(front - (freedom + 1) / 2 * log1p(t * t / freedom))


def student_below(t: float, freedom: float) -> float:
    """The share of Student's distribution that lies below `t`."""
    beyond = _beta_share(freedom / (freedom + t * t), freedom / 2, 0.5) / 2
    return 1 - beyond if t >= 0 else beyond


def _beta_share(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function, I_x(a, b)."""
    if x in (0.0, 1.0):
        return x
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x))
    if x < (a + 1) / (a + b + 2):  # where the fraction converges quickly
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of I_x(a, b) (Abramowitz and Stegun, 26.5.8), by Lentz's method."""
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
    """How far an interval goes to each side of a mean of `n` values with this standard deviation."""
    return student_quantile((1 + level) / 2, freedom) * spread / sqrt(n)
