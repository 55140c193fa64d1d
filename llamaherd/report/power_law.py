"""A power law of speed over what is in the context, with what it leaves unexplained, and where it holds. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log, sqrt

from llamaherd.bench.results.metrics import DECODE
from llamaherd.bench.statistics.student import student_quantile
from llamaherd.report.charts import Axis, Chart, Level, Pane, Point, Series
from llamaherd.report.curves import CONTEXT, Sweep
from llamaherd.report.tables import Table
from llamaherd.report.values import number, tokens

_FEWEST = 4
"""Points: two of them make any law."""
_DRAWN = 24


@dataclass(frozen=True)
class Law:
    """y = factor · x ** power, from the least x to the most of what it was fitted to; `error` is that of the power.

    `left` is what a point is above the law, as a share, for each x.
    """

    factor: float
    power: float
    error: float
    least: float
    most: float
    left: tuple[tuple[float, float], ...]

    def at(self, x: float) -> float:
        """What it says."""
        return float(self.factor * x**self.power)


def fit(points: Sequence[tuple[float, float]]) -> Law | None:
    """The law by least squares of logarithms, with the 95 % interval of its power; None of too few points."""
    if len(points) < _FEWEST or len({x for x, _ in points}) < _FEWEST:
        return None
    logs = [(log(x), log(y)) for x, y in points]
    n = len(logs)
    mean_x, mean_y = sum(x for x, _ in logs) / n, sum(y for _, y in logs) / n
    squares = sum((x - mean_x) ** 2 for x, _ in logs)
    power = sum((x - mean_x) * (y - mean_y) for x, y in logs) / squares
    factor = exp(mean_y - power * mean_x)
    left = [y - mean_y - power * (x - mean_x) for x, y in logs]
    spread = sqrt(sum(each**2 for each in left) / (n - 2))
    error = student_quantile(0.975, n - 2) * spread / sqrt(squares)
    places = [x for x, _ in points]
    shares = tuple((x, exp(each) - 1) for (x, _), each in zip(points, left, strict=True))
    return Law(factor, power, error, min(places), max(places), shares)


def law_charts(sweeps: Sequence[Sweep], when: str) -> Iterator[Chart]:
    """Each curve of decode with its law, and what that leaves."""
    for sweep in sweeps:
        points = [(place, found.value) for place, cell in sweep.cells if (found := cell.figure(DECODE))]
        if law := fit(points):
            yield _chart(sweep.name, points, law, when)


def _chart(name: str, points: Sequence[tuple[float, float]], law: Law, when: str) -> Chart:
    said = f"{law.power:.3f} ± {law.error:.3f}"
    reach = f"{tokens(law.least)} to {tokens(law.most)} tokens"
    worst = max(abs(each) for _, each in law.left)
    caption = (
        f"{when} n = {len(points)}. Speed is {number(law.factor)} times tokens to the power of {said}, from {reach}; "
        f"beyond that it says nothing. The largest residual is {100 * worst:.1f} %. "
        f"{'They bend: it is no power law, and the error of its power means little.' if bends(law) else ''}"
    )
    rows = [
        (tokens(x), number(y), number(law.at(x)), f"{100 * left:+.1f} %")
        for (x, y), (_, left) in zip(points, law.left, strict=True)
    ]
    table = Table(f"A power law: {name}", ("context", "decode, t/s", "the law, t/s", "residual"), tuple(rows))
    return Chart(f"A power law: {name}", caption, (_fitted(points, law), _left(law)), table=table)


def _fitted(points: Sequence[tuple[float, float]], law: Law) -> Pane:
    seen = tuple(Point(x, y, about=f"{tokens(x)}: {number(y)} t/s") for x, y in points)
    places = [law.least * (law.most / law.least) ** (at / _DRAWN) for at in range(_DRAWN + 1)]
    line = tuple(Point(x, law.at(x)) for x in places)
    about = f"t/s over tokens in the context, with a line of the power {law.power:.3f}"
    series = (Series("measured", seen, line=False), Series("the law", line, marks=False))
    return Pane("Decode and the law", about, CONTEXT, Axis("t/s", "log10"), series)


def _left(law: Law) -> Pane:
    points = tuple(Point(x, 100 * left, about=f"{tokens(x)}: {100 * left:+.1f} %") for x, left in law.left)
    about = f"percent above the law: {', '.join(point.about for point in points)}"
    zero = Level(0.0)
    return Pane("Residuals", about, CONTEXT, Axis("%"), (Series("residual", points, line=False),), (zero,))


def bends(law: Law) -> bool:
    """Whether residuals keep their sign at both ends and have the other one between: a curve, and not noise."""
    signs = [left > 0 for _, left in sorted(law.left)]
    turns = sum(a != b for a, b in pairwise(signs))
    return len(signs) >= 5 and turns == 2 and signs[0] == signs[-1]
