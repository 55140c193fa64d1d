"""Measure A and B in blocks until each verdict is conclusive or the budget is spent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.bench.quick import ANSWERED
from llamaherd.measure.client.http_client import Answer, Failure
from llamaherd.measure.client.requests import RequestSpec, run_from_answer
from llamaherd.measure.client.suite import KINDS, long_text_of, suite
from llamaherd.measure.results.comparison import Comparison, ComparisonRow, compare_results
from llamaherd.measure.results.metrics import DECODE, PREFILL, STEP, Metric
from llamaherd.measure.results.result import Condition, Run, Start
from llamaherd.measure.results.store import Journal
from llamaherd.measure.statistics import block_orders
from llamaherd.measure.trials.pair import JournalPair
from llamaherd.measure.trials.trial import Trial, TrialHost
from llamaherd.measure.trials.units import ArmName
from llamaherd.text.numbers import show_seconds

PREFILL_CELL = "prefill"
TRIAL_CELLS = (*KINDS, PREFILL_CELL)
CELL_RUNS = 3
"""Requests under each condition, at each start."""

TOKENS, PROMPT = 128, 1024
"""Of an answer, and of the long prompt: short ones, as starts tell more than requests."""
_WARM_TOKENS, _ABOUT = 32, 32
"""Of an answer while it warms up; and around the long text, by its beginning and the chat template."""
_SEED = 7


def trial_conditions(names: Sequence[str], context: int) -> tuple[Condition, ...]:
    """The cells of these names, for servers whose every request has so much context."""
    prompt = max(_ABOUT * 2, min(PROMPT, context // 2))
    long = Condition(kind="long", prompt=prompt, cache="cold", sampling="instance")
    cells: dict[str, Condition] = {PREFILL_CELL: long}
    for each in KINDS:
        cells[each] = Condition(kind=each, generated=TOKENS, cache="cold", sampling="instance")
    return tuple(cells[name] for name in dict.fromkeys(names))


def long_tokens(asked: Sequence[Condition]) -> int | None:
    """How many tokens the long text is to have; None where none is asked for."""
    return next((each.prompt - _ABOUT for each in asked if each.prompt), None)


def block_requests(asked: Sequence[Condition], long: str, block: int) -> Iterator[RequestSpec]:
    """What an arm is asked in a block, in order: first what warms it up, then all cells in turn."""
    first = block * (CELL_RUNS + 1)
    for each in asked:
        yield _request(None, each, 0, long, first, min(each.generated or ANSWERED, _WARM_TOKENS))
    for number in range(CELL_RUNS):
        for cell, each in enumerate(asked):
            yield _request(cell, each, number, long, first + 1 + number, each.generated or ANSWERED)


def _request(cell: int | None, condition: Condition, number: int, long: str, salt: int, tokens: int) -> RequestSpec:
    prompts = suite().prompts.get(condition.kind)
    text = prompts[number % len(prompts)].text if prompts else long
    return RequestSpec(cell, text, tokens, salt=salt, more={"seed": _SEED + number})


def inconclusive_cells(found: Comparison, asked: Sequence[Condition]) -> tuple[ComparisonRow | Condition, ...]:
    """What has no verdict yet: rows that are to have one, and conditions of which there is no row."""
    rows = {each: _judged(found.rows, each) for each in asked}
    missing = tuple(each for each in asked if not rows[each])
    return (*missing, *(row for of in rows.values() for row in of if _open(row)))


def _judged(rows: Sequence[ComparisonRow], condition: Condition) -> list[ComparisonRow]:
    """Of a prompt its prefill; of an answer how fast it comes, and how long a step takes where drafts are made."""
    counts: tuple[Metric, ...] = (PREFILL,) if condition.prompt else (DECODE, STEP)
    return [row for row in rows if row.condition == condition and row.metric in counts]


def _open(row: ComparisonRow) -> bool:
    return row.judgement is None or row.judgement.verdict == "not known yet"


Ended = Literal["known", "spent"]


class TrialServers(Protocol):
    """What starts arms, one at a time, and asks the one that runs."""

    def start(self, name: ArmName) -> Start:
        """Start an arm; it answers by then. Raises UserError."""
        ...

    def stop(self) -> None:
        """Stop whichever runs."""
        ...

    def ask(self, wanted: RequestSpec) -> Answer | Failure:
        """One streamed answer of the one that runs."""
        ...

    def count(self, text: str) -> int:
        """Tokens of a text."""
        ...

    def clock(self) -> float:
        """Seconds."""
        ...


@dataclass(frozen=True)
class BlockDone:
    """A block, for whoever waits: its number, who came first, how long it took, and what is known by now."""

    number: int
    order: str
    seconds: float
    so_far: Comparison
    left: int

    def __str__(self) -> str:
        known = "all is known" if not self.left else f"{self.left} not known yet"
        return f"block {self.number + 1}, {' then '.join(self.order)}: {show_seconds(self.seconds)}; {known}"


@dataclass
class Blocks:
    """A comparison in blocks. `session` decides who comes first in each; `budget` is seconds."""

    servers: TrialServers
    journals: Mapping[ArmName, Journal]
    conditions: Sequence[Condition]
    session: str
    budget: float
    tell: Callable[[BlockDone], None] = lambda _: None
    left: Callable[[Comparison], int] | None = None
    """How much is not known yet, where that is another question than whether one is faster."""

    def measured(self) -> Ended:
        """Measure until all that was to be known is, or the next block would not fit. Raises UserError."""
        self._began = self.servers.clock()
        self._long: dict[ArmName, str] = {}
        block, longest = self._next(), 0.0
        while True:
            if block and not self._left(self._compared()):
                return "known"
            if longest and self.servers.clock() - self._began + longest > self.budget:
                return "spent"
            longest = max(longest, self._block(block))
            block += 1

    def _next(self) -> int:
        """How many there are, also of a run that was cut off: one that is not whole counts as far as both have it."""
        cells = [cell for each in self.journals.values() for cell in each.result.cells]
        return 1 + max((run.block for cell in cells for run in cell.runs if run.block is not None), default=-1)

    def _block(self, block: int) -> float:
        began = self.servers.clock()
        order = block_orders(self.session, block + 1)[block]
        for name in order:
            self._arm("A" if name == "A" else "B", block)
        seconds = self.servers.clock() - began
        found = self._compared()
        self.tell(BlockDone(block, order, seconds, found, self._left(found)))
        return seconds

    def _left(self, found: Comparison) -> int:
        return self.left(found) if self.left else len(inconclusive_cells(found, self.conditions))

    def _arm(self, name: ArmName, block: int) -> None:
        journal, servers = self.journals[name], self.servers
        try:
            journal.add_start(servers.start(name))
            for ask in block_requests(self.conditions, self._text(name), block):
                at = servers.clock() - self._began
                answer = servers.ask(ask)
                if isinstance(answer, Failure) and answer.why != "empty":
                    raise UserError(f"arm {name} gave no answer: {answer.message}", answer.help)
                if ask.cell is not None:
                    journal.add_run(ask.cell, self._run(journal, answer, self.conditions[ask.cell], at, block))
        finally:
            servers.stop()

    def _run(self, journal: Journal, answer: Answer | Failure, condition: Condition, at: float, block: int) -> Run:
        start = len(journal.result.starts) - 1
        if isinstance(answer, Failure):
            return Run(at=round(at, 3), start=start, block=block, excluded=answer.message)
        return run_from_answer(answer, condition, at=at, start=start, block=block)

    def _text(self, name: ArmName) -> str:
        """The long text, as an arm's own tokenizer counts it."""
        tokens = long_tokens(self.conditions)
        if tokens and name not in self._long:
            self._long[name] = long_text_of(tokens, self.servers.count)
        return self._long.get(name, "")

    def _compared(self) -> Comparison:
        return compare_results(self.journals["A"].result, self.journals["B"].result)


def run_blocks(
    trial: Trial,
    pair: JournalPair,
    conditions: Sequence[Condition],
    left: Callable[[Comparison], int] | None = None,
) -> Ended:
    """Run a trial of A and B in blocks, and report each block. Raise UserError."""

    def tell(done: BlockDone) -> None:
        trial.say(str(done))

    with TrialHost(trial, pair.session) as host:
        return Blocks(host, pair.journals, conditions, pair.session, trial.seconds, tell, left).measured()
