"""What a measurement says: each value beside what is expected, and beside the last one with its verdict. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llamaherd.bench.comparing.compare import UNSEEN_STARTS, Row, compare
from llamaherd.bench.courses.quick import FEWEST, counts, lengths_of
from llamaherd.bench.results.expected import Judged, judge
from llamaherd.bench.results.metrics import ACCEPTED, DECODE, ENERGY, METRICS, STEP, TOKENS_PER_STEP, Metric, by_start
from llamaherd.bench.results.result import BY_URL, Condition, Result
from llamaherd.bench.statistics.intervals import Estimate, estimate
from llamaherd.bench.statistics.verdict import Judgement
from llamaherd.inventory.schema import Expect

_BESIDES = (STEP, TOKENS_PER_STEP, ACCEPTED, ENERGY)
"""What is shown of answers beside their speed."""


@dataclass(frozen=True)
class Value:
    """A metric of a cell, and the last measurement beside this one, where there is one."""

    condition: Condition
    metric: Metric
    found: Estimate
    before: Row | None

    @property
    def judgement(self) -> Judgement | None:
        """The verdict on it beside the last measurement: of fewer runs than three, nothing is said."""
        known = self.before is not None and self.before.ratio.n >= FEWEST
        return self.before.judgement if self.before and known else None

    @property
    def slower(self) -> bool:
        """Whether it is slower than it was."""
        return self.judgement is not None and self.judgement.verdict == "slower"


@dataclass(frozen=True)
class Outcome:
    """All of it. `expected` is what its owner expects, figure by figure."""

    result: Result
    values: tuple[Value, ...]
    expected: tuple[Judged, ...]
    apart: tuple[str, ...] = ()
    """Why some speeds are not judged beside the last measurement."""

    @property
    def known(self) -> bool:
        """Whether anything was measured that counts."""
        return bool(self.values)

    @property
    def fine(self) -> bool:
        """Whether nothing misses what is expected, or is slower than before."""
        return not (any(each.missed for each in self.expected) or any(each.slower for each in self.values))


def outcome(result: Result, expect: Expect | None, before: Result | None) -> Outcome:
    """What a result says. A verdict is on those metrics alone that a condition is there for."""
    rows = {(row.condition, row.metric.name): row for row in compare(before, result).rows} if before else {}
    apart = tuple(_apart(lengths_of(result.conditions), lengths_of(before.conditions))) if before else ()
    if result.rig == BY_URL and any(row.ratio.assumed for row in rows.values()):
        apart = (*apart, UNSEEN_STARTS)
    return Outcome(result, tuple(_values(result, rows)), judge(result, expect), apart)


def _apart(now: tuple[int | None, int | None], before: tuple[int | None, int | None]) -> Iterator[str]:
    for what, tokens, last in zip(("answers", "a prompt"), now, before, strict=True):
        if tokens and last and tokens != last:
            yield f"{what} of {tokens:,} tokens, and the last measurement has {last:,}: their speeds are not compared"


def _values(result: Result, rows: dict[tuple[Condition, str], Row]) -> Iterator[Value]:
    for cell in result.cells:
        judged = counts(cell.condition)
        shown = judged + (_BESIDES if DECODE in judged else ())
        for metric in METRICS:
            found = estimate(by_start(cell.counted, metric)) if metric in shown else None
            if found:
                before = rows.get((cell.condition, metric.name)) if metric in judged else None
                yield Value(cell.condition, metric, found, before)
