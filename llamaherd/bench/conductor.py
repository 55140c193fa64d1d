"""Measures a declared instance: looks who is there, warms it up, asks step by step, and keeps each run at once.

What was measured stays in the journal whatever ends this, and the next measurement of the same start goes on with it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from llamaherd import __version__
from llamaherd.bench.asking.endpoint import Served, is_native
from llamaherd.bench.asking.requests import Requests
from llamaherd.bench.asking.server_facts import ServerFacts, count_tokens, server_facts
from llamaherd.bench.asking.suite import long_text_of, suite
from llamaherd.bench.courses.chosen import NOTHING_MORE, Chosen
from llamaherd.bench.courses.course import Course
from llamaherd.bench.finishing import with_all
from llamaherd.bench.holding import Holding
from llamaherd.bench.job import InTheWayError, Job, Known, MakeSeries, Measured, Teller
from llamaherd.bench.loading import load
from llamaherd.bench.meter.look import Look, gpus_of, obstacles
from llamaherd.bench.meter.meter import Meter
from llamaherd.bench.meter.watch import Watch
from llamaherd.bench.origin import provenance
from llamaherd.bench.results.result import Cell, Method, Result, Start
from llamaherd.bench.results.store import Journal, cut_off, folder_of, last_result, read_result, stem
from llamaherd.bench.schedule import Series
from llamaherd.bench.session import Session, now
from llamaherd.bench.warming import Warm, warm_up
from llamaherd.bench.way import Way
from llamaherd.diagnostics.findings import UserError

_ENDING = 120
"""Seconds that watching may go on beyond the time: for what comes before the first request, and for the last one."""

_LETTERS = 4
"""Of a token, roughly, where a server has no tokenizer to ask."""

_ABOUT = 32
"""Tokens around the long text: its beginning, and what the chat template adds."""


def measure(job: Job, make: MakeSeries, teller: Teller, chosen: Chosen = NOTHING_MORE) -> Measured:
    """The result of all series, and of what was chosen beside them.

    Raises InTheWayError before anything is asked, and UserError where it cannot go on.
    """
    began = now()
    with Way(job.connect, job.instance, job.who) as way, job.aside(teller.say):
        _load(job, way, teller)
        with Meter(job.connect, job.instance, job.seconds + _ENDING + chosen.most_seconds) as meter:
            return _Measurement(job, teller, way, meter, began).run(make, chosen)


def _load(job: Job, way: Way, teller: Teller) -> None:
    try:
        load(job, way.target, teller)
    except InTheWayError:
        raise
    except UserError as error:
        raise way.refused() or error from None


class _Measurement:
    """One measurement, once its host is watched and its server can be asked."""

    def __init__(self, job: Job, teller: Teller, way: Way, meter: Meter, began: str) -> None:
        self._job, self._teller, self._way, self._meter, self._began = job, teller, way, meter, began
        self._until = time.monotonic() + job.seconds
        endpoint = job.instance.endpoint
        self._requests = Requests(way.target, endpoint.chat_path, endpoint.models[0], secrets.token_hex(8))

    def run(self, make: MakeSeries, chosen: Chosen) -> Measured:
        """All of it."""
        look, job = self._meter.first_look, self._job
        overruled = self._overruled(look)
        uuids = gpus_of(look, job.instance.server.cards)
        gpus = self._holding(chosen, uuids)
        watch = Watch(self._meter, uuids)
        facts = server_facts(self._way.target, self._props_path)
        self._teller.progress(0.0, job.seconds, "at rest")
        rest = watch.rest(chosen.rest_seconds)
        self._teller.progress(0.0, self._until - time.monotonic(), "warming up")
        warm = self._warm()
        old = self._to_go_on_with()
        known = self._known(facts, warm, old)
        series = make(known)
        served = self._served(facts)
        courses, sentences = chosen.courses(served)
        begun = self._begun(look, uuids, facts, warm, known, (*series, *courses), overruled)
        with gpus as holding, self._journal(old, begun) as journal:
            for sentence in (*sentences, *chosen.beforehand(series)):
                self._teller.say(sentence)
            hold = holding.hold if holding else None
            requests, teller = self._requests, self._teller
            session = Session(job, requests, watch, self._meter, journal, teller, self._until, overruled, hold)
            session.run(series)
            for course in courses:
                session.run_course(course, served, self._text_of)
            whole = watch.use_since(session.began)
            readings = self._meter.readings
            journal.result = with_all(journal.result, session, whole, rest, job.instance, readings, watch.uuids)
            path = journal.finish(now())
        return Measured(path, read_result(path))

    def _holding(self, chosen: Chosen, uuids: tuple[str, ...]) -> AbstractContextManager[Holding | None]:
        """What holds its GPUs to power limits, if they are to be held. Raises UserError where nobody knows which."""
        if not chosen.limits:
            return nullcontext()
        if not uuids:
            name = self._job.instance.name
            raise UserError(f"{name} is on no GPU that this host tells of", "measure without `--power`")
        return Holding(self._job.connect, uuids, chosen.limits, self._job.seconds + chosen.most_seconds)

    def _warm(self) -> Warm:
        try:
            return warm_up(self._requests, self._job.seconds)
        except UserError as error:
            raise self._way.refused() or error from None

    def _overruled(self, look: Look) -> tuple[str, ...]:
        """The codes of what is in the way and may be. Raises InTheWayError."""
        found = obstacles(look, self._job.plan, self._job.instance)
        self._job.let_through(found)
        for each in found:
            self._teller.say(f"measured anyway: {each.code}: {each.message}")
        return tuple(dict.fromkeys(each.code for each in found))

    @property
    def _process(self) -> str | None:
        return self._meter.readings.hello.server.process if self._meter.readings.hello else None

    @property
    def _props_path(self) -> str | None:
        endpoint = self._job.instance.endpoint
        return endpoint.of_model(endpoint.props_path, self._requests.model) if endpoint.props_path else None

    def _to_go_on_with(self) -> Result | None:
        """What was cut off of the very same start of this server, with the same prompts."""
        job, process = self._job, self._process

        def same(found: Result) -> bool:
            last = found.starts[-1].process if found.starts else None
            spec = found.provenance.server.spec
            return bool(process) and (last, spec, found.suite) == (process, job.instance.spec, suite().ref)

        path = cut_off(job.results, job.plan.rig, job.instance.name, same)
        return read_result(path) if path else None

    def _served(self, facts: ServerFacts) -> Served:
        requests = self._requests
        target = requests.target
        native = facts.build is not None and is_native(target, requests.model)
        return Served(
            target, target, requests.path, requests.model, None, facts.build, facts.context, facts.slots, native
        )

    def _known(self, facts: ServerFacts, warm: Warm, old: Result | None) -> Known:
        slots = max(1, self._job.instance.endpoint.streams)
        last = last_result(self._job.results, self._job.plan.rig, self._job.instance.name)
        return Known(
            seconds=max(1.0, self._until - time.monotonic()),
            seed=old.method.seed if old and old.method.seed else secrets.token_hex(4),
            context=facts.context or self._job.instance.context // slots,
            decode=warm.decode,
            prefill=warm.prefill,
            text_of=self._text_of,
            before=old.conditions if old else (),
            last=last.conditions if last else (),
        )

    def _text_of(self, tokens: int) -> str:
        target, model = self._way.target, self._requests.model

        def count(text: str) -> int:
            counted = count_tokens(target, model, text)
            return len(text) // _LETTERS if counted is None else counted

        return long_text_of(tokens - _ABOUT, count)

    def _begun(
        self,
        look: Look,
        uuids: tuple[str, ...],
        facts: ServerFacts,
        warm: Warm,
        known: Known,
        parts: Sequence[Series | Course],
        overruled: tuple[str, ...],
    ) -> Result:
        job = self._job
        conditions = dict.fromkeys(condition for each in parts for condition in each.conditions)
        return Result(
            llamaherd=__version__,
            rig=job.plan.rig,
            instance=job.instance.name,
            began=self._began,
            suite=suite().ref,
            method=Method(
                client=self._way.client,
                seed=known.seed,
                warm_up=warm.requests,
                rule="; ".join(f"{each.name}: {each.rule}" for each in parts),
                anyway=overruled,
            ),
            provenance=provenance(job, self._meter.readings, look, uuids, facts),
            starts=(Start(process=self._process),),
            cells=tuple(Cell(condition=condition) for condition in conditions),
        )

    def _journal(self, old: Result | None, begun: Result) -> Journal:
        """The one that was cut off, where it is of the same conditions; else a new one."""
        if old and {cell.condition for cell in old.cells} == {cell.condition for cell in begun.cells}:
            runs = sum(len(cell.runs) for cell in old.cells)
            self._teller.say(f"going on with the measurement of {old.began}, which was cut off after {runs} runs")
            return Journal.resume(folder_of(self._job.results, old) / f"{stem(old)}.jsonl")
        return Journal.begin(self._job.results, begun)
