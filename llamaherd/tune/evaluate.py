"""One candidate on its host: started as a unit of its own, asked, stopped. What came of it is a trial."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from llamaherd.bench.arms.host import NotStartedError
from llamaherd.bench.arms.units import Arm, ArmName
from llamaherd.bench.asking.client import Answer, Failure
from llamaherd.bench.asking.runs import run_of
from llamaherd.bench.asking.suite import long_text_of
from llamaherd.bench.results.result import Condition, Run, Start
from llamaherd.bench.schedule import Ask
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.tune.aim import Aim
from llamaherd.tune.candidate import Candidate
from llamaherd.tune.journal import Trial, keys_of
from llamaherd.tune.probe import FIRST, Probe, Sizes, figures_of
from llamaherd.tune.trials import Why

_ABOUT = 32
"""Tokens around the long text, by its beginning and the chat template."""
_LETTERS = 300
_MEMORY = re.compile(r"out of memory|for want of RAM|failed to allocate|unable to allocate|cudaMalloc|bad_alloc", re.I)
_LEAST_LOAD, _LOADS = 30, 5
"""Seconds, and how many times as long as the declared one, that a candidate may take to load."""

MakeArm = Callable[[Candidate, int | None], Arm]


class Servers(Protocol):
    """What starts candidates, one at a time, and asks the one that runs."""

    def place(self, arm: Arm, longest: int, /) -> None:
        """Put a candidate in the place of the one before."""
        ...

    def start(self, name: ArmName, /) -> Start:
        """Start it; it answers by then. Raises NotStartedError."""
        ...

    def stop(self) -> None:
        """Stop whichever runs."""
        ...

    def ask(self, wanted: Ask, /) -> Answer | Failure:
        """One streamed answer of the one that runs."""
        ...

    def count(self, text: str, /) -> int:
        """Tokens of a text."""
        ...

    def clock(self) -> float:
        """Seconds."""
        ...


class _NoAnswerError(Exception):
    """It does not answer any more."""


@dataclass
class Evaluation:
    """What candidates are asked. `enough` tells after a round whether a second one is worth it."""

    servers: Servers
    arm_of: MakeArm
    aim: Aim
    context: int
    drafts: Callable[[Candidate], bool]
    longest: int
    sizes: Sizes | None = None
    load: float | None = None
    _text: str = field(default="", init=False)

    def measured(self, candidate: Candidate, rounds: int, worth: Callable[[Trial], bool] = lambda _: True) -> Trial:
        """What comes of a candidate in so many rounds of requests, one where that is not `worth` a second."""
        began = self.servers.clock()
        trial = self._tried(candidate, rounds, worth)
        return trial.model_copy(update={"seconds": round(self.servers.clock() - began, 3)})

    def _tried(self, candidate: Candidate, rounds: int, worth: Callable[[Trial], bool]) -> Trial:
        try:
            arm = self.arm_of(candidate, None if self.load is None else max(_LEAST_LOAD, round(_LOADS * self.load)))
        except InventoryError as error:
            return _failed(candidate, "load", "; ".join(each.message for each in error.findings))
        except UserError as error:
            return _failed(candidate, "load", error.message)
        self.servers.place(arm, self.longest)
        try:
            start = self.servers.start("C")
            self.load = self.load or start.ready_seconds or None
            return self._asked(candidate, start, rounds, worth)
        except NotStartedError as error:
            return _failed(candidate, "memory" if _MEMORY.search(error.says) else "load", error.says)
        except _NoAnswerError as error:
            return _failed(candidate, "answer", str(error))
        finally:
            self.servers.stop()

    def _asked(self, candidate: Candidate, start: Start, rounds: int, worth: Callable[[Trial], bool]) -> Trial:
        probe = self._probe()
        self._ask(probe.warm_up())
        runs: list[tuple[int, Run]] = []
        totals: list[float] = []
        trial = Trial(keys=keys_of(candidate))
        for number in range(rounds):
            if self.aim.purpose == "throughput":
                totals.append(self._at_once(probe, number))
            runs += self._round(probe, number)
            total = sum(totals) / len(totals) if totals else None
            figures = figures_of(self.aim, runs, start.ready_seconds, total)
            trial = trial.model_copy(update={"figures": figures})
            if number == 0 and not worth(trial):
                break
        if self.aim.score(trial.figures) is None:
            says = next((run.excluded for _, run in runs if run.excluded), "it told no times")
            return trial.model_copy(update={"why": "answer", "says": says})
        if self.drafts(candidate) and trial.figures.accepted is None:
            return trial.model_copy(update={"why": "draft", "says": "it was told to draft, and does not"})
        return trial

    def _round(self, probe: Probe, number: int) -> list[tuple[int, Run]]:
        conditions = probe.conditions()
        found = []
        for ask in probe.asks(number):
            assert ask.cell is not None
            found.append((ask.cell, self._ask(ask, conditions[ask.cell])))
        return found

    def _at_once(self, probe: Probe, number: int) -> float:
        """Tokens a second of as many requests as it has streams."""
        asks = [ask for turn in range(self.aim.streams) for ask in probe.asks(number * self.aim.streams + turn)]
        asks = asks[: self.aim.streams]
        began = self.servers.clock()
        with ThreadPoolExecutor(len(asks)) as pool:
            runs = list(pool.map(self._ask, asks))
        return sum(run.predicted_n or 0 for run in runs) / max(1e-6, self.servers.clock() - began)

    def _ask(self, ask: Ask, condition: Condition | None = None) -> Run:
        answer = self.servers.ask(ask)
        if isinstance(answer, Failure):
            if answer.why != "empty":
                raise _NoAnswerError(answer.message[:_LETTERS])
            return Run(excluded=answer.message)
        return run_of(answer, condition or Condition(kind="code"), at=0.0)

    def _probe(self) -> Probe:
        """The requests for every candidate; how long they are is by the first server that runs."""
        if self.sizes is None:
            self.sizes = self._sized()
        if self.aim.reads and not self._text:
            self._text = long_text_of(self.sizes.read - _ABOUT, self.servers.count)
        return Probe(self.aim, self.sizes, self._text)

    def _sized(self) -> Sizes:
        text = long_text_of(FIRST.read - _ABOUT, self.servers.count)
        probe = Probe(Aim(), FIRST, text)
        self._ask(probe.warm_up())
        figures = figures_of(Aim(), self._round(probe, 0), None)
        decode = min(figures.decode.values(), default=0.0)
        return Sizes.of(decode, figures.prefill or 0.0, self.context)


def _failed(candidate: Candidate, why: Why, says: str) -> Trial:
    return Trial(keys=keys_of(candidate), why=why, says=says[:_LETTERS])
