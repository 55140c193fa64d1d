"""What a measurement says: each value beside what is expected, and beside the last one with its verdict. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llamaherd.bench.compare import Row, compare
from llamaherd.bench.metrics import ACCEPTED, DECODE, ENERGY, METRICS, PREFILL, STEP, TOKENS_PER_STEP, Metric, by_start
from llamaherd.bench.quick import counts
from llamaherd.bench.result import Condition, Result
from llamaherd.bench.statistics.intervals import Estimate, estimate
from llamaherd.inventory.schema import Expect

_BESIDES = (STEP, TOKENS_PER_STEP, ACCEPTED, ENERGY)
"""What is shown of answers beside their speed."""


@dataclass(frozen=True)
class Value:
    """A metric of a cell. `expected` is what its owner does, and `before` the last measurement beside this one."""

    condition: Condition
    metric: Metric
    found: Estimate
    expected: float | None
    before: Row | None

    @property
    def missed(self) -> bool:
        """Whether it is below what is expected, with its whole interval."""
        return self.expected is not None and (self.found.high or self.found.value) < self.expected

    @property
    def slower(self) -> bool:
        """Whether it is slower than it was."""
        return bool(self.before and self.before.judgement and self.before.judgement.verdict == "slower")


@dataclass(frozen=True)
class Outcome:
    """All of it. `watts_missed`: its GPUs take more than is expected."""

    result: Result
    values: tuple[Value, ...]
    watts_missed: bool

    @property
    def fine(self) -> bool:
        """Whether nothing is below what is expected, or slower than before."""
        return not (self.watts_missed or any(each.missed or each.slower for each in self.values))


def outcome(result: Result, expect: Expect | None, before: Result | None) -> Outcome:
    """What a result says. A verdict is on those metrics alone that a condition is there for."""
    rows = {(row.condition, row.metric.name): row for row in compare(before, result).rows} if before else {}
    watts = result.work.watts if result.work else None
    most = expect.power if expect else None
    return Outcome(result, tuple(_values(result, expect, rows)), bool(watts and most and watts > most))


def _values(result: Result, expect: Expect | None, rows: dict[tuple[Condition, str], Row]) -> Iterator[Value]:
    for cell in result.cells:
        judged = counts(cell.condition)
        shown = judged + (_BESIDES if DECODE in judged else ())
        for metric in METRICS:
            found = estimate(by_start(cell.counted, metric)) if metric in shown else None
            if found:
                before = rows.get((cell.condition, metric.name)) if metric in judged else None
                yield Value(cell.condition, metric, found, _expected(metric, expect), before)


def _expected(metric: Metric, expect: Expect | None) -> float | None:
    if expect is None:
        return None
    return expect.decode if metric is DECODE else expect.prefill if metric is PREFILL else None
