"""Warm up a server, run the steps of each series, and save each run at once; measure a server by its URL alone."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from llamaherd import __version__
from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.bench.job import (
    Job,
    MakeSeries,
    ProgressReporter,
    SavedResult,
    ServerProfile,
    Workload,
    WorkloadContext,
    approximate_text,
    seconds_left,
)
from llamaherd.measure.client.http_client import Failure, StreamedResponse
from llamaherd.measure.client.requests import (
    LETTERS_A_TOKEN,
    MOST_CACHE_BUSTERS,
    MeasurementPart,
    Requests,
    RequestSpec,
    Series,
    SeriesProgress,
    Served,
    Step,
    count_tokens,
    estimate_prompt,
    long_prompt,
    long_text,
    run_from_response,
    suite,
)
from llamaherd.measure.meter.meter import Obstacle, Watch, obstacles, with_telemetry
from llamaherd.measure.results.metrics import DECODE
from llamaherd.measure.results.result import (
    BY_URL,
    Cell,
    Condition,
    Engine,
    Host,
    Method,
    Provenance,
    Result,
    Run,
    Server,
    Source,
    Start,
    Telemetry,
)
from llamaherd.measure.results.store import Journal, last_result, read_result
from llamaherd.text.numbers import utc_stamp

_TOKENS, _MOST_ASKED = 48, 6
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
    runs: list[Run] = []

    def decode_rate(number: int) -> float | None:
        prompts = suite().prompts["prose"]
        # The last numbers of all: those that count begin at 0.
        salt = MOST_CACHE_BUSTERS - 1 - number
        response = _send(requests, RequestSpec(None, prompts[number % len(prompts)].text, _TOKENS, salt=salt), seconds)
        runs.append(run_from_response(response, _CONDITION, at=0.0))
        sample = DECODE.of(runs[-1])
        return sample.rate if sample else None

    rates = _until_steady(decode_rate, seconds)
    last = runs[-1]
    prefill = last.prompt_n / last.prompt_ms * 1000 if last.prompt_n and last.prompt_ms else None
    return WarmUp(len(rates), rates[-1], prefill)


def warm_up_inputs(requests: Requests, request: Callable[[int], RequestSpec], seconds: float) -> WarmUp:
    """Send inputs of embeddings or rerank until two successive ones are equally fast. Raise UserError if one fails."""

    def input_rate(number: int) -> float:
        response = _send(requests, request(number), seconds)
        tokens = response.usage.prompt if response.usage else None
        return 1000 * (tokens or 1) / max(response.total_ms, 0.001)

    rates = _until_steady(input_rate, seconds)
    return WarmUp(len(rates), None, rates[-1])


def _send(requests: Requests, request: RequestSpec, seconds: float) -> StreamedResponse:
    response = requests.send(request, seconds)
    if isinstance(response, Failure):
        raise UserError(response.message, response.help)
    return response


def _until_steady(rate_of: Callable[[int], float | None], seconds: float) -> list[float | None]:
    """Return the rates of numbered requests, up to two that agree, the most requests, or a share of the time."""
    until, rates = time.monotonic() + _SHARE * seconds, list[float | None]()
    while len(rates) < _MOST_ASKED:
        rates.append(rate_of(len(rates)))
        before, last = rates[-2:] if len(rates) > 1 else (None, None)
        if time.monotonic() > until or (before and last and abs(last / before - 1) < _STEADY):
            break
    return rates


_LOOK_EVERY = 20.0
"""Seconds between two inspections for other programs."""
_OTHERS = ("busy", "gpu-shared", "host-busy")
"""The obstacles that other programs may cause meanwhile."""


@dataclass(frozen=True)
class WatchedServer:
    """A declared server whose host is watched meanwhile.

    `overruled` are the codes of obstacles that do not exclude runs. `hold` sets the power limit of each GPU, or with
    None restores it.
    """

    job: Job
    watch: Watch
    overruled: Sequence[str] = ()
    hold: Callable[[int | None], None] | None = None

    @property
    def gone(self) -> str | None:
        """The message that the measured server ended; None while it runs."""
        if self.watch.server_is_there:
            return None
        if self.job.group is None:
            return "the server ended, or was restarted, while it was measured"
        other = f"another model of group {self.job.group.name} was requested"
        return f"{other}, or the server ended, while {self.job.instance.name} was measured"

    def inspect(self) -> list[Obstacle]:
        """Inspect the host, and return the obstacles that other programs and clients cause."""
        found = obstacles(self.watch.meter.snapshot(), self.job.plan, self.job.instance)
        return [each for each in found if each.code in _OTHERS and each.code not in self.overruled]


class Session:
    """One program's part of a measurement. `took` is the telemetry by cell, `began` when the first step did.

    A server by its URL is not `watched`.
    """

    def __init__(
        self,
        requests: Requests,
        journal: Journal,
        reporter: ProgressReporter,
        until: float,
        watched: WatchedServer | None = None,
    ) -> None:
        self.began = time.monotonic()
        self.took: dict[int, list[Telemetry]] = {}
        self._requests, self._journal, self._reporter, self._until = requests, journal, reporter, until
        self._watched = watched
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
            self._check_host()
        except UserError as error:
            raise self._ended(error) from None

    def _run(self, series: Series) -> None:
        while step := series.next_step(so_far := self._so_far(series)):
            self._reporter.progress(series.share_done(so_far), max(0.0, so_far.seconds_left), step.about)
            self._do(series, step)
            if time.monotonic() - self._looked > _LOOK_EVERY:
                self._check_host()

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
                self._require_server()
                self._add(condition, run.model_copy(update={"start": self._start}))
                if workload.one_by_one and time.monotonic() - self._looked > _LOOK_EVERY:
                    self._check_host()
            self._check_host()
        except UserError as error:
            raise self._ended(error) from None

    def _so_far(self, series: Series) -> SeriesProgress:
        cells = tuple(self._journal.result.cells[self._places[condition]] for condition in series.conditions)
        return SeriesProgress(cells, self._until - time.monotonic(), self._steps)

    def _do(self, series: Series, step: Step) -> None:
        self._steps += 1
        self._hold_to(step.watts)
        time.sleep(step.rest)
        watch = self._watched.watch if self._watched else None
        for request in step.requests:
            began = watch.begin() if watch else 0.0
            at = time.time() - self._epoch
            response = self._requests.send(request, self._until - time.monotonic())
            took = watch.end(began) if watch else None
            self._require_server()
            if isinstance(response, Failure) and response.why != "empty":
                raise UserError(response.message, response.help)
            if request.cell is None:
                continue
            condition = series.conditions[request.cell]
            run = run_from_response(response, condition, at=at, start=self._start)
            self._add(condition, with_telemetry(run, took) if isinstance(response, StreamedResponse) else run)
            if took:
                self.took.setdefault(self._places[condition], []).append(took)

    def _hold_to(self, watts: int | None) -> None:
        """Set the power limit of each GPU. Raise UserError if that fails."""
        if self._watched and self._watched.hold and watts != self._held:
            self._watched.hold(watts)
            self._held = watts

    def _add(self, condition: Condition, run: Run) -> None:
        """Add a run to the journal."""
        number = self._places[condition]
        self._since_look.append((number, len(self._journal.result.cells[number].runs)))
        self._journal.add_run(number, run)

    def _require_server(self) -> None:
        """Raise UserError if the server ended, or was restarted."""
        if self._watched and (gone := self._watched.gone):
            raise UserError(gone, "see `herd verify` and the server's log")

    def _ended(self, error: UserError) -> UserError:
        return UserError(f"{error.message}; the measurements so far are kept in {self._journal.path}", error.help)

    def _check_host(self) -> None:
        """Inspect the host, and exclude the runs since the last inspection if other programs or clients are there."""
        in_the_way = self._watched.inspect() if self._watched else []
        for each in in_the_way:
            self._reporter.report(f"{each.code}: {each.message}")
        if in_the_way:
            for cell, number in self._since_look:
                self._journal.exclude(cell, number, f"meanwhile {in_the_way[0].message}")
        self._looked, self._since_look = time.monotonic(), []


def utc_now() -> str:
    """Return the time in the format of results."""
    return utc_stamp(datetime.now(UTC))


URL_NOTE = "measured by its URL alone: machine, GPUs, driver and the model's files are unknown"
NO_CACHE_COUNTS = "the server does not report what came from its cache; each prompt has a new beginning"

_PROBE, _PROBE_SALT, _ANSWERED = 4000, MOST_CACHE_BUSTERS - 100, 8
"""Letters of a text whose tokens are taken from the usage of a prompt, and tokens of its response."""

_ABOUT, _CONTEXT = 32, 8192
"""Tokens around a text, and of a context if a server reports none."""


@dataclass(frozen=True)
class UrlTarget:
    """A server by its URL, its label, and how long its measurement may take."""

    served: Served
    label: str
    results: Path
    seconds: float

    @property
    def instance(self) -> str:
        """The folder of its results."""
        return folder_name(self.label)


def folder_name(label: str) -> str:
    """Return a label as the name of a folder."""
    return re.sub(r"[^a-z0-9._-]+", "-", label.lower()).strip("._-")[:40].rstrip("._-") or "server"


def target_label(served: Served, name: str | None) -> str:
    """Return the label of a server: its `name`, or its model and host."""
    return name or f"{served.model.rpartition('/')[2]} at {urlsplit(served.target.url).hostname}"


def measure_url(
    target: UrlTarget, make: MakeSeries, workloads: Sequence[Workload], reporter: ProgressReporter
) -> SavedResult:
    """Measure all series and workloads. Raise UserError if the server cannot be measured."""
    began, until, served = utc_now(), time.monotonic() + target.seconds, target.served
    requests = Requests(served.target, served.chat, served.model, secrets.token_hex(8))
    reporter.progress(0.0, target.seconds, "warming up")
    warm = warm_up(requests, target.seconds)
    last = last_result(target.results, BY_URL, target.instance)
    known = ServerProfile(
        seconds=max(1.0, until - time.monotonic()),
        seed=secrets.token_hex(4),
        context=served.context or _CONTEXT,
        decode=warm.decode,
        prefill=warm.prefill,
        text_of=partial(_text_of, requests, served),
        last=last.conditions if last else (),
    )
    series = make(known)
    parts: list[MeasurementPart] = [*series, *workloads]
    rule = "; ".join(f"{part.name}: {part.rule}" for part in parts)
    method = Method(client="controller", seed=known.seed, warm_up=warm.requests, rule=rule)
    conditions = dict.fromkeys(condition for part in parts for condition in part.conditions)
    begun = _url_result(target, began, method, tuple(Cell(condition=condition) for condition in conditions))
    with Journal.begin(target.results, begun) as journal:
        session = Session(requests, journal, reporter, until)
        session.run(series)
        for workload in workloads:
            session.run_workload(workload, served, known.text_of)
        journal.result = _with_notes(journal.result)
        path = journal.finish(utc_now())
    return SavedResult(path, read_result(path))


def _text_of(requests: Requests, served: Served, tokens: int) -> str:
    """Return a text of so many tokens: by the server's tokenizer, or by the usage of another prompt."""
    if count_tokens(served.root, served.model, "one two") is not None:
        return long_prompt(tokens, partial(estimate_prompt, served.root, served.model))
    response = requests.send(RequestSpec(None, long_text(_PROBE), _ANSWERED, salt=_PROBE_SALT), 0.0)
    counted = response.usage.prompt if isinstance(response, StreamedResponse) and response.usage else None
    letters = _PROBE / max(1, counted - _ABOUT) if counted and counted > _ABOUT else LETTERS_A_TOKEN
    return long_text(round(letters * (tokens - _ABOUT)))


def _url_result(target: UrlTarget, began: str, method: Method, cells: tuple[Cell, ...]) -> Result:
    served = target.served
    return Result(
        llamaherd=__version__,
        rig=BY_URL,
        instance=target.instance,
        stack=target.label,
        began=began,
        source=Source(notes=(URL_NOTE,)),
        suite=suite().ref,
        method=method,
        provenance=Provenance(
            # `herd bench --share` removes this name wherever it occurs.
            host=Host(name=urlsplit(served.target.url).hostname),
            engine=Engine(kind=served.engine, version=served.version),
            model=served.model,
            server=Server(context=served.context, slots=served.slots),
        ),
        starts=(Start(),),
        cells=cells,
    )


def _with_notes(result: Result) -> Result:
    """Add the notes that follow from its runs, and remove conditions without runs."""
    cells = tuple(cell for cell in result.cells if cell.runs)
    counted = any(run.cache_n is not None for cell in cells for run in cell.runs)
    notes = result.source.notes if counted else (*result.source.notes, NO_CACHE_COUNTS)
    return result.model_copy(update={"cells": cells, "source": Source(notes=notes)})
