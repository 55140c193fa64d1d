"""Evaluate one candidate on its host: start it as its own unit, measure it, stop it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Protocol

from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.host.ssh import RemoteError
from llamaherd.measure.client.http_client import Answer, Failure
from llamaherd.measure.client.requests import RequestSpec, ended_early, run_from_answer
from llamaherd.measure.client.suite import long_text_of
from llamaherd.measure.results.metrics import DECODE, PREFILL
from llamaherd.measure.results.result import Condition, Run, Start, Telemetry
from llamaherd.measure.statistics import rate
from llamaherd.measure.trials.trial import NotStartedError, is_out_of_memory
from llamaherd.measure.trials.units import Arm, ArmName
from llamaherd.measure.tune.candidate import Candidate, Why
from llamaherd.measure.tune.journal import Deep, Trial, keys_of
from llamaherd.measure.tune.objective import FIRST_SIZES, Figures, Objective, Probe, Sizes, figures_of

_ABOUT = 32
"""Tokens around the long text, by its beginning and the chat template."""
_LETTERS = 300
_APART = 1000
"""Beginnings of answers that are no candidate's: no cache knows them when its rounds begin."""
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

    def ask(self, wanted: RequestSpec, /) -> Answer | Failure:
        """One streamed answer of the one that runs."""
        ...

    def count(self, text: str, /) -> int:
        """Tokens of a text."""
        ...

    def clock(self) -> float:
        """Seconds."""
        ...


class Gauge(Protocol):
    """What tells the energy that the GPUs of a server take."""

    def begin(self) -> float:
        """The time; energy is counted from now on."""
        ...

    def end(self, begin: float, /) -> Telemetry | None:
        """What was taken from then until now."""
        ...

    def rest(self, seconds: float, /) -> Telemetry | None:
        """What is taken while nothing is asked."""
        ...


class NoAnswerError(Exception):
    """It does not answer any more."""


@dataclass
class Evaluation:
    """What candidates are asked. `gauge` watches the GPUs of one, where energy is what counts.

    `climb` has the one that runs read a prompt as long as it is told, and write there: runs of either.
    """

    servers: Servers
    arm_of: MakeArm
    aim: Objective
    context: int
    drafts: Callable[[Candidate], bool]
    longest: int
    sizes: Sizes | None = None
    load: float | None = None
    gauge: Callable[[Arm], AbstractContextManager[Gauge]] | None = None
    climb: Callable[[int], Sequence[Run]] | None = None
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
            with self.gauge(arm) if self.gauge else nullcontext() as gauge:
                return self._asked(candidate, start, rounds, worth, gauge)
        except NotStartedError as error:
            return _failed(candidate, "memory" if is_out_of_memory(error.says) else "load", error.says)
        except NoAnswerError as error:
            return _failed(candidate, "answer", str(error))
        finally:
            self.servers.stop()

    def deep(self, candidate: Candidate, depth: int) -> Deep:
        """What a candidate does at a depth, in one start."""
        began = self.servers.clock()
        found = self._deep(candidate, depth)
        return found.model_copy(update={"seconds": round(self.servers.clock() - began, 3)})

    def _deep(self, candidate: Candidate, depth: int) -> Deep:
        assert self.climb
        keys = keys_of(candidate)
        self.servers.place(self.arm_of(candidate, None), self.longest)
        try:
            self.servers.start("C")
            runs = [run for run in self.climb(depth) if not run.excluded]
        except RemoteError:
            raise
        except UserError as error:
            says = error.says if isinstance(error, NotStartedError) else error.message
            return Deep(keys=keys, depth=depth, says=says[:_LETTERS])
        finally:
            self.servers.stop()
        read = [sample for run in runs if run.prompt_n and (sample := PREFILL.of(run))]
        decode = tuple(sample.rate for run in runs if (sample := DECODE.of(run)))
        says = "" if read and decode else "its answers did not count"
        return Deep(keys=keys, depth=depth, prefill=rate(read) if read else None, decode=decode, says=says)

    def _asked(
        self, candidate: Candidate, start: Start, rounds: int, worth: Callable[[Trial], bool], gauge: Gauge | None
    ) -> Trial:
        probe = self._probe()
        self._ask(probe.warm_up())
        runs: list[tuple[int, Run]] = []
        totals: list[float] = []
        trial = Trial(keys=keys_of(candidate))
        for number in range(rounds):
            if self.aim.purpose == "throughput":
                totals.append(self._at_once(probe, number))
            runs += self._round(probe, number, gauge)
            total = sum(totals) / len(totals) if totals else None
            figures = figures_of(self.aim, runs, start.ready_seconds, total)
            trial = trial.model_copy(update={"figures": figures})
            if number == 0 and not worth(trial):
                break
        if self.aim.score(trial.figures) is None:
            untold = "its GPUs told no energy" if self.aim.of_energy else "it told no times"
            says = next((run.excluded for _, run in runs if run.excluded), untold)
            return trial.model_copy(update={"why": "answer", "says": says})
        if self.drafts(candidate) and trial.figures.accepted is None:
            return trial.model_copy(update={"why": "draft", "says": "it was told to draft, and does not"})
        return trial

    def under(self, sizes: Sizes, number: int, salts: int, gauge: Gauge) -> Figures:
        """What the server that runs does in a round, and what its GPUs take: every figure that an aim may hang on.

        `salts` numbers the beginnings: no two calls for one server may have the same.
        """
        if self.aim.purpose == "throughput":
            began, at = gauge.begin(), self.servers.clock()
            total = self._at_once(Probe(self.aim, sizes, ""), number, salts)
            seconds, took = self.servers.clock() - at, gauge.end(began)
            joules = took.joules / (total * seconds) if took and took.joules and total else None
            return Figures(total=total or None, together=joules)
        aim = Objective(purpose="efficiency")
        if not self._text:
            self._text = long_text_of(sizes.read - _ABOUT, self.servers.count)
        return figures_of(aim, self._round(Probe(aim, sizes, self._text), number, gauge, salts), None)

    def _round(self, probe: Probe, number: int, gauge: Gauge | None, salts: int | None = None) -> list[tuple[int, Run]]:
        """All requests of a round. Those of one cell share their energy, each by its tokens."""
        conditions = probe.conditions()
        found: list[tuple[int, Run]] = []
        for cell, asks in groupby(probe.asks(number, salts), key=lambda ask: ask.cell):
            assert cell is not None
            began = gauge.begin() if gauge else 0.0
            runs = [self._ask(ask, conditions[cell]) for ask in asks]
            took = gauge.end(began) if gauge else None
            found += [(cell, run) for run in _with_joules(runs, took)]
        return found

    def _at_once(self, probe: Probe, number: int, salts: int | None = None) -> float:
        """Tokens a second of as many requests as it has streams."""
        streams = self.aim.streams
        first = (number if salts is None else salts) * streams
        turns = range(streams)
        asks = [ask for turn in turns for ask in probe.asks(number * streams + turn, first + turn)][:streams]
        began = self.servers.clock()
        with ThreadPoolExecutor(len(asks)) as pool:
            runs = list(pool.map(self._ask, asks))
        return sum(run.predicted_n or 0 for run in runs) / max(1e-6, self.servers.clock() - began)

    def _ask(self, ask: RequestSpec, condition: Condition | None = None) -> Run:
        answer = self.servers.ask(ask)
        if isinstance(answer, Failure):
            if answer.why != "empty":
                raise NoAnswerError(answer.message[:_LETTERS])
            return Run(excluded=answer.message)
        return run_from_answer(answer, condition or Condition(kind="code"), at=0.0)

    def _probe(self) -> Probe:
        """The requests for every candidate; how long they are is by the first server that runs."""
        if self.sizes is None:
            self.sizes = self._sized()
        if self.aim.reads and not self._text:
            self._text = long_text_of(self.sizes.read - _ABOUT, self.servers.count)
        return Probe(self.aim, self.sizes, self._text)

    def _sized(self) -> Sizes:
        text = long_text_of(FIRST_SIZES.read - _ABOUT, self.servers.count)
        probe = Probe(Objective(), FIRST_SIZES, text)
        self._ask(probe.warm_up())
        figures = figures_of(Objective(), self._round(probe, 0, None), None)
        decode = min(figures.decode.values(), default=0.0)
        sizes = Sizes.of(decode, figures.prefill or 0.0, self.context, energy=self.aim.of_energy)
        return replace(sizes, past_end=sizes.past_end or self._ends_early(sizes))

    def _ends_early(self, sizes: Sizes) -> bool:
        """Whether the answer of a kind of text ends before it is long enough."""
        probe = Probe(self.aim, sizes, "")
        answers = zip(probe.conditions(), probe.asks(0, salts=_APART), strict=False)
        written = [(condition, ask) for condition, ask in answers if condition.generated]
        return any(ended_early(self._ask(ask, condition), condition) for condition, ask in written)


def _with_joules(runs: list[Run], took: Telemetry | None) -> Iterable[Run]:
    """Runs with what GPUs took for each: of all, its share of the tokens."""
    whole = sum(map(_tokens, runs))
    if took is None or took.joules is None or not whole:
        return runs
    return [run.model_copy(update={"joules": took.joules * _tokens(run) / whole}) for run in runs]


def _tokens(run: Run) -> int:
    return (run.prompt_n or 0) + (run.predicted_n or 0)


def _failed(candidate: Candidate, why: Why, says: str) -> Trial:
    return Trial(keys=keys_of(candidate), why=why, says=says[:_LETTERS])
