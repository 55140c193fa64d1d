"""A and B measured in blocks until enough is known, or the time is up: in each block both are started once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from llamaherd.bench.arms.cells import asks, long_tokens, not_known
from llamaherd.bench.arms.units import ArmName
from llamaherd.bench.asking.client import Answer, Failure
from llamaherd.bench.asking.runs import run_of
from llamaherd.bench.asking.suite import long_text_of
from llamaherd.bench.comparing.compare import Comparison, compare
from llamaherd.bench.results.result import Condition, Run, Start
from llamaherd.bench.results.store import Journal
from llamaherd.bench.schedule import Ask
from llamaherd.bench.statistics.blocks import orders
from llamaherd.diagnostics.findings import UserError

Ended = Literal["known", "spent"]


class Servers(Protocol):
    """What starts arms, one at a time, and asks the one that runs."""

    def start(self, name: ArmName) -> Start:
        """Start an arm; it answers by then. Raises UserError."""
        ...

    def stop(self) -> None:
        """Stop whichever runs."""
        ...

    def ask(self, wanted: Ask) -> Answer | Failure:
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


@dataclass
class Blocks:
    """A comparison in blocks. `session` decides who comes first in each; `budget` is seconds."""

    servers: Servers
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
        order = orders(self.session, block + 1)[block]
        for name in order:
            self._arm("A" if name == "A" else "B", block)
        seconds = self.servers.clock() - began
        found = self._compared()
        self.tell(BlockDone(block, order, seconds, found, self._left(found)))
        return seconds

    def _left(self, found: Comparison) -> int:
        return self.left(found) if self.left else len(not_known(found, self.conditions))

    def _arm(self, name: ArmName, block: int) -> None:
        journal, servers = self.journals[name], self.servers
        try:
            journal.add_start(servers.start(name))
            for ask in asks(self.conditions, self._text(name), block):
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
        return run_of(answer, condition, at=at, start=start, block=block)

    def _text(self, name: ArmName) -> str:
        """The long text, as an arm's own tokenizer counts it."""
        tokens = long_tokens(self.conditions)
        if tokens and name not in self._long:
            self._long[name] = long_text_of(tokens, self.servers.count)
        return self._long.get(name, "")

    def _compared(self) -> Comparison:
        return compare(self.journals["A"].result, self.journals["B"].result)
