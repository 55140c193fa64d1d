"""Measure a declared instance: load, warm up, run each series, save the result with its provenance."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from llamaherd import __version__
from llamaherd.diagnostics.findings import UserError
from llamaherd.engines.flags.task import Task
from llamaherd.measure.bench.job import (
    Job,
    MakeSeries,
    ObstacleError,
    PowerHold,
    ProgressReporter,
    SavedResult,
    ServerConnection,
    ServerProfile,
)
from llamaherd.measure.bench.selection import QUICK_ONLY, Selection
from llamaherd.measure.bench.series import FEWEST_RUNS, MOST_RUNS, is_narrow
from llamaherd.measure.bench.session import Session, WarmUp, WatchedServer, utc_now, warm_up, warm_up_inputs
from llamaherd.measure.client.http_client import Failure, Patience, Target, request_json
from llamaherd.measure.client.requests import (
    LETTERS_A_TOKEN,
    MOST_CACHE_BUSTERS,
    MeasurementPart,
    Requests,
    RequestSpec,
    SeriesProgress,
    Served,
    ServerFacts,
    Step,
    TaskRequests,
    cache_buster,
    count_tokens,
    estimate_prompt,
    is_native,
    long_prompt,
    long_text_of,
    server_facts,
    suite,
)
from llamaherd.measure.meter.meter import HostSnapshot, Meter, Watch, gpus_of, obstacles
from llamaherd.measure.meter.readings import Readings
from llamaherd.measure.meter.usage import (
    Usage,
    combined_telemetry,
    memory_peaks,
    unmeasured_sentences,
    usage_telemetry,
    with_gpu_numbers,
)
from llamaherd.measure.results.result import (
    Around,
    Cell,
    Condition,
    Engine,
    Gpu,
    Host,
    Kind,
    Method,
    ModelFile,
    Provenance,
    Result,
    Server,
    Start,
    Telemetry,
)
from llamaherd.measure.results.store import (
    Journal,
    last_result,
    read_result,
    result_folder,
    result_stem,
    unfinished_journal,
)
from llamaherd.plan import InstancePlan, ModelPlan, Plan
from llamaherd.plan.instance import longest_input, planned_task, require_chats, task_path

_SNAPSHOT_SECONDS = 60.0
"""Seconds that the inspection before it may take."""


def load_model(job: Job, target: Target, reporter: ProgressReporter) -> None:
    """Load the model of a group, once there is no obstacle: requests to other models of the group end first.

    A server of its own needs nothing. Raise ObstacleError, and UserError if it does not load.
    """
    if job.group is None:
        return
    with Meter(job.connect, job.group, _SNAPSHOT_SECONDS) as meter:
        job.let_through(obstacles(meter.first_snapshot, job.plan, job.group))
    reporter.progress(0.0, job.seconds, f"loading {job.instance.model}")
    request_load(job, job.group, target)


def request_load(job: Job, group: InstancePlan, target: Target) -> None:
    """Request the model's facts from the group's server, which loads it for that. Raise UserError."""
    seconds = group.server.start_seconds + group.drain
    found = request_json(
        target, _model_path(job.instance), patience=Patience(first=seconds, silence=seconds, total=seconds)
    )
    if isinstance(found, Failure):
        raise UserError(
            f"{group.name} does not load {job.instance.model}: {found.message}",
            f"see its log: journalctl -u {group.service}",
        )


def _model_path(instance: InstancePlan) -> str:
    """Return a path that reports on a model, for which the model is loaded."""
    endpoint = instance.endpoint
    return endpoint.of_model(endpoint.locked_path, instance.model, load=True)


def instance_provenance(
    job: Job,
    readings: Readings,
    snapshot: HostSnapshot,
    uuids: Sequence[str],
    facts: ServerFacts,
) -> Provenance:
    """Return everything that is known before the first request."""
    plan, instance = job.plan, job.instance
    spec = instance.server
    drivers = [readings.facts[uuid].driver for uuid in uuids if uuid in readings.facts]
    return Provenance(
        host=_host(readings, snapshot),
        gpus=tuple(_gpu(readings, snapshot, uuid) for uuid in uuids),
        driver=next(iter(drivers), None),
        engine=_engine(plan, instance, facts),
        model=instance.model,
        files=tuple(_files(plan, instance)),
        server=Server(
            spec=instance.spec,
            arguments=spec.arguments,
            environment=dict(spec.environment),
            user=spec.user,
            context=facts.context,
            slots=facts.slots,
            group=job.group.name if job.group else None,
        ),
        around=_around(job, snapshot, uuids),
    )


def with_links(found: Provenance, used: Usage, uuids: Sequence[str]) -> Provenance:
    """Add the links of GPUs under load: idle ones fall back to the first generation."""
    by_uuid = {gpu.uuid: gpu for gpu in used.gpus}
    gpus = tuple(
        gpu.model_copy(update={"pcie_generation": each.generation, "pcie_lanes": each.lanes})
        if (each := by_uuid.get(uuid))
        else gpu
        for gpu, uuid in zip(found.gpus, uuids, strict=True)
    )
    return found.model_copy(update={"gpus": gpus})


def _host(readings: Readings, snapshot: HostSnapshot) -> Host:
    hello = readings.hello
    assert hello
    facts = hello.host
    return Host(
        name=facts.name or None,
        os=facts.os or None,
        kernel=facts.kernel or None,
        libc=facts.libc or None,
        cpu=facts.cpu or None,
        microcode=facts.microcode or None,
        threads=facts.threads,
        smt=facts.smt,
        governor=facts.governor or None,
        ram_bytes=facts.ram_bytes,
        swapped_bytes=snapshot.swapped_bytes or None,
    )


def _gpu(readings: Readings, snapshot: HostSnapshot, uuid: str) -> Gpu:
    facts, sample = readings.facts.get(uuid), snapshot.gpus.get(uuid)
    if facts is None:
        return Gpu(name="unknown", uuid=uuid)
    return Gpu(
        name=facts.name,
        uuid=uuid,
        address=facts.address,
        memory_bytes=facts.memory_bytes,
        vbios=facts.vbios,
        power_limit_watts=sample.limit or None if sample else None,
        power_default_watts=facts.power_default_watts or None,
        most_sm_mhz=facts.most_sm_mhz,
        most_memory_mhz=facts.most_memory_mhz,
        ecc=facts.ecc,
        idle_celsius=sample.celsius if sample else None,
    )


def _engine(plan: Plan, instance: InstancePlan, facts: ServerFacts) -> Engine:
    build = next((each for each in plan.builds if each.id == instance.build), None)
    if build is None:
        return Engine(kind=instance.engine, version=facts.build, image=instance.server.image)
    source = build.source
    return Engine(
        kind=build.kind,
        version=facts.build,
        commit=source.commit or source.sha256,
        build=build.id,
        options=tuple(f"{name}={value}" for name, value in sorted(build.settings.items())),
        cuda=build.cuda,
        image=instance.server.image,
    )


def _files(plan: Plan, instance: InstancePlan) -> Iterator[ModelFile]:
    """Yield the files of its model, and of its draft model."""
    for model in plan.models:
        if model.folder == instance.model_folder:
            yield from _of_model(model, draft=False)
        elif model.folder == instance.draft_folder:
            yield from _of_model(model, draft=True)


def _of_model(model: ModelPlan, *, draft: bool) -> Iterator[ModelFile]:
    for file in model.files:
        yield ModelFile(
            part="draft" if draft else "projector" if file.name == model.mmproj else "weights",
            name=file.name,
            repo=model.repo,
            revision=model.revision,
            sha256=file.sha256 or None,
            size=file.size,
        )


def _around(job: Job, snapshot: HostSnapshot, uuids: Sequence[str]) -> Around:
    apps = [app for app in snapshot.apps or () if app.uuid in uuids and app.pid not in snapshot.ours]
    names = [app.name or f"process {app.pid}" for app in apps] + [str(other) for other in snapshot.others]
    # Other models of its group are not loaded meanwhile.
    server = job.group or job.instance
    others = tuple(each.name for each in job.plan.instances if each.name != server.name)
    return Around(instances=others, processes=tuple(dict.fromkeys(names)), load=snapshot.load)


def finish_result(
    result: Result,
    session: Session,
    whole: Usage | None,
    rest: Telemetry | None,
    instance: InstancePlan,
    readings: Readings,
    uuids: tuple[str, ...],
) -> Result:
    """Add the telemetry to a result, and remove conditions without runs."""
    cells = [
        cell.model_copy(update={"telemetry": combined_telemetry(session.took.get(number, []))})
        for number, cell in enumerate(result.cells)
    ]
    update: dict[str, object] = {
        "cells": tuple(cell for cell in cells if cell.runs),
        "rest": rest,
        "unmeasured": tuple(with_gpu_numbers(each, uuids) for each in unmeasured_sentences(readings)),
    }
    if whole:
        update |= {
            "work": usage_telemetry(whole, uuids),
            "peaks": tuple(memory_peaks(whole, uuids, instance.memory)),
            "provenance": with_links(result.provenance, whole, uuids),
        }
    return result.model_copy(update=update)


_ENDING = 120
"""Seconds that the meter may run longer: for what comes before the first request, and for the last one."""


def measure_instance(
    job: Job, make: MakeSeries, reporter: ProgressReporter, chosen: Selection = QUICK_ONLY
) -> SavedResult:
    """Measure all series and the selected workloads.

    Of a server of embeddings or rerank, measure the speed of its inputs instead. Raise ObstacleError before the first
    request, and UserError if the measurement fails.
    """
    if chosen != QUICK_ONLY:
        require_chats(job.instance, "an option of `herd bench` that measures more")
    began = utc_now()
    with ServerConnection(job.connect, job.instance, job.author) as connection, job.drain(reporter.report):
        _load_for_job(job, connection, reporter)
        with Meter(job.connect, job.instance, job.seconds + _ENDING + chosen.most_seconds) as meter:
            return _Measurement(job, reporter, connection, meter, began).run(make, chosen)


def _load_for_job(job: Job, connection: ServerConnection, reporter: ProgressReporter) -> None:
    try:
        load_model(job, connection.target, reporter)
    except ObstacleError:
        raise
    except UserError as error:
        raise connection.refused() or error from None


class _Measurement:
    """One measurement of a server, with a meter on its host."""

    def __init__(
        self, job: Job, reporter: ProgressReporter, connection: ServerConnection, meter: Meter, began: str
    ) -> None:
        self._job, self._reporter, self._connection, self._meter, self._began = job, reporter, connection, meter, began
        self._until = time.monotonic() + job.seconds
        endpoint = job.instance.endpoint
        self._task = planned_task(job.instance)
        kind = Requests if self._task == "chat" else TaskRequests
        path = task_path(endpoint, self._task)
        self._requests = kind(connection.target, path, endpoint.models[0], secrets.token_hex(8))

    def run(self, make: MakeSeries, chosen: Selection) -> SavedResult:
        """Run it, and save its result."""
        snapshot, job = self._meter.first_snapshot, self._job
        overruled = self._overruled(snapshot)
        uuids = gpus_of(snapshot, job.instance.server.cards)
        gpus = self._holding(chosen, uuids)
        watch = Watch(self._meter, uuids)
        facts = server_facts(self._connection.target, self._props_path)
        self._reporter.progress(0.0, job.seconds, "at rest")
        rest = watch.rest(chosen.rest_seconds)
        self._reporter.progress(0.0, self._until - time.monotonic(), "warming up")
        inputs = self._inputs()
        warm = self._warm(inputs)
        old = self._to_go_on_with()
        known = self._known(facts, warm, old)
        series = (inputs,) if inputs else make(known)
        served = self._served(facts)
        workloads, sentences = chosen.workloads(served)
        begun = self._begun(snapshot, uuids, facts, warm, known, (*series, *workloads), overruled)
        with gpus as holding, self._journal(old, begun) as journal:
            for sentence in (*sentences, *chosen.beforehand(series)):
                self._reporter.report(sentence)
            hold = holding.hold if holding else None
            watched = WatchedServer(job, watch, overruled, hold)
            session = Session(self._requests, journal, self._reporter, self._until, watched)
            session.run(series)
            for workload in workloads:
                session.run_workload(workload, served, self._text_of)
            whole = watch.use_since(session.began)
            readings = self._meter.readings
            journal.result = finish_result(journal.result, session, whole, rest, job.instance, readings, watch.uuids)
            path = journal.finish(utc_now())
        return SavedResult(path, read_result(path))

    def _holding(self, chosen: Selection, uuids: tuple[str, ...]) -> AbstractContextManager[PowerHold | None]:
        """Return what sets power limits, if any are selected. Raise UserError if the server's GPUs are unknown."""
        if not chosen.limits:
            return nullcontext()
        if not uuids:
            name = self._job.instance.name
            raise UserError(f"{name} is on no GPU that this host reports", "measure without `--power`")
        return PowerHold(self._job.connect, uuids, chosen.limits, self._job.seconds + chosen.most_seconds)

    def _inputs(self) -> TaskSeries | None:
        """Return the series of a server of embeddings or rerank; None for a server of chats."""
        if self._task == "chat":
            return None
        target, model = self._requests.target, self._requests.model

        def count(text: str) -> int:
            return count_tokens(target, model, text) or len(text) // LETTERS_A_TOKEN

        longest = longest_input(self._job.instance)
        return task_series(self._task, longest, self._job.seconds, self._requests.salts, count)

    def _warm(self, inputs: TaskSeries | None) -> WarmUp:
        try:
            if inputs:
                return warm_up_inputs(self._requests, inputs.warm_up_request, self._job.seconds)
            return warm_up(self._requests, self._job.seconds)
        except UserError as error:
            raise self._connection.refused() or error from None

    def _overruled(self, snapshot: HostSnapshot) -> tuple[str, ...]:
        """Return the codes of overruled obstacles. Raise ObstacleError for the others."""
        found = obstacles(snapshot, self._job.plan, self._job.instance)
        self._job.let_through(found)
        for each in found:
            self._reporter.report(f"measured anyway: {each.code}: {each.message}")
        return tuple(dict.fromkeys(each.code for each in found))

    @property
    def _process(self) -> str | None:
        return self._meter.readings.hello.server.process if self._meter.readings.hello else None

    @property
    def _props_path(self) -> str | None:
        endpoint = self._job.instance.endpoint
        return endpoint.of_model(endpoint.props_path, self._requests.model) if endpoint.props_path else None

    def _to_go_on_with(self) -> Result | None:
        """Return the interrupted measurement of the very same start of this server, with the same prompts."""
        job, process = self._job, self._process

        def same(found: Result) -> bool:
            last = found.starts[-1].process if found.starts else None
            spec = found.provenance.server.spec
            return bool(process) and (last, spec, found.suite) == (process, job.instance.spec, suite().ref)

        path = unfinished_journal(job.results, job.plan.rig, job.instance.name, same)
        return read_result(path) if path else None

    def _served(self, facts: ServerFacts) -> Served:
        requests = self._requests
        target = requests.target
        native = facts.build is not None and is_native(target, requests.model)
        return Served(
            target, target, requests.path, requests.model, None, facts.build, facts.context, facts.slots, native
        )

    def _known(self, facts: ServerFacts, warm: WarmUp, old: Result | None) -> ServerProfile:
        slots = max(1, self._job.instance.endpoint.streams)
        last = last_result(self._job.results, self._job.plan.rig, self._job.instance.name)
        return ServerProfile(
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
        target, model = self._connection.target, self._requests.model
        return long_prompt(tokens, partial(estimate_prompt, target, model))

    def _begun(
        self,
        snapshot: HostSnapshot,
        uuids: tuple[str, ...],
        facts: ServerFacts,
        warm: WarmUp,
        known: ServerProfile,
        parts: Sequence[MeasurementPart],
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
                client=self._connection.client,
                seed=known.seed,
                warm_up=warm.requests,
                rule="; ".join(f"{each.name}: {each.rule}" for each in parts),
                anyway=overruled,
            ),
            provenance=instance_provenance(job, self._meter.readings, snapshot, uuids, facts),
            starts=(Start(process=self._process),),
            cells=tuple(Cell(condition=condition) for condition in conditions),
        )

    def _journal(self, old: Result | None, begun: Result) -> Journal:
        """Resume the interrupted journal if it has the same conditions; else begin a new one."""
        if old and {cell.condition for cell in old.cells} == {cell.condition for cell in begun.cells}:
            runs = sum(len(cell.runs) for cell in old.cells)
            self._reporter.report(f"resuming the measurement of {old.began}, which was interrupted after {runs} runs")
            return Journal.resume(result_folder(self._job.results, old) / f"{result_stem(old)}.jsonl")
        return Journal.begin(self._job.results, begun)


MANY, PART, LONGEST = 16, 128, 2048
"""Inputs of a request with many, the tokens of each, and the most tokens of the long input."""
SPECIAL = 8
"""Tokens that a tokenizer may add around a text, or around a query and a document."""
QUERY = "Which of these texts is about the weather?"
_LENGTHS = (LONGEST, 1024, 512, 256, 128, 64, 32, 16)
_KINDS: dict[Task, Kind] = {"embeddings": "embeddings", "rerank": "rerank"}


@dataclass(frozen=True)
class TaskSeries:
    """Requests of one input, of the longest input and of many inputs. The cell with the fewest runs is next.

    `texts` are the inputs by their tokens, and `session` makes the beginnings of inputs differ from all others.
    """

    task: Task
    lengths: tuple[int, ...]
    texts: dict[int, str] = field(repr=False)
    seconds: float
    session: str
    name: str = "inputs"

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """One for each length of a single input, and one for many inputs."""
        kind, many = _KINDS[self.task], self.lengths[0]
        alone = [Condition(kind=kind, prompt=tokens, cache="cold", sampling="instance") for tokens in self.lengths]
        return (*alone, Condition(kind=kind, prompt=many, concurrency=MANY, cache="cold", sampling="instance"))

    @property
    def rule(self) -> str:
        """The criterion to stop."""
        return (
            f"{FEWEST_RUNS} to {MOST_RUNS} requests of each, until its interval is within a quarter of the margin, or "
            f"{self.seconds:.0f} s are over"
        )

    def next_step(self, so_far: SeriesProgress) -> Step | None:
        """Return a request of the cell with the fewest runs; None if all are measured, or the time is over."""
        if so_far.seconds_left <= 0:
            return None
        opened = {number: len(cell.runs) for number, cell in enumerate(so_far.cells) if not self._done(so_far, number)}
        if not opened:
            return None
        number = min(opened, key=lambda each: opened[each])
        condition = self.conditions[number]
        body = task_body(self.task, self._inputs(condition, so_far.steps))
        return Step((RequestSpec(number, "", 0, more=body),), about=str(condition))

    def share_done(self, so_far: SeriesProgress) -> float:
        """Return the share of the requests or of the time, whichever is larger."""
        done = [
            1.0 if self._done(so_far, number) else min(0.95, len(cell.runs) / MOST_RUNS)
            for number, cell in enumerate(so_far.cells)
        ]
        return min(1.0, max(sum(done) / len(done), 1 - max(0.0, so_far.seconds_left) / self.seconds))

    def warm_up_request(self, number: int) -> RequestSpec:
        """Return a request of the longest input, which begins unlike those that count."""
        text = cache_buster(self.session, MOST_CACHE_BUSTERS - 1 - number) + self.texts[self.lengths[-1]]
        return RequestSpec(None, "", 0, more=task_body(self.task, [text]))

    def _done(self, so_far: SeriesProgress, number: int) -> bool:
        cell = so_far.cells[number]
        return len(cell.runs) >= MOST_RUNS or (len(cell.counted) >= FEWEST_RUNS and is_narrow(cell))

    def _inputs(self, condition: Condition, step: int) -> list[str]:
        text, first = self.texts[condition.prompt or self.lengths[0]], step * MANY
        numbers = range(first, first + condition.concurrency)
        return [cache_buster(self.session, number % MOST_CACHE_BUSTERS) + text for number in numbers]


def task_body(task: Task, inputs: Sequence[str]) -> dict[str, object]:
    """Return the body of a request, without the model's name."""
    return {"query": QUERY, "documents": list(inputs)} if task == "rerank" else {"input": list(inputs)}


def task_series(task: Task, longest: int, seconds: float, session: str, count: Callable[[str], int]) -> TaskSeries:
    """Return the series of a server whose inputs have at most `longest` tokens.

    `count` returns the tokens of a text. The part of a query counts as part of its input.
    """
    room = [each for each in _LENGTHS if each <= longest] or [_LENGTHS[-1]]
    lengths = tuple(dict.fromkeys((min(PART, room[0]), room[0])))
    before = SPECIAL + max(count(cache_buster(session, number)) for number in range(MANY))
    before += count(QUERY) if task == "rerank" else 0
    texts = {tokens: long_text_of(max(1, tokens - before), count) for tokens in lengths}
    return TaskSeries(task, lengths, texts, seconds, session)
