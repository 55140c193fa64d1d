"""Evaluate one result: doubts that follow from its own figures, and the speeds that its owner expects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Literal

from llamaherd.inventory.schema import Expect
from llamaherd.measure.meter.usage import combined_telemetry
from llamaherd.measure.results.metrics import DECODE, PREFILL, STEP, Metric, by_start
from llamaherd.measure.results.result import Cell, Result, Run
from llamaherd.measure.statistics import FEWEST_BLOCKS, MOST_MORE, Estimate, estimate, half_width, standard_deviation

_PREFIX = 0.8
"""If the time to the first token covers less than this share of a prompt, some of it was cached."""

_FEWEST, _TOGETHER = 5, 0.9
"""Runs, and their correlation, from which on the text causes the spread."""

_FLAT, _SPAN = 0.05, 4
"""A speed that changes by less than this share over contexts that grow by this factor is not one of their depths."""


def find_doubts(result: Result) -> tuple[str, ...]:
    """Return all doubts about a result: one sentence each."""
    return tuple(_doubts(result))


def _doubts(result: Result) -> Iterator[str]:
    if result.provenance.host.swapped_bytes:
        yield "part of the server was in swap: no figure here is its speed"
    for cell in result.cells:
        yield from _warm_cache_doubts(cell)
        yield from _text_doubts(cell)
    yield from _cached_prompt_doubts(result.cells)
    yield from _allocation_doubts(result.cells)
    counted = [len(cell.counted) for cell in result.cells if cell.runs]
    if counted and max(counted) == 1:
        yield "each condition was measured once: the error is unknown, and small differences cannot be detected"


def _warm_cache_doubts(cell: Cell) -> Iterator[str]:
    most = max((run.cache_n or 0 for run in cell.counted), default=0)
    if cell.condition.cache == "cold" and most:
        yield f"{cell.condition}: {most:,} tokens came from a cache, although the condition is cold"


def _cached_prompt_doubts(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a sentence if prefill and time to first token cannot belong to one request; it names the worst case."""
    found = [(implied / prompt, run) for run, implied, prompt in _first_tokens(cells) if implied < _PREFIX * prompt]
    if not found:
        return
    _, worst = min(found, key=lambda each: each[0])
    also = f" The same goes for {len(found) - 1} others." if len(found) > 1 else ""
    yield (
        f"a time to the first token of {(worst.first_token_ms or 0) / 1000:.1f} s is that of "
        f"{_read_until_first(worst) or 0:,.0f} tokens at the prefill speed of the same run, not of {worst.prompt_n:,}: "
        f"most came from a cache, or it is of another prompt.{also}"
    )


def _first_tokens(cells: Sequence[Cell]) -> Iterator[tuple[Run, float, int]]:
    for cell in cells:
        for run in cell.counted:
            if run.prompt_n and (implied := _read_until_first(run)):
                yield run, implied, run.prompt_n


def _read_until_first(run: Run) -> float | None:
    """Return how many tokens of the prompt are computed until the first token arrives."""
    rate = run.prompt_per_second
    if run.prompt_n and run.prompt_ms:
        rate = 1000 * run.prompt_n / run.prompt_ms
    return rate * run.first_token_ms / 1000 if rate and run.first_token_ms else None


def _text_doubts(cell: Cell) -> Iterator[str]:
    """Yield a sentence if the text decides how fast a run was, through drafts, and the machine itself is steadier."""
    drafted = [(run, sample) for run in cell.counted if run.acceptance is not None and (sample := DECODE.of(run))]
    rates, accepted = [each.rate for _, each in drafted], [run.acceptance or 0.0 for run, _ in drafted]
    if len(drafted) < _FEWEST or (together := correlation(rates, accepted)) is None or together < _TOGETHER:
        return
    steps = [sample.rate for run, _ in drafted if (sample := STEP.of(run))]
    steady = ""
    if len(steps) == len(drafted):
        times = [1000 / each for each in steps]
        steady = f", while a step takes {_mean(times):.2f} ms in all of them (± {_share(times):.1%})"
    yield (
        f"{cell.condition}: the spread of ± {_share(rates):.1%} is of the text and not of the machine: speed goes with "
        f"the accepted drafts (r = {together:.3f}){steady}"
    )


def _allocation_doubts(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a sentence about contexts that were allocated, but not filled: all have the speed of an empty one."""
    speeds = {
        cell.condition.context: _mean([sample.rate for run in cell.counted if (sample := DECODE.of(run))])
        for cell in cells
        if cell.condition.context and any(DECODE.of(run) for run in cell.counted)
    }
    if len(speeds) < 3 or max(speeds) < _SPAN * min(speeds):
        return
    if min(speeds.values()) > (1 - _FLAT) * max(speeds.values()):
        yield (
            f"decode is as fast with a context of {max(speeds):,} tokens as with {min(speeds):,}: these were "
            "allocated, but hardly any of them were in the cache. The speed at that depth is unknown"
        )


def correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return the correlation of two series, from -1 to 1; None if one of them is constant."""
    mean_a, mean_b = _mean(a), _mean(b)
    along = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    squares = sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b)
    return along / sqrt(squares) if squares > 0 else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _share(values: Sequence[float]) -> float:
    """Return the standard deviation as a share of the mean."""
    return (standard_deviation(values) or 0.0) / _mean(values)


Figure = Literal["decode", "prefill", "power"]
ExpectationOutcome = Literal["met", "below", "above", "not known yet", "not measured"]

POWER_MARGIN = 0.05
"""The accuracy of GPUs' sensors, as a share."""
SHORTEST = 10.0
"""Seconds that power must be measured for: on many GPUs it is a mean over the last second."""


@dataclass(frozen=True)
class JudgedFigure:
    """An expected figure and the measured one. `low` to `high` is the interval, if there is one.

    `where` is its condition. `more` is about how many more runs or starts would make an inconclusive outcome
    conclusive; None if that is too many, or if the outcome is conclusive.
    """

    figure: Figure
    unit: str
    expected: float
    outcome: ExpectationOutcome
    value: float | None = None
    low: float | None = None
    high: float | None = None
    where: str = ""
    more: int | None = None

    @property
    def missed(self) -> bool:
        """Return True if it is certainly not as expected."""
        return self.outcome in ("below", "above")

    @property
    def off(self) -> float | None:
        """The measured value relative to the expected one: -0.1 is a tenth less."""
        return None if self.value is None else self.value / self.expected - 1

    def __str__(self) -> str:
        share = f" by {abs(self.off):.1%}" if self.missed and self.off is not None else ""
        return f"{self.outcome}{share}".replace("%", " %")


def judge_expectations(result: Result, expect: Expect | None) -> tuple[JudgedFigure, ...]:
    """Compare what an instance expects with a result, figure by figure; nothing without expectations."""
    return tuple(_judge_figures(result, expect)) if expect else ()


def _judge_figures(result: Result, expect: Expect) -> Iterator[JudgedFigure]:
    alone = [cell for cell in result.cells if _is_as_declared(cell)]
    written = _written(alone)
    cold = [cell for cell in alone if cell.condition.cache != "warm"]
    # A short prompt does not reach the full speed: much of its time is spent on other things than tokens.
    read = [cell for cell in cold if cell.condition.kind == "long"] or cold
    if expect.decode:
        yield _speed("decode", DECODE, written, expect.decode)
    if expect.prefill:
        yield _speed("prefill", PREFILL, read, expect.prefill)
    if expect.power:
        yield _power(written, expect.power)


def fastest_decode(result: Result) -> Estimate | None:
    """Return the speed of one request with the fastest text: the figure that `decode` is compared with."""
    found = _fastest(_written(filter(_is_as_declared, result.cells)), DECODE)
    return found[0] if found else None


def slowest_decode(result: Result) -> float | None:
    """Return the speed of one request under the slowest condition, by text or by depth.

    None if one of these conditions has too few runs: the slowest one is unknown then.
    """
    cells = (cell for cell in _written(result.cells) if _is_of_one(cell))
    found = [each for cell in cells if (each := estimate(by_start(cell.counted, DECODE)))]
    return None if any(each.too_few for each in found) else min((each.value for each in found), default=None)


def _written(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells that measure generation."""
    return [cell for cell in cells if cell.condition.kind != "long"]


def _is_as_declared(cell: Cell) -> bool:
    """Check for one request at a time, with nothing before it, and the declared power limit."""
    return _is_of_one(cell) and not cell.condition.depth


def _is_of_one(cell: Cell) -> bool:
    """Check for one request at a time, under the declared power limit."""
    return cell.condition.concurrency == 1 and cell.condition.power_limit_watts is None


def _speed(figure: Figure, metric: Metric, cells: Sequence[Cell], expected: float) -> JudgedFigure:
    """Judge by the fastest condition: the expectation is a speed to reach, not one to keep with any text."""
    found = _fastest(cells, metric)
    if not found:
        return JudgedFigure(figure, metric.unit, expected, "not measured")
    best, cell = found
    bound = expected * (1 - (metric.margin or 0))
    outcome, more = _outcome(best, bound)
    return JudgedFigure(
        figure, metric.unit, expected, outcome, best.value, best.low, best.high, str(cell.condition), more
    )


def _fastest(cells: Iterable[Cell], metric: Metric) -> tuple[Estimate, Cell] | None:
    found = [(each, cell) for cell in cells if (each := estimate(by_start(cell.counted, metric)))]
    return max(found, key=lambda each: (not each[0].too_few, each[0].value), default=None)


def _outcome(found: Estimate, bound: float) -> tuple[ExpectationOutcome, int | None]:
    if found.low is None or found.high is None or found.spread is None:
        return "not known yet", max(1, FEWEST_BLOCKS - found.n)
    if found.high < bound:
        return "below", None
    if found.low >= bound:
        return "met", None
    return "not known yet", _more(found.spread, found.n, abs(log(found.value / bound)))


def _more(spread: float, have: int, gap: float) -> int | None:
    """Return how many more would decide, if rate and spread stay as they are."""
    enough = range(max(FEWEST_BLOCKS, have + 1), have + MOST_MORE + 1)
    return next((n - have for n in enough if half_width(spread, n, n - 1) < gap), None)


def _power(cells: Sequence[Cell], expected: float) -> JudgedFigure:
    """Judge the mean power of all its GPUs together while it generates."""
    taken = combined_telemetry([cell.telemetry for cell in cells if cell.telemetry])
    watts = taken.watts if taken else None
    if taken is None or watts is None:
        return JudgedFigure("power", "W", expected, "not measured")
    where = f"{taken.seconds:.0f} s"
    if taken.seconds < SHORTEST:
        return JudgedFigure("power", "W", expected, "not known yet", watts, where=where)
    outcome: ExpectationOutcome = "above" if watts > expected * (1 + POWER_MARGIN) else "met"
    return JudgedFigure("power", "W", expected, outcome, watts, where=where)
