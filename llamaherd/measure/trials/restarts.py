"""Measure servers before and after a restart of their host, and judge the change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import exp, hypot, log, sqrt
from secrets import token_hex
from typing import Annotated, Literal, Protocol

from pydantic import Field, StringConstraints, ValidationError

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.api_keys import read_key
from llamaherd.inventory.schema import Connect
from llamaherd.measure.client.http_client import Answer, Failure
from llamaherd.measure.client.requests import RequestSpec, run_from_answer
from llamaherd.measure.client.suite import long_text_of
from llamaherd.measure.results.metrics import DECODE, PREFILL, Metric, by_start
from llamaherd.measure.results.result import Condition, Name, Positive, Recorded, Run, Sha256, Start, Timestamp
from llamaherd.measure.statistics import BETWEEN_STARTS, NORMAL, Ratio, Sample, unpaired_ratio
from llamaherd.measure.trials.blocks import block_requests, long_tokens, trial_conditions
from llamaherd.measure.trials.gate import GateRow, gate_cells, gate_row, limit_of
from llamaherd.measure.trials.host import ArmsHost
from llamaherd.measure.trials.units import Arm, arms_input, arms_port, server_at_port
from llamaherd.plan import GatePlan, InstancePlan, Plan
from llamaherd.text.numbers import show_seconds

BETWEEN_BOOTS = BETWEEN_STARTS
"""How much two boots of one host are taken to differ, as a share: one on either side tells no spread."""

FEWEST_STARTS, MOST_STARTS = 3, 5
"""Starts of a server on one side, as far as its time goes: fewer tell hardly a spread, more are not worth the wait."""

MOST_TEXT = 1 << 16
"""Bytes of what a host keeps of this."""


class CellReading(Recorded):
    """One condition: for each start of the server what was counted, and over how many seconds."""

    condition: Condition
    starts: Annotated[tuple[tuple[Positive, Positive], ...], Field(min_length=1, max_length=MOST_STARTS)]

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
    at: Timestamp
    suite: Sha256
    servers: Annotated[tuple[ServerReading, ...], Field(min_length=1, max_length=64)]


class RestartServers(Protocol):
    """What starts a server, and asks it."""

    def start(self, name: Literal["A"]) -> Start:
        """Start it; it answers by then. Raises UserError."""
        ...

    def stop(self) -> None:
        """Stop it."""
        ...

    def ask(self, wanted: RequestSpec) -> Answer | Failure:
        """One streamed answer."""
        ...

    def count(self, text: str) -> int:
        """Tokens of a text."""
        ...

    def clock(self) -> float:
        """Seconds."""
        ...


def parse_boot_reading(text: str) -> BootReading | None:
    """What a host has kept; None where that is not what we write."""
    if len(text) > MOST_TEXT:
        return None
    try:
        return BootReading.model_validate_json(text)
    except ValidationError:
        return None


def read_cells(
    servers: RestartServers,
    asked: Sequence[Condition],
    seconds: float,
    enough: Callable[[tuple[CellReading, ...]], bool] = lambda _: False,
) -> tuple[CellReading, ...]:
    """Measure a server: start after start until it is enough, the next would not fit, or there are MOST of them.

    Cells of which nothing counts are left out. Raises UserError.
    """
    began, longest, text = servers.clock(), 0.0, ""
    runs: list[list[Run]] = [[] for _ in asked]
    for start in range(MOST_STARTS):
        at = servers.clock()
        if start and at - began + longest > seconds:
            break
        try:
            servers.start("A")
            if not text and (tokens := long_tokens(asked)):
                text = long_text_of(tokens, servers.count)
            for wanted in block_requests(asked, text, start):
                run = _run(servers, wanted, asked, began, start)
                if wanted.cell is not None and run:
                    runs[wanted.cell].append(run)
        finally:
            servers.stop()
        longest = max(longest, servers.clock() - at)
        if start + 1 >= FEWEST_STARTS and enough(_cells(asked, runs)):
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


def is_conclusive(rows: Sequence[GateRow], cells: int) -> bool:
    """Whether more starts would tell nothing that decides: one is slower, or all are held."""
    return any(row.verdict == "slower" for row in rows) or sum(row.verdict == "held" for row in rows) == cells


def _run(
    servers: RestartServers, wanted: RequestSpec, asked: Sequence[Condition], began: float, start: int
) -> Run | None:
    at = servers.clock() - began
    answer = servers.ask(wanted)
    if isinstance(answer, Failure):
        if answer.why != "empty":
            raise UserError(f"it gave no answer: {answer.message}", answer.help)
        return None
    if wanted.cell is None:
        return None
    run = run_from_answer(answer, asked[wanted.cell], at=at, start=start)
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


@dataclass(frozen=True)
class BootSide:
    """A server of `plan`, which is what its host serves, on one side of a boot. `say` tells people how it goes.

    `aside` keeps new requests off it meanwhile.
    """

    plan: Plan
    name: str
    gate: GatePlan
    connect: Connect
    who: str
    say: Callable[[str], None]
    aside: Callable[[], AbstractContextManager[object]]

    def before(self) -> ServerReading:
        """How fast it is now. Raises UserError, UnreadableKeyError."""
        cells = self._cells(lambda _: False)
        if not cells:
            raise UserError("none of its answers counts", "`herd bench` says why")
        return ServerReading(instance=self.name, spec=self._serves.spec, cells=cells)

    def since(self, before: ServerReading) -> tuple[GateRow, ...]:
        """How fast it is now beside before. Raises UserError, UnreadableKeyError."""
        many = len(before.cells)
        cells = self._cells(lambda found: is_conclusive(boot_rows(before, found, self.gate), many))
        return boot_rows(before, cells, self.gate, spent=True)

    @property
    def _serves(self) -> InstancePlan:
        return next(each for each in self.plan.instances if each.name == self.name)

    def _cells(self, enough: Callable[[tuple[CellReading, ...]], bool]) -> tuple[CellReading, ...]:
        serves, seconds = self._serves, self.gate.seconds / 2
        arm = Arm(
            "A", f"what serves as {self.name}", server_at_port(serves, self.name, arms_port(self.plan, self.name))
        )
        asked = trial_conditions(gate_cells(self.gate), serves.context // max(1, serves.endpoint.streams))
        self.say(
            f"{self.name}: it is measured for {show_seconds(seconds)} at most; "
            "it is stopped meanwhile, and comes back whatever ends this"
        )
        key = read_key(serves.endpoint.key) if serves.endpoint.key else None
        given = arms_input((arm,), (serves,), seconds, self.who)
        with ArmsHost(self.connect, given, {"A": arm}, {"A": key}, token_hex(6), self.aside()) as host:
            return read_cells(host, asked, seconds, enough)
