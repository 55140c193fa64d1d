"""A result beside what its owner expects: `expect` of the instance. Pure.

A speed is met or missed by its whole interval and the margin of its metric, and power by the margin of GPUs' sensors:
what lies between is not known yet. Nothing is missed because nobody has measured it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import Literal

from llamaherd.bench.meter.taken import together
from llamaherd.bench.results.metrics import DECODE, PREFILL, Metric, by_start
from llamaherd.bench.results.result import Cell, Result
from llamaherd.bench.statistics.blocks import FEWEST
from llamaherd.bench.statistics.intervals import Estimate, estimate
from llamaherd.bench.statistics.student import half_width
from llamaherd.bench.statistics.verdict import MOST_MORE
from llamaherd.inventory.schema import Expect

Figure = Literal["decode", "prefill", "power"]
Outcome = Literal["met", "below", "above", "not known yet", "not measured"]

POWER_MARGIN = 0.05
"""What sensors of GPUs are good for, as a share."""
SHORTEST = 10.0
"""Seconds that power must be known for: on many GPUs it is a mean over the last one."""


@dataclass(frozen=True)
class Judged:
    """A figure that was expected, beside what was measured. `low` to `high` is the interval, where there is one.

    `where` is the condition that it was read from. `more` is about how many more runs or starts would tell what is not
    known yet; None where that would be too many, or where it is none of that.
    """

    figure: Figure
    unit: str
    expected: float
    outcome: Outcome
    value: float | None = None
    low: float | None = None
    high: float | None = None
    where: str = ""
    more: int | None = None

    @property
    def missed(self) -> bool:
        """Whether it is not as expected, which is more than not being known."""
        return self.outcome in ("below", "above")

    @property
    def off(self) -> float | None:
        """What was measured beyond what was expected, as a share of that: -0.1 is a tenth less."""
        return None if self.value is None else self.value / self.expected - 1

    def __str__(self) -> str:
        share = f" by {abs(self.off):.1%}" if self.missed and self.off is not None else ""
        return f"{self.outcome}{share}".replace("%", " %")


def judge(result: Result, expect: Expect | None) -> tuple[Judged, ...]:
    """What is expected of an instance, figure by figure; nothing where nothing is."""
    return tuple(_judge(result, expect)) if expect else ()


def _judge(result: Result, expect: Expect) -> Iterator[Judged]:
    alone = [cell for cell in result.cells if _is_as_declared(cell)]
    written = _written(alone)
    cold = [cell for cell in alone if cell.condition.cache != "warm"]
    # A short prompt is read slower than a server can: much of its time is spent on other things than tokens.
    read = [cell for cell in cold if cell.condition.kind == "long"] or cold
    if expect.decode:
        yield _speed("decode", DECODE, written, expect.decode)
    if expect.prefill:
        yield _speed("prefill", PREFILL, read, expect.prefill)
    if expect.power:
        yield _power(written, expect.power)


def decode_of(result: Result) -> Estimate | None:
    """How fast one request is answered with the text that is written fastest: what `decode` is held against."""
    found = _fastest(_written(filter(_is_as_declared, result.cells)), DECODE)
    return found[0] if found else None


def slowest_of(result: Result) -> float | None:
    """Return how fast one request is answered under the slowest condition, be it the text or the depth.

    None where one of these conditions has too few runs: the slowest one is not known then.
    """
    cells = (cell for cell in _written(result.cells) if _is_of_one(cell))
    found = [each for cell in cells if (each := estimate(by_start(cell.counted, DECODE)))]
    return None if any(each.too_few for each in found) else min((each.value for each in found), default=None)


def _written(cells: Iterable[Cell]) -> list[Cell]:
    """Those in which an answer is what is measured."""
    return [cell for cell in cells if cell.condition.kind != "long"]


def _is_as_declared(cell: Cell) -> bool:
    """One request at a time, with nothing before it, and no other power limit than the declared one."""
    return _is_of_one(cell) and not cell.condition.depth


def _is_of_one(cell: Cell) -> bool:
    """One request at a time, under the declared power limit."""
    return cell.condition.concurrency == 1 and cell.condition.power_limit_watts is None


def _speed(figure: Figure, metric: Metric, cells: Sequence[Cell], expected: float) -> Judged:
    """By the condition in which it is fastest: it is expected to reach so much, not to keep it with any text."""
    found = _fastest(cells, metric)
    if not found:
        return Judged(figure, metric.unit, expected, "not measured")
    best, cell = found
    bound = expected * (1 - (metric.margin or 0))
    outcome, more = _outcome(best, bound)
    return Judged(figure, metric.unit, expected, outcome, best.value, best.low, best.high, str(cell.condition), more)


def _fastest(cells: Iterable[Cell], metric: Metric) -> tuple[Estimate, Cell] | None:
    found = [(each, cell) for cell in cells if (each := estimate(by_start(cell.counted, metric)))]
    return max(found, key=lambda each: (not each[0].too_few, each[0].value), default=None)


def _outcome(found: Estimate, bound: float) -> tuple[Outcome, int | None]:
    if found.low is None or found.high is None or found.spread is None:
        return "not known yet", max(1, FEWEST - found.n)
    if found.high < bound:
        return "below", None
    if found.low >= bound:
        return "met", None
    return "not known yet", _more(found.spread, found.n, abs(log(found.value / bound)))


def _more(spread: float, have: int, gap: float) -> int | None:
    """How many more would tell, if rate and spread stay as they are."""
    enough = range(max(FEWEST, have + 1), have + MOST_MORE + 1)
    return next((n - have for n in enough if half_width(spread, n, n - 1) < gap), None)


def _power(cells: Sequence[Cell], expected: float) -> Judged:
    """Of all its GPUs together, on average while it writes."""
    taken = together([cell.telemetry for cell in cells if cell.telemetry])
    watts = taken.watts if taken else None
    if taken is None or watts is None:
        return Judged("power", "W", expected, "not measured")
    where = f"{taken.seconds:.0f} s"
    if taken.seconds < SHORTEST:
        return Judged("power", "W", expected, "not known yet", watts, where=where)
    outcome: Outcome = "above" if watts > expected * (1 + POWER_MARGIN) else "met"
    return Judged("power", "W", expected, outcome, watts, where=where)
