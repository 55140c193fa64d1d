"""Evaluate one result by its own figures and the expected speeds, and compare two results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import hypot, log, sqrt
from typing import Any, Literal

from llamaherd.inventory.schema import Expect
from llamaherd.measure.meter.usage import combined_telemetry
from llamaherd.measure.results.metrics import DECODE, METRICS, PREFILL, STEP, Metric, by_start, cells_drift
from llamaherd.measure.results.result import BY_URL, Cell, Condition, Result, Run, lost_runs
from llamaherd.measure.statistics import (
    FEWEST_BLOCKS,
    MOST_MORE,
    Block,
    Estimate,
    Judgement,
    Ratio,
    estimate,
    half_width,
    judge_ratio,
    paired_ratio,
    rate,
    standard_deviation,
    unpaired_ratio,
)

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


UNSEEN_STARTS = (
    "`--url` cannot detect starts of a server: each measurement counts as one start, and several are not combined"
)
"""A note on starts that a verdict would need."""
_NOTED_DRIFT = 0.005
"""The drift from which on it is reported."""


@dataclass(frozen=True)
class Difference:
    """A difference between two results; empty if one of them does not record it."""

    what: str
    a: str
    b: str


@dataclass(frozen=True)
class ComparisonRow:
    """A metric of a cell in both. Without a margin there is no judgement."""

    condition: Condition
    metric: Metric
    a: Estimate
    b: Estimate
    ratio: Ratio
    judgement: Judgement | None


@dataclass(frozen=True)
class Comparison:
    """The comparison of two results. `only_a` and `only_b` are cells that only one of them has."""

    a: str
    b: str
    differences: tuple[Difference, ...]
    rows: tuple[ComparisonRow, ...]
    only_a: tuple[Condition, ...]
    only_b: tuple[Condition, ...]
    notes: tuple[str, ...]
    notes_a: tuple[str, ...]
    notes_b: tuple[str, ...]
    doubts_a: tuple[str, ...]
    doubts_b: tuple[str, ...]

    @property
    def help(self) -> str:
        """Return the help for two results without a common cell; empty if they have one."""
        if self.rows:
            return ""
        for name, only in (("A", self.only_a), ("B", self.only_b)):
            if not only:
                return f"measure {name} again: none of its runs can be compared"
        if set(self.only_a) & set(self.only_b):
            return "their prompts differ: measure both with the same version of `herd bench`"
        pairs = ((a, b) for a in self.only_a for b in self.only_b)
        if apart := next(((a, b) for a, b in pairs if _without_lengths(a) == _without_lengths(b)), None):
            return f"`{apart[0]}` and `{apart[1]}` differ in length: measure both with the same `--time`"
        return "measure both with the same options of `herd bench`"


def _without_lengths(condition: Condition) -> Condition:
    return condition.model_copy(update={"generated": 0, "prompt": 0, "context": 0})


def compare_results(a: Result, b: Result) -> Comparison:
    """Compare B with A."""
    cells_a, cells_b = ({cell.condition: cell for cell in each.cells if cell.counted} for each in (a, b))
    if _suite(a) != _suite(b):
        both: list[Condition] = []
    else:
        both = [condition for condition in cells_a if condition in cells_b]
    between = {by: hypot(cells_drift(a.cells, by), cells_drift(b.cells, by)) / sqrt(2) for by in (False, True)}
    rows = tuple(row for each in both for row in _rows(a, b, cells_a[each], cells_b[each], between[bool(each.prompt)]))
    return Comparison(
        a=a.label,
        b=b.label,
        differences=tuple(differences(a, b)),
        rows=rows,
        only_a=tuple(each for each in cells_a if each not in both),
        only_b=tuple(each for each in cells_b if each not in both),
        notes=tuple(_notes(a, b, rows, max(between.values()))),
        notes_a=tuple(_notes_of(a)),
        notes_b=tuple(_notes_of(b)),
        doubts_a=find_doubts(a),
        doubts_b=find_doubts(b),
    )


def differences(a: Result, b: Result) -> Iterator[Difference]:
    """Yield the differences between two results, in the order of their fields."""
    flat_a, flat_b = (dict(_flat(_about(each))) for each in (a, b))
    for what in dict.fromkeys([*flat_a, *flat_b]):
        if flat_a.get(what) != flat_b.get(what):
            yield Difference(what, flat_a.get(what, ""), flat_b.get(what, ""))


def _about(result: Result) -> dict[str, Any]:
    """Return what identifies a result. The rig of imported results is unknown: its names are those of files."""
    ours = result.source.kind == "herd"
    return {
        "rig": result.rig if ours else "",
        "instance": result.instance if ours else "",
        "measured by": result.source.kind,
        "client": result.method.client or "",
        "suite": _suite(result),
        "llamaherd": result.llamaherd,
        **result.provenance.model_dump(mode="json", exclude_defaults=True),
    }


def _suite(result: Result) -> str:
    return result.suite.sha256 if result.suite else ""


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every value with its path. Lists of texts are one value: one more argument would shift all others."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _flat(each, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for number, each in enumerate(value):
            yield from _flat(each, f"{path}.{number}")
    elif value not in (None, "", []):
        yield path, " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _rows(a: Result, b: Result, cell_a: Cell, cell_b: Cell, drift: float) -> Iterator[ComparisonRow]:
    same = _one_start(a, b)
    for metric in METRICS:
        starts_a, starts_b = by_start(cell_a.counted, metric), by_start(cell_b.counted, metric)
        of_a, of_b = estimate(starts_a), estimate(starts_b)
        ratio = _in_blocks(a, b, cell_a, cell_b, metric)
        between = metric.between_times if same else metric.between_starts
        ratio = ratio or unpaired_ratio(starts_a, starts_b, assumed=hypot(between, drift if metric.timed else 0.0))
        if of_a and of_b and ratio:
            if ratio.unit != "block" and (of_a.too_few or of_b.too_few):
                ratio = replace(ratio, low=None, high=None)
            judgement = None if metric.margin is None else judge_ratio(ratio, metric.margin)
            yield ComparisonRow(cell_a.condition, metric, of_a, of_b, ratio, judgement)


def _in_blocks(a: Result, b: Result, cell_a: Cell, cell_b: Cell, metric: Metric) -> Ratio | None:
    """Return the ratio by blocks, if both are variants of one series with blocks in common."""
    if not a.method.series or a.method.series != b.method.series or a.method.arm == b.method.arm:
        return None
    blocks_a, blocks_b = _block_rates(cell_a.counted, metric), _block_rates(cell_b.counted, metric)
    return paired_ratio([Block(blocks_a[each], blocks_b[each]) for each in sorted(blocks_a.keys() & blocks_b.keys())])


def _block_rates(runs: Sequence[Run], metric: Metric) -> dict[int, float]:
    numbers = {run.block for run in runs if run.block is not None}
    samples = {each: [metric.of(run) for run in runs if run.block == each] for each in numbers}
    return {each: rate(known) for each, found in samples.items() if (known := [one for one in found if one])}


def _one_start(a: Result, b: Result) -> bool:
    """Check whether both are requests to the same process."""
    processes = [{start.process for start in each.starts} for each in (a, b)]
    return processes[0] == processes[1] and len(processes[0]) == 1 and None not in processes[0]


def _notes(a: Result, b: Result, rows: Sequence[ComparisonRow], drift: float) -> Iterator[str]:
    if _suite(a) != _suite(b):
        yield "they were measured with different prompts: their figures cannot be compared"
    elif not a.suite:
        yield "it is unknown whether both were measured with the same prompts"
    unmeasured = [row.metric for row in rows if row.ratio.assumed]
    assumed = {each.name: each.between_times if _one_start(a, b) else each.between_starts for each in unmeasured}
    if by := ", ".join(f"{share:.0%} of {name}" for name, share in assumed.items() if share):
        yield f"one start each, at two times: {by} are assumed to lie between them, which widens the intervals"
    if unmeasured and BY_URL in (a.rig, b.rig):
        yield UNSEEN_STARTS
    if unmeasured and drift > _NOTED_DRIFT:
        yield f"speeds drifted meanwhile: another {drift:.1%} are assumed to lie between both"


def _notes_of(result: Result) -> Iterator[str]:
    """Yield the notes on one result that its figures do not show."""
    yield from lost_runs(result)
    yield from result.source.notes
