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
"""Less than this share of a prompt in the time to the first token, and some of it was cached."""

_FEWEST, _TOGETHER = 5, 0.9
"""Runs, and their correlation, from which on the text is what the spread is of."""

_FLAT, _SPAN = 0.05, 4
"""A speed that changes by less than this share over contexts so many times as long is not of those contexts."""


def find_doubts(result: Result) -> tuple[str, ...]:
    """All that is doubtful in a result: one sentence each."""
    return tuple(_doubts(result))


def _doubts(result: Result) -> Iterator[str]:
    if result.provenance.host.swapped_bytes:
        yield "part of the server was in swap: no figure here says how fast it is"
    for cell in result.cells:
        yield from _warm_cache_doubts(cell)
        yield from _text_doubts(cell)
    yield from _cached_prompt_doubts(result.cells)
    yield from _allocation_doubts(result.cells)
    counted = [len(cell.counted) for cell in result.cells if cell.runs]
    if counted and max(counted) == 1:
        yield "each condition was measured once: no error is known, and no small difference can be told"


def _warm_cache_doubts(cell: Cell) -> Iterator[str]:
    most = max((run.cache_n or 0 for run in cell.counted), default=0)
    if cell.condition.cache == "cold" and most:
        yield f"{cell.condition}: {most:,} tokens came from a cache, though it was to be cold"


def _cached_prompt_doubts(cells: Sequence[Cell]) -> Iterator[str]:
    """Prefill and time to the first token that cannot be of the same request; told of the one that is most so."""
    found = [(implied / prompt, run) for run, implied, prompt in _first_tokens(cells) if implied < _PREFIX * prompt]
    if not found:
        return
    _, worst = min(found, key=lambda each: each[0])
    also = f" The same goes for {len(found) - 1} others." if len(found) > 1 else ""
    yield (
        f"a time to the first token of {(worst.first_token_ms or 0) / 1000:.1f} s is that of "
        f"{_read_until_first(worst) or 0:,.0f} tokens at the prefill speed beside it, and not of {worst.prompt_n:,}: "
        f"most came from a cache, or it is of another prompt.{also}"
    )


def _first_tokens(cells: Sequence[Cell]) -> Iterator[tuple[Run, float, int]]:
    for cell in cells:
        for run in cell.counted:
            if run.prompt_n and (implied := _read_until_first(run)):
                yield run, implied, run.prompt_n


def _read_until_first(run: Run) -> float | None:
    """As many tokens of the prompt as are read until the first token comes."""
    rate = run.prompt_per_second
    if run.prompt_n and run.prompt_ms:
        rate = 1000 * run.prompt_n / run.prompt_ms
    return rate * run.first_token_ms / 1000 if rate and run.first_token_ms else None


def _text_doubts(cell: Cell) -> Iterator[str]:
    """Where drafts decide how fast a run was, its text does, and the machine is steadier than it looks."""
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
    """Contexts that were allocated, and not filled: the speed is that of an empty one in all of them."""
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
            "allocated, and hardly any of them were in the cache. It says nothing of the speed at that depth"
        )


def correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """How closely two go together, from -1 to 1; None where one of them does not change."""
    mean_a, mean_b = _mean(a), _mean(b)
    along = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    squares = sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b)
    return along / sqrt(squares) if squares > 0 else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _share(values: Sequence[float]) -> float:
    """The standard deviation as a share of the mean."""
    return (standard_deviation(values) or 0.0) / _mean(values)


Figure = Literal["decode", "prefill", "power"]
ExpectationOutcome = Literal["met", "below", "above", "not known yet", "not measured"]

POWER_MARGIN = 0.05
"""What sensors of GPUs are good for, as a share."""
SHORTEST = 10.0
"""Seconds that power must be known for: on many GPUs it is a mean over the last one."""


@dataclass(frozen=True)
class JudgedFigure:
    """A figure that was expected, beside what was measured. `low` to `high` is the interval, where there is one.

    `where` is the condition that it was read from. `more` is about how many more runs or starts would tell what is not
    known yet; None where that would be too many, or where it is none of that.
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
        """Whether it is not as expected, which is more than not being known."""
        return self.outcome in ("below", "above")

    @property
    def off(self) -> float | None:
        """What was measured beyond what was expected, as a share of that: -0.1 is a tenth less."""
        return None if self.value is None else self.value / self.expected - 1

    def __str__(self) -> str:
        share = f" by {abs(self.off):.1%}" if self.missed and self.off is not None else ""
        return f"{self.outcome}{share}".replace("%", " %")


def judge_expectations(result: Result, expect: Expect | None) -> tuple[JudgedFigure, ...]:
    """What is expected of an instance, figure by figure; nothing where nothing is."""
    return tuple(_judge_figures(result, expect)) if expect else ()


def _judge_figures(result: Result, expect: Expect) -> Iterator[JudgedFigure]:
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


def fastest_decode(result: Result) -> Estimate | None:
    """How fast one request is answered with the text that is written fastest: what `decode` is held against."""
    found = _fastest(_written(filter(_is_as_declared, result.cells)), DECODE)
    return found[0] if found else None


def slowest_decode(result: Result) -> float | None:
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


def _speed(figure: Figure, metric: Metric, cells: Sequence[Cell], expected: float) -> JudgedFigure:
    """By the condition in which it is fastest: it is expected to reach so much, not to keep it with any text."""
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
    """How many more would tell, if rate and spread stay as they are."""
    enough = range(max(FEWEST_BLOCKS, have + 1), have + MOST_MORE + 1)
    return next((n - have for n in enough if half_width(spread, n, n - 1) < gap), None)


def _power(cells: Sequence[Cell], expected: float) -> JudgedFigure:
    """Of all its GPUs together, on average while it writes."""
    taken = combined_telemetry([cell.telemetry for cell in cells if cell.telemetry])
    watts = taken.watts if taken else None
    if taken is None or watts is None:
        return JudgedFigure("power", "W", expected, "not measured")
    where = f"{taken.seconds:.0f} s"
    if taken.seconds < SHORTEST:
        return JudgedFigure("power", "W", expected, "not known yet", watts, where=where)
    outcome: ExpectationOutcome = "above" if watts > expected * (1 + POWER_MARGIN) else "met"
    return JudgedFigure("power", "W", expected, outcome, watts, where=where)
