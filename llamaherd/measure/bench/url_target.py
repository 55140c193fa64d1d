"""Measure a server by its URL alone, without a meter."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from llamaherd import __version__
from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.bench.job import (
    MakeSeries,
    ProgressReporter,
    SavedResult,
    ServerProfile,
    Workload,
    WorkloadContext,
    seconds_left,
)
from llamaherd.measure.bench.session import WarmUp, utc_now, warm_up
from llamaherd.measure.client.http_client import Answer, Failure
from llamaherd.measure.client.requests import (
    LETTERS_A_TOKEN,
    MOST_CACHE_BUSTERS,
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
    run_from_answer,
    suite,
)
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
)
from llamaherd.measure.results.store import Journal, last_result, read_result

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
    return _Measurement(target, reporter).run(make, workloads)


class _Measurement:
    """One measurement."""

    def __init__(self, target: UrlTarget, reporter: ProgressReporter) -> None:
        self._target, self._reporter, self._began = target, reporter, utc_now()
        self._epoch = time.monotonic()
        self._until = self._epoch + target.seconds
        served = target.served
        self._requests = Requests(served.target, served.chat, served.model, secrets.token_hex(8))
        self._steps = 0

    def run(self, make: MakeSeries, workloads: Sequence[Workload]) -> SavedResult:
        """Run it, and save its result."""
        self._reporter.progress(0.0, self._target.seconds, "warming up")
        warm = warm_up(self._requests, self._target.seconds)
        known = self._known(warm)
        series = make(known)
        begun = self._begun(warm, known, (*series, *workloads))
        with Journal.begin(self._target.results, begun) as journal:
            places = {cell.condition: number for number, cell in enumerate(begun.cells)}
            try:
                for each in series:
                    self._series(each, journal, places)
                for workload in workloads:
                    self._run_workload(workload, journal, places)
            except UserError as error:
                kept = f"{error.message}; the measurements so far are kept in {journal.path}"
                raise UserError(kept, error.help) from None
            journal.result = _with_notes(journal.result)
            path = journal.finish(utc_now())
        return SavedResult(path, read_result(path))

    def _series(self, series: Series, journal: Journal, places: dict[Condition, int]) -> None:
        while step := series.next_step(so_far := self._so_far(series, journal, places)):
            self._reporter.progress(series.share_done(so_far), max(0.0, so_far.seconds_left), step.about)
            self._steps += 1
            time.sleep(step.rest)
            for cell, run in self._runs(series, step):
                journal.add_run(places[series.conditions[cell]], run)

    def _so_far(self, series: Series, journal: Journal, places: dict[Condition, int]) -> SeriesProgress:
        cells = tuple(journal.result.cells[places[condition]] for condition in series.conditions)
        return SeriesProgress(cells, self._until - time.monotonic(), self._steps)

    def _runs(self, series: Series, step: Step) -> Iterator[tuple[int, Run]]:
        """Yield the runs of a step. Raise UserError if a request fails."""
        for ask in step.asks:
            at = time.monotonic() - self._epoch
            answer = self._requests.send(ask, self._until - time.monotonic())
            if isinstance(answer, Failure) and answer.why != "empty":
                raise UserError(answer.message, answer.help)
            if ask.cell is not None:
                yield ask.cell, run_from_answer(answer, series.conditions[ask.cell], at=at)

    def _run_workload(self, workload: Workload, journal: Journal, places: dict[Condition, int]) -> None:
        context = WorkloadContext(
            self._target.served, self._requests.salts, lambda: time.monotonic() - self._epoch, self._text_of
        )
        began = time.monotonic()
        for cell, run in workload.runs(context):
            condition, share = workload.conditions[cell], (cell + 1) / len(workload.conditions)
            left = seconds_left(share, time.monotonic() - began)
            self._reporter.progress(share, left, f"{workload.name}: {condition}")
            journal.add_run(places[condition], run)

    def _known(self, warm: WarmUp) -> ServerProfile:
        context = self._target.served.context or _CONTEXT
        left = max(1.0, self._until - time.monotonic())
        last = last_result(self._target.results, BY_URL, self._target.instance)
        return ServerProfile(
            left,
            secrets.token_hex(4),
            context,
            warm.decode,
            warm.prefill,
            self._text_of,
            last=last.conditions if last else (),
        )

    def _text_of(self, tokens: int) -> str:
        """Return a text of so many tokens: by the server's tokenizer, or by the usage of another prompt."""
        served = self._target.served
        if count_tokens(served.root, served.model, "one two") is not None:
            return long_prompt(tokens, partial(estimate_prompt, served.root, served.model))
        answer = self._requests.send(RequestSpec(None, long_text(_PROBE), _ANSWERED, salt=_PROBE_SALT), 0.0)
        counted = answer.usage.prompt if isinstance(answer, Answer) and answer.usage else None
        letters = _PROBE / max(1, counted - _ABOUT) if counted and counted > _ABOUT else LETTERS_A_TOKEN
        return long_text(round(letters * (tokens - _ABOUT)))

    def _begun(self, warm: WarmUp, known: ServerProfile, parts: Sequence[Series | Workload]) -> Result:
        served = self._target.served
        conditions = dict.fromkeys(condition for part in parts for condition in part.conditions)
        rule = "; ".join(f"{part.name}: {part.rule}" for part in parts)
        return Result(
            llamaherd=__version__,
            rig=BY_URL,
            instance=self._target.instance,
            stack=self._target.label,
            began=self._began,
            source=Source(notes=(URL_NOTE,)),
            suite=suite().ref,
            method=Method(client="controller", seed=known.seed, warm_up=warm.requests, rule=rule),
            provenance=Provenance(
                # `herd bench --share` removes this name wherever it occurs.
                host=Host(name=urlsplit(served.target.url).hostname),
                engine=Engine(kind=served.engine, version=served.version),
                model=served.model,
                server=Server(context=served.context, slots=served.slots),
            ),
            starts=(Start(),),
            cells=tuple(Cell(condition=condition) for condition in conditions),
        )


def _with_notes(result: Result) -> Result:
    """Add the notes that follow from its runs, and remove conditions without runs."""
    cells = tuple(cell for cell in result.cells if cell.runs)
    counted = any(run.cache_n is not None for cell in cells for run in cell.runs)
    notes = result.source.notes if counted else (*result.source.notes, NO_CACHE_COUNTS)
    return result.model_copy(update={"cells": cells, "source": Source(notes=notes)})
