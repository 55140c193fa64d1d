"""Compare two results: their differences first, then the ratio of each metric with its verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import hypot, sqrt
from typing import Any

from llamaherd.measure.results.evaluation import find_doubts
from llamaherd.measure.results.metrics import METRICS, Metric, by_start, cells_drift
from llamaherd.measure.results.result import BY_URL, Cell, Condition, Result, Run
from llamaherd.measure.statistics import (
    Block,
    Estimate,
    Judgement,
    Ratio,
    estimate,
    judge_ratio,
    paired_ratio,
    rate,
    unpaired_ratio,
)

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
        """Return what to do where the two have no cell in common; empty where they have one."""
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
    """Return the ratio by blocks, if both are arms of one series with blocks in common."""
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
    if not result.ended:
        yield "it was cut off"
    excluded = Counter(run.excluded for cell in result.cells for run in cell.runs if run.excluded)
    for why, many in excluded.items():
        yield f"{many} {'run does' if many == 1 else 'runs do'} not count: {why}"
    yield from result.source.notes
