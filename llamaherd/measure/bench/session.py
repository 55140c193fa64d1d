"""Warm up a server, run the steps of each series, and save each run at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.ssh import RemoteError
from llamaherd.measure.bench.job import Job, ProgressReporter, Workload, WorkloadContext, approximate_text, seconds_left
from llamaherd.measure.client.http_client import Answer, Failure
from llamaherd.measure.client.requests import (
    MOST_CACHE_BUSTERS,
    Requests,
    RequestSpec,
    Series,
    SeriesProgress,
    Served,
    Step,
    run_from_answer,
    suite,
)
from llamaherd.measure.meter.meter import Meter, Watch, obstacles, with_telemetry
from llamaherd.measure.meter.usage import combined_telemetry
from llamaherd.measure.results.metrics import DECODE
from llamaherd.measure.results.result import Cell, Condition, Run, Telemetry
from llamaherd.measure.results.store import Journal
from llamaherd.text.numbers import utc_stamp

_TOKENS, _FEWEST, _MOST_ASKED = 48, 2, 6
_STEADY = 0.03
"""The share within which two successive requests must agree."""
_SHARE = 0.15
"""The share of the time that warming up may take."""
_CONDITION = Condition(kind="prose")


@dataclass(frozen=True)
class WarmUp:
    """How many requests it took, and about how fast the server is: tokens per second."""

    requests: int
    decode: float | None
    prefill: float | None


def warm_up(requests: Requests, seconds: float) -> WarmUp:
    """Send requests until two successive ones agree, or a share of the time is over. Raise UserError if one fails."""
    until, runs = time.monotonic() + _SHARE * seconds, list[Run]()
    while len(runs) < _FEWEST or (len(runs) < _MOST_ASKED and time.monotonic() < until and not _steady(runs)):
        prompts = suite().prompts["prose"]
        # The last numbers of all: those that count begin at 0.
        wanted = RequestSpec(
            None, prompts[len(runs) % len(prompts)].text, _TOKENS, salt=MOST_CACHE_BUSTERS - 1 - len(runs)
        )
        answer = requests.send(wanted, seconds)
        if isinstance(answer, Failure):
            raise UserError(answer.message, answer.help)
        runs.append(run_from_answer(answer, _CONDITION, at=0.0))
        if time.monotonic() > until and len(runs) == 1:
            break
    last = runs[-1]
    decode = DECODE.of(last)
    prefill = last.prompt_n / last.prompt_ms * 1000 if last.prompt_n and last.prompt_ms else None
    return WarmUp(len(runs), decode.rate if decode else None, prefill)


def warm_up_inputs(requests: Requests, request: Callable[[int], RequestSpec], seconds: float) -> WarmUp:
    """Send inputs of embeddings or rerank until two successive ones are equally fast. Raise UserError if one fails."""
    until, rates = time.monotonic() + _SHARE * seconds, list[float]()
    while len(rates) < _FEWEST or (
        len(rates) < _MOST_ASKED and time.monotonic() < until and abs(rates[-1] / rates[-2] - 1) >= _STEADY
    ):
        answer = requests.send(request(len(rates)), seconds)
        if isinstance(answer, Failure):
            raise UserError(answer.message, answer.help)
        tokens = answer.usage.prompt if answer.usage else None
        rates.append(1000 * (tokens or 1) / max(answer.total_ms, 0.001))
        if time.monotonic() > until and len(rates) == 1:
            break
    return WarmUp(len(rates), None, rates[-1])


def _steady(runs: list[Run]) -> bool:
    before, last = (DECODE.of(run) for run in runs[-2:])
    return before is not None and last is not None and abs(last.rate / before.rate - 1) < _STEADY


_LOOK_EVERY = 20.0
"""Seconds between two inspections for other programs."""
_SEE = "see `herd verify` and the server's log"
_OTHERS = ("busy", "gpu-shared", "host-busy")
"""The obstacles that other programs may cause meanwhile."""


class Session:
    """One program's part of a measurement. `took` is the telemetry by cell, `began` when the first step did."""

    def __init__(
        self,
        job: Job,
        requests: Requests,
        watch: Watch,
        meter: Meter,
        journal: Journal,
        reporter: ProgressReporter,
        until: float,
        overruled: Sequence[str] = (),
        hold: Callable[[int | None], None] | None = None,
    ) -> None:
        """Prepare; `hold` sets the power limit of each GPU, or with None restores it."""
        self.began = time.monotonic()
        self.took: dict[int, list[Telemetry]] = {}
        self._job, self._requests, self._watch, self._meter = job, requests, watch, meter
        self._journal, self._reporter, self._until = journal, reporter, until
        self._minded = tuple(code for code in _OTHERS if code not in overruled)
        self._hold = hold
        self._held: int | None = None
        self._steps = 0
        self._start = max(0, len(journal.result.starts) - 1)
        self._epoch = datetime.fromisoformat(journal.result.began).timestamp()
        self._places = {cell.condition: number for number, cell in enumerate(journal.result.cells)}
        self._looked, self._since_look = time.monotonic(), list[tuple[int, int]]()

    def run(self, series: Sequence[Series]) -> None:
        """Run all series to their end. Raise UserError if the server or its host does not respond any more."""
        try:
            for each in series:
                self._run(each)
            self._hold_to(None)
            self._look_around()
        except RemoteError as error:
            raise self._ended(error.message, error.help) from None

    def _run(self, series: Series) -> None:
        while step := series.next_step(so_far := self._so_far(series)):
            self._reporter.progress(series.share_done(so_far), max(0.0, so_far.seconds_left), step.about)
            self._do(series, step)
            if time.monotonic() - self._looked > _LOOK_EVERY:
                self._look_around()

    def run_workload(
        self, workload: Workload, served: Served, text_of: Callable[[int], str] = approximate_text
    ) -> None:
        """Run a workload, and inspect the host afterwards. Raise UserError if the server does not respond any more."""
        context = WorkloadContext(served, self._requests.salts, lambda: time.time() - self._epoch, text_of)
        began = time.monotonic()
        try:
            for cell, run in workload.runs(context):
                condition = workload.conditions[cell]
                share = (cell + 1) / len(workload.conditions)
                left = seconds_left(share, time.monotonic() - began)
                self._reporter.progress(share, left, f"{workload.name}: {condition}")
                if not self._watch.server_is_there:
                    raise UserError(self._gone, _SEE)
                number = self._places[condition]
                self._since_look.append((number, len(self._journal.result.cells[number].runs)))
                self._journal.add_run(number, run.model_copy(update={"start": self._start}))
                if workload.one_by_one and time.monotonic() - self._looked > _LOOK_EVERY:
                    self._look_around()
            self._look_around()
        except UserError as error:
            raise self._ended(error.message, error.help) from None

    def _so_far(self, series: Series) -> SeriesProgress:
        cells = tuple(self._cell(condition) for condition in series.conditions)
        return SeriesProgress(cells, self._until - time.monotonic(), self._steps)

    def _cell(self, condition: Condition) -> Cell:
        return self._journal.result.cells[self._places[condition]]

    def _do(self, series: Series, step: Step) -> None:
        self._steps += 1
        self._hold_to(step.watts)
        if step.rest:
            time.sleep(step.rest)
        for ask in step.asks:
            began = self._watch.begin()
            at = time.time() - self._epoch
            answer = self._requests.send(ask, self._until - time.monotonic())
            took = self._watch.end(began)
            condition = None if ask.cell is None else series.conditions[ask.cell]
            self._keep(condition, answer, at, took)
            if took and condition is not None:
                self.took.setdefault(self._places[condition], []).append(took)

    def _hold_to(self, watts: int | None) -> None:
        """Set the power limit of each GPU. Raise UserError if that fails."""
        if watts == self._held or self._hold is None:
            return
        try:
            self._hold(watts)
        except UserError as error:
            raise self._ended(error.message, error.help) from None
        self._held = watts

    def _keep(self, condition: Condition | None, answer: Answer | Failure, at: float, took: Telemetry | None) -> None:
        """Add a run to the journal. Raise UserError if the server failed, or was restarted."""
        if not self._watch.server_is_there:
            raise self._ended(self._gone)
        if isinstance(answer, Failure) and answer.why != "empty":
            raise self._ended(answer.message, answer.help)
        if condition is None:
            return
        run = run_from_answer(answer, condition, at=at, start=self._start)
        if isinstance(answer, Answer):
            run = with_telemetry(run, took)
        number = self._places[condition]
        self._since_look.append((number, len(self._journal.result.cells[number].runs)))
        self._journal.add_run(number, run)

    @property
    def _gone(self) -> str:
        """The message that the measured server ended."""
        if self._job.group is None:
            return "the server ended, or was restarted, while it was measured"
        other = f"another model of group {self._job.group.name} was requested"
        return f"{other}, or the server ended, while {self._job.instance.name} was measured"

    def _ended(self, message: str, help_: str = _SEE) -> UserError:
        return UserError(f"{message}; the measurements so far are kept in {self._journal.path}", help_)

    def _look_around(self) -> None:
        """Inspect the host, and exclude the runs since the last inspection if other programs or clients are there."""
        found = obstacles(self._meter.look(), self._job.plan, self._job.instance)
        in_the_way = [each for each in found if each.code in self._minded]
        for each in in_the_way:
            self._reporter.say(f"{each.code}: {each.message}")
        if in_the_way:
            for cell, number in self._since_look:
                self._journal.exclude(cell, number, f"meanwhile {in_the_way[0].message}")
        self._looked, self._since_look = time.monotonic(), []

    def telemetry_of(self, cell: int) -> Telemetry | None:
        """Return the combined telemetry of a cell's runs."""
        return combined_telemetry(self.took.get(cell, []))


def utc_now() -> str:
    """Return the time in the format of results."""
    return utc_stamp(datetime.now(UTC))
