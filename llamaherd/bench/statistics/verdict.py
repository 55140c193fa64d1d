"""What a ratio tells, by its whole interval and a margin: never by a p-value, and never more than is known."""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, log, sqrt
from typing import Literal

from llamaherd.bench.statistics.blocks import FEWEST
from llamaherd.bench.statistics.intervals import Ratio, Unit
from llamaherd.bench.statistics.student import half_width

Verdict = Literal["slower", "same", "faster", "not known yet"]

MOST_MORE = 50
"""Units; who would need more is told that the difference lies at the margin, and not to measure for days."""


@dataclass(frozen=True)
class Judgement:
    """A verdict. Where nothing is known yet, `more` is about how many more units of each arm would tell.

    `more` is None where more than `MOST_MORE` would be needed.
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


def judge(ratio: Ratio, margin: float) -> Judgement:
    """Slower or faster where the whole interval lies beyond the margin, the same where it lies inside."""
    if ratio.low is not None and ratio.high is not None:
        if ratio.high < 1 - margin:
            return Judgement("slower")
        if ratio.low > 1 + margin:
            return Judgement("faster")
        if ratio.low >= 1 - margin and ratio.high <= 1 + margin:
            return Judgement("same")
    # Where starts had to be assumed to differ, no number of runs tells it: starts do.
    unit: Unit = "start" if ratio.assumed else ratio.unit
    have = 1 if ratio.assumed else ratio.n
    return Judgement("not known yet", _more(ratio, margin, have), unit)


def _more(ratio: Ratio, margin: float, have: int) -> int | None:
    """How many more of each arm would tell, if ratio and spread stay as they are."""
    if ratio.spread is None:
        return max(1, FEWEST - have)
    gap = min(abs(log(ratio.value) - log(1 - margin)), abs(log(ratio.value) - log(1 + margin)))
    spread = hypot(ratio.spread / sqrt(ratio.n), ratio.assumed) if ratio.assumed else ratio.spread
    paired = ratio.unit == "block"
    for n in range(max(FEWEST, have + 1), have + MOST_MORE + 1):
        half = half_width(spread, n, n - 1) if paired else half_width(spread * sqrt(2), n, 2 * n - 2)
        if half < gap:
            return n - have
    return None
