"""Servers before and after a boot: how fast each was on either side, and whether it is too slow since. Pure.

Between two boots nothing can be measured in turns. What is known is the spread of starts on either side, and that two
boots of one host differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, hypot, log, sqrt
from typing import Annotated, Literal, Protocol

from pydantic import Field, StringConstraints, ValidationError

from llamaherd.bench.arms.cells import asks, long_tokens
from llamaherd.bench.arms.gate import GateRow, gate_row, limit_of
from llamaherd.bench.asking.client import Answer, Failure
from llamaherd.bench.asking.runs import run_of
from llamaherd.bench.asking.suite import long_text_of
from llamaherd.bench.results.metrics import DECODE, PREFILL, Metric, by_start
from llamaherd.bench.results.provenance import Positive, Recorded, Sha256
from llamaherd.bench.results.result import Condition, Name, Run, Start, Time
from llamaherd.bench.schedule import Ask
from llamaherd.bench.statistics.intervals import BETWEEN_STARTS, Ratio, Sample, unpaired_ratio
from llamaherd.bench.statistics.student import NORMAL
from llamaherd.diagnostics.findings import UserError
from llamaherd.plan import GatePlan

BETWEEN_BOOTS = BETWEEN_STARTS
"""How much two boots of one host are taken to differ, as a share: one on either side tells no spread."""

FEWEST, MOST = 3, 5
"""Starts of a server on one side, as far as its time goes: fewer tell hardly a spread, more are not worth the wait."""

MOST_TEXT = 1 << 16
"""Bytes of what a host keeps of this."""


class CellReading(Recorded):
    """One condition: for each start of the server what was counted, and over how many seconds."""

    condition: Condition
    starts: Annotated[tuple[tuple[Positive, Positive], ...], Field(min_length=1, max_length=MOST)]

    @property
    def samples(self) -> list[list[Sample]]:
        """The same for statistics."""
        return [[Sample(*each)] for each in self.starts]


class ServerReading(Recorded):
    """How fast a server was, which one it was by its spec, and of how many starts that is known."""

    instance: Name
    spec: Annotated[str, StringConstraints(max_length=128)]
    cells: Annotated[tuple[CellReading, ...], Field(min_length=1, max_length=8)]


class BootReading(Recorded):
    """What a host keeps from before its driver is changed. `driver` is the version that it ran, `suite` the prompts."""

    format: Literal[1] = 1
    driver: Annotated[str, StringConstraints(max_length=64)]
    at: Time
    suite: Sha256
    servers: Annotated[tuple[ServerReading, ...], Field(min_length=1, max_length=64)]


class Servers(Protocol):
    """What starts a server, and asks it."""

    def start(self, name: Literal["A"]) -> Start:
        """Start it; it answers by then. Raises UserError."""
        ...

    def stop(self) -> None:
        """Stop it."""
        ...

    def ask(self, wanted: Ask) -> Answer | Failure:
        """One streamed answer."""
        ...

    def count(self, text: str) -> int:
        """Tokens of a text."""
        ...

    def clock(self) -> float:
        """Seconds."""
        ...


def read_reading(text: str) -> BootReading | None:
    """What a host has kept; None where that is not what we write."""
    if len(text) > MOST_TEXT:
        return None
    try:
        return BootReading.model_validate_json(text)
    except ValidationError:
        return None


def read_cells(
    servers: Servers,
    asked: Sequence[Condition],
    seconds: float,
    enough: Callable[[tuple[CellReading, ...]], bool] = lambda _: False,
) -> tuple[CellReading, ...]:
    """Measure a server: start after start until it is enough, the next would not fit, or there are MOST of them.

    Cells of which nothing counts are left out. Raises UserError.
    """
    began, longest, text = servers.clock(), 0.0, ""
    runs: list[list[Run]] = [[] for _ in asked]
    for start in range(MOST):
        at = servers.clock()
        if start and at - began + longest > seconds:
            break
        try:
            servers.start("A")
            if not text and (tokens := long_tokens(asked)):
                text = long_text_of(tokens, servers.count)
            for wanted in asks(asked, text, start):
                run = _run(servers, wanted, asked, began, start)
                if wanted.cell is not None and run:
                    runs[wanted.cell].append(run)
        finally:
            servers.stop()
        longest = max(longest, servers.clock() - at)
        if start + 1 >= FEWEST and enough(_cells(asked, runs)):
            break
    return _cells(asked, runs)


def boot_rows(
    before: ServerReading, after: Sequence[CellReading], gate: GatePlan, *, spent: bool = False
) -> tuple[GateRow, ...]:
    """Each cell that is known of both sides beside its limit, as a gate judges. `spent`: there will be no more."""
    rows = []
    for each in before.cells:
        limit = limit_of(each.condition, _metric(each.condition), gate)
        now = next((cell for cell in after if cell.condition == each.condition), None)
        ratio = boot_ratio(each, now) if now else None
        if limit is not None and ratio:
            rows.append(gate_row(each.condition, limit, ratio, spent=spent))
    return tuple(rows)


def boot_ratio(before: CellReading, after: CellReading) -> Ratio | None:
    """How fast it is since beside before: by starts, and as much wider as two boots are taken to differ."""
    ratio = unpaired_ratio(before.samples, after.samples)
    if ratio is None or ratio.low is None or ratio.unit != "start":
        # One start on either side tells no spread.
        return ratio
    half = hypot(log(ratio.value / ratio.low), NORMAL * BETWEEN_BOOTS * sqrt(2))
    low, high = ratio.value * exp(-half), ratio.value * exp(half)
    return Ratio(ratio.value, low, high, ratio.spread, ratio.n, ratio.unit, BETWEEN_BOOTS)


def known(rows: Sequence[GateRow], cells: int) -> bool:
    """Whether more starts would tell nothing that decides: one is slower, or all are held."""
    return any(row.verdict == "slower" for row in rows) or sum(row.verdict == "held" for row in rows) == cells


def _run(servers: Servers, wanted: Ask, asked: Sequence[Condition], began: float, start: int) -> Run | None:
    at = servers.clock() - began
    answer = servers.ask(wanted)
    if isinstance(answer, Failure):
        if answer.why != "empty":
            raise UserError(f"it gave no answer: {answer.message}", answer.help)
        return None
    if wanted.cell is None:
        return None
    run = run_of(answer, asked[wanted.cell], at=at, start=start)
    return None if run.excluded else run


def _cells(asked: Sequence[Condition], runs: Sequence[Sequence[Run]]) -> tuple[CellReading, ...]:
    cells = []
    for condition, of in zip(asked, runs, strict=True):
        starts = [(sum(one.amount for one in each), sum(one.over for one in each)) for each in _starts(condition, of)]
        if starts:
            cells.append(CellReading(condition=condition, starts=tuple(starts)))
    return tuple(cells)


def _starts(condition: Condition, runs: Sequence[Run]) -> list[list[Sample]]:
    return by_start(runs, _metric(condition))


def _metric(condition: Condition) -> Metric:
    return PREFILL if condition.prompt else DECODE
