"""Compare two servers of a host in blocks: plan both, keep their results, measure until the verdicts are conclusive."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from llamaherd import __version__
from llamaherd.diagnostics.findings import Finding, UserError
from llamaherd.host.state import HostState
from llamaherd.inventory.exact_edits import Setting, with_settings
from llamaherd.inventory.schema import Connect
from llamaherd.measure.bench.series import ANSWERED
from llamaherd.measure.client.http_client import Failure
from llamaherd.measure.client.requests import KINDS, RequestSpec, long_prompt, run_from_response, suite
from llamaherd.measure.results.comparison import Comparison, ComparisonRow, compare_results
from llamaherd.measure.results.metrics import DECODE, PREFILL, STEP, Metric
from llamaherd.measure.results.result import (
    Around,
    Cell,
    Condition,
    Engine,
    Host,
    Method,
    ModelFile,
    Provenance,
    Result,
    Server,
)
from llamaherd.measure.results.store import Journal, read_result, result_files, unfinished_journal
from llamaherd.measure.statistics import block_orders
from llamaherd.measure.trials.trial import (
    Trial,
    TrialHost,
    TrialServers,
    Variant,
    VariantName,
    server_with,
    trial_port,
    unit_of,
    variant_instance,
)
from llamaherd.pipeline.fleet_files import Edit
from llamaherd.pipeline.history import keyless, missing_on_host
from llamaherd.pipeline.load import plans
from llamaherd.plan import InstancePlan, Only, Plan
from llamaherd.role.role import Role
from llamaherd.text.numbers import show_seconds, utc_stamp

_NAMED = re.compile(r"([^/\s:]+)/([^/\s:]+)")
_NOT_COMPARED = ("port", "listen", "api_key", "backend", "group", "expect", "tune", "drain")
"""Keys that do not apply to a tried server: it is a unit at the port of trials, without limits of its own."""


@dataclass(frozen=True)
class Pair:
    """Two servers to compare, each with the plan that it is of, and the declared servers whose place they take."""

    connect: Connect
    a: Variant
    b: Variant
    plan_a: Plan
    plan_b: Plan
    declared: tuple[InstancePlan, ...]
    changed: bool
    """Whether B differs from what the inventory declares, or from what serves."""

    @property
    def rig(self) -> str:
        """The name of the rig."""
        return self.plan_a.rig

    @property
    def context(self) -> int:
        """The context of each request, in both."""
        return min(each.instance.context // max(1, each.instance.endpoint.streams) for each in (self.a, self.b))

    @property
    def needed(self) -> Plan:
        """The plan of everything that both need on their host."""
        both = {each.folder: each for each in (*self.plan_a.models, *self.plan_b.models)}
        builds = {each.id: each for each in (*self.plan_a.builds, *self.plan_b.builds)}
        return keyless(
            self.plan_b.model_copy(update={"models": tuple(both.values()), "builds": tuple(builds.values())})
        )


def parse_instance_name(word: str) -> tuple[str, str]:
    """Return the rig and the instance in RIG/INSTANCE. Raise UserError."""
    found = _NAMED.fullmatch(word)
    if not found:
        raise UserError(f"`{word}` names no instance of a rig", "with --run, name RIG/INSTANCE, such as duo/chat")
    return found[1], found[2]


def _names(a: str, b: str | None, settings: Sequence[Setting]) -> tuple[str, str, str]:
    """Return the rig, and the instances A and B. Raise UserError if they cannot be compared."""
    rig, one = parse_instance_name(a)
    rig_b, other = parse_instance_name(b) if b else (rig, one)
    if rig_b != rig:
        raise UserError(f"{a} and {b} are on two hosts", "measure each, and compare their results without --run")
    if other == one and not settings:
        raise UserError("A and B are the same", "change a key of B by `--with KEY=VALUE`, or name another instance")
    if wrong := next((each for each in settings if each.path[0] in _NOT_COMPARED), None):
        raise UserError(f"`--with {wrong}` does not apply to a trial", "choose another key")
    return rig, one, other


def plan_pair(
    inventory: Path,
    roles: Sequence[Role],
    a: str,
    b: str | None,
    settings: Sequence[Setting],
    doubtful: Callable[[Sequence[Finding]], None],
) -> Pair:
    """Plan A as declared; B as another instance of the rig, or the same instance, with these keys. Raise UserError."""
    rig, one, other = _names(a, b, settings)
    usual: list[Finding] = []
    declared, plan = plans(inventory, roles, (rig,), doubtful=usual.extend)[rig]
    servers = {each: unit_of(plan, rig, each) for each in (one, other)}
    port = trial_port(plan, one)

    edit = changed_instance(rig, other, settings)

    def new(found: Sequence[Finding]) -> None:
        doubtful([each for each in found if each not in usual])

    plan_b = plans(inventory, roles, (rig,), edit=edit, doubtful=new)[rig][1] if settings else plan
    title_b = " with ".join([f"{rig}/{other}", *([", ".join(map(str, settings))] if settings else [])])
    return Pair(
        declared.connect,
        Variant("A", f"{rig}/{one}", variant_instance(plan, rig, one, port)),
        Variant("B", title_b, variant_instance(plan_b, rig, other, port)),
        plan,
        plan_b,
        tuple({each.name: each for each in servers.values()}.values()),
        bool(settings),
    )


def changed_instance(rig: str, name: str, settings: Sequence[Setting]) -> Edit:
    """Return the edit that gives an instance of a rig these settings."""
    return lambda whole: with_settings(whole, name, settings) if whole.data.get("rig") == rig else whole


def to_install(two: Pair, state: HostState) -> tuple[str, ...]:
    """Return the builds and models that B needs with its settings, and the host lacks; nothing if more is missing."""
    if not two.changed or any(each.service not in state.servers.units for each in two.declared):
        return ()
    missing = _missing(two.plan_b, two.b, state)
    return missing if all(each.startswith(("build ", "model ")) for each in missing) else ()


def missing_for_trial(two: Pair, state: HostState) -> str | None:
    """Return what the host lacks for the two servers; None if both can start."""
    for each in two.declared:
        if each.service not in state.servers.units:
            return f"{each.service} is not on its host yet"
    for plan, variant in ((two.plan_a, two.a), (two.plan_b, two.b)):
        if gone := _missing(plan, variant, state):
            return f"the host has no {', no '.join(gone)}, which {variant.title} needs"
    return None


def _missing(plan: Plan, variant: Variant, state: HostState) -> tuple[str, ...]:
    part = plan.model_copy(update={"only": Only(instances=(server_with(plan, variant.instance.name).name,))})
    return tuple(missing_on_host(part, state))


_LOOKED_AT = 50
"""Results of an instance, the newest ones."""

BLOCKS_RULE = "blocks until each cell has a verdict, or the budget is spent"


def begin_results(pair: Pair, conditions: Sequence[Condition], session: str, now: datetime) -> tuple[Result, Result]:
    """Return results of A and B without runs. A is newer by a second: it is what the inventory declares, or serves."""
    conditions, earlier = tuple(conditions), now - timedelta(seconds=1)
    return (
        variant_result(pair.rig, pair.plan_a, pair.a, conditions, session=session, began=utc_stamp(now), declared=True),
        variant_result(
            pair.rig,
            pair.plan_b,
            pair.b,
            conditions,
            session=session,
            began=utc_stamp(earlier),
            declared=not pair.changed,
        ),
    )


def variant_result(
    rig: str,
    plan: Plan,
    variant: Variant,
    conditions: tuple[Condition, ...],
    *,
    session: str,
    began: str,
    declared: bool,
) -> Result:
    """Return a result without runs. If the server is not as `declared`, the result contains its title."""
    return Result(
        llamaherd=__version__,
        rig=rig,
        instance=variant.instance.name,
        stack=None if declared else variant.title,
        began=began,
        suite=suite().ref,
        method=Method(
            client="controller",
            seed=session,
            warm_up=len(conditions),
            rule=BLOCKS_RULE,
            series=session,
            arm="A" if variant.name == "A" else "B",
        ),
        provenance=_provenance(plan, variant),
        cells=tuple(Cell(condition=each) for each in conditions),
    )


def _provenance(plan: Plan, variant: Variant) -> Provenance:
    """Return the provenance by the plan: the host runs exactly this build and these files."""
    instance = variant.instance
    build = next((each for each in plan.builds if each.id == instance.build), None)
    options = tuple(f"{name}={value}" for name, value in build.settings.items()) if build else ()
    folders = {instance.model_folder: "weights", instance.draft_folder: "draft"}
    files = tuple(
        ModelFile(
            part="draft" if folders[model.folder] == "draft" else "weights",
            name=file.name,
            repo=model.repo,
            revision=model.revision,
            sha256=file.sha256,
            size=file.size,
        )
        for model in plan.models
        if model.folder in folders
        for file in model.files
    )
    return Provenance(
        host=Host(os=plan.os, ram_bytes=plan.ram),
        engine=Engine(kind=build.kind if build else None, build=instance.build, options=options),
        model=instance.model,
        files=files,
        server=Server(
            spec=instance.spec,
            arguments=instance.server.arguments,
            environment=instance.server.environment,
            user=instance.server.user,
        ),
        around=Around(instances=_others(plan, instance.name)),
    )


def _others(plan: Plan, name: str) -> tuple[str, ...]:
    """Return the other servers of the host; the group of the instance is stopped."""
    return tuple(
        each.name for each in plan.instances if name not in (each.name, *(member.name for member in each.members))
    )


class JournalPair:
    """The journals of A and B. They stay when a run ends early, and the same comparison resumes them."""

    def __init__(self, results: Path, a: Result, b: Result) -> None:
        """Resume the journals of the same servers, prompts and conditions, or begin two. Raise UserError."""
        paths = _cut_off(results, a, b)
        self.resumed = bool(paths)
        other = read_result(next(iter(paths.values()))) if paths else None
        self.journals: dict[VariantName, Journal] = {}
        begun: dict[VariantName, Result] = {"A": a, "B": b}
        try:
            for name, each in begun.items():
                path = paths.get(name)
                self.journals[name] = (
                    Journal.resume(path) if path else Journal.begin(results, _result_of_session(each, other))
                )
        except BaseException:
            self.close()
            raise

    @property
    def session(self) -> str:
        """The session of both, which seeds the order in blocks."""
        return self.journals["A"].result.method.series or ""

    def close(self) -> None:
        """Close both journals, and remove those without runs."""
        for each in self.journals.values():
            if not any(cell.runs for cell in each.result.cells):
                each.path.unlink(missing_ok=True)
            each.close()

    def finish(self, ended: str) -> list[Path]:
        """Finish both journals, and return the paths of the results."""
        return [each.finish(ended) for each in self.journals.values()]


def finished_results(results: Path, a: Result, b: Result, since: datetime) -> tuple[Result, Result] | None:
    """Return the newest finished results of the same servers, prompts and conditions since then; None without any."""
    ended = list(_ended(results, a, since))
    others = {each.method.series: each for each in reversed(ended) if _same(each, b)}
    return next(
        ((one, others[one.method.series]) for one in ended if _same(one, a) and one.method.series in others), None
    )


def _ended(results: Path, like: Result, since: datetime) -> Iterator[Result]:
    """Yield the newest finished results of an instance that have begun since then."""
    files = [each for each in result_files(results, like.rig, like.instance) if each.suffix == ".json"]
    for path in files[:_LOOKED_AT]:
        with suppress(UserError):
            found = read_result(path)
            if datetime.fromisoformat(found.began) < since:
                return
            if found.ended:
                yield found


def _result_of_session(result: Result, other: Result | None) -> Result:
    """Return a result with the session of the other one, if that has begun: A is later by a second."""
    if other is None:
        return result
    later = 1 if result.method.arm == "A" else -1
    began = datetime.fromisoformat(other.began) + timedelta(seconds=later)
    method = result.method.model_copy(update={"series": other.method.series, "seed": other.method.seed})
    return result.model_copy(update={"began": utc_stamp(began), "method": method})


def _cut_off(results: Path, a: Result, b: Result) -> Mapping[VariantName, Path]:
    """Return the journals of an interrupted run of the same comparison, which may have begun only one of them."""
    found: dict[VariantName, Path] = {}
    if path := unfinished_journal(results, a.rig, a.instance, lambda other: _same(other, a)):
        found["A"] = path
    series = read_result(path).method.series if path else None

    def of_series(other: Result) -> bool:
        return _same(other, b) and series in (None, other.method.series)

    if path := unfinished_journal(results, b.rig, b.instance, of_series):
        found["B"] = path
    return found


def _same(found: Result, begun: Result) -> bool:
    """Return whether both results have the same server, files, prompts and conditions."""
    return (
        found.method.series is not None
        and found.method.arm == begun.method.arm
        and found.method.rule == begun.method.rule
        and found.suite == begun.suite
        and found.provenance == begun.provenance
        and [each.condition for each in found.cells] == [each.condition for each in begun.cells]
    )


PREFILL_CELL = "prefill"
TRIAL_CELLS = (*KINDS, PREFILL_CELL)
CELL_RUNS = 3
"""Requests for each condition after each start."""

TOKENS, PROMPT = 128, 1024
"""Tokens of a response, and of the long prompt. Both are short: starts differ more than requests do."""
_WARM_TOKENS, _LEAST_PROMPT = 32, 64
"""Tokens of a response that warms up a server, and the fewest of the long prompt."""
_SEED = 7


def trial_conditions(names: Sequence[str], context: int) -> tuple[Condition, ...]:
    """Return the conditions with these names, for servers with this context per request."""
    prompt = max(_LEAST_PROMPT, min(PROMPT, context // 2))
    long = Condition(kind="long", prompt=prompt, cache="cold", sampling="instance")
    cells: dict[str, Condition] = {PREFILL_CELL: long}
    for each in KINDS:
        cells[each] = Condition(kind=each, generated=TOKENS, cache="cold", sampling="instance")
    return tuple(cells[name] for name in dict.fromkeys(names))


def long_tokens(conditions: Sequence[Condition]) -> int | None:
    """Return the tokens of the long prompt; None if no condition uses it."""
    return next((each.prompt for each in conditions if each.prompt), None)


def block_requests(conditions: Sequence[Condition], long: str, block: int) -> Iterator[RequestSpec]:
    """Yield the requests of a block in order: those that warm up the server, then all conditions, interleaved."""
    first = block * (CELL_RUNS + 1)
    for each in conditions:
        yield _request(None, each, 0, long, first, min(each.generated or ANSWERED, _WARM_TOKENS))
    for number in range(CELL_RUNS):
        for cell, each in enumerate(conditions):
            yield _request(cell, each, number, long, first + 1 + number, each.generated or ANSWERED)


def _request(cell: int | None, condition: Condition, number: int, long: str, salt: int, tokens: int) -> RequestSpec:
    prompts = suite().prompts.get(condition.kind)
    text = prompts[number % len(prompts)].text if prompts else long
    return RequestSpec(cell, text, tokens, salt=salt, more={"seed": _SEED + number})


def inconclusive_cells(found: Comparison, conditions: Sequence[Condition]) -> tuple[ComparisonRow | Condition, ...]:
    """Return the rows and conditions without a conclusive verdict."""
    rows = {each: _judged(found.rows, each) for each in conditions}
    missing = tuple(each for each in conditions if not rows[each])
    return (*missing, *(row for of in rows.values() for row in of if _open(row)))


def _judged(rows: Sequence[ComparisonRow], condition: Condition) -> list[ComparisonRow]:
    """Return the rows that need a verdict: prefill of a prompt; decode of a response, and its steps with drafts."""
    counts: tuple[Metric, ...] = (PREFILL,) if condition.prompt else (DECODE, STEP)
    return [row for row in rows if row.condition == condition and row.metric in counts]


def _open(row: ComparisonRow) -> bool:
    return row.judgement is None or row.judgement.verdict == "not known yet"


Ended = Literal["known", "spent"]


@dataclass(frozen=True)
class BlockDone:
    """A finished block: its number, order and seconds, and the comparison so far with its inconclusive cells."""

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
    """A comparison in blocks. `session` seeds the order in each block; `budget` is in seconds."""

    servers: TrialServers
    journals: Mapping[VariantName, Journal]
    conditions: Sequence[Condition]
    session: str
    budget: float
    tell: Callable[[BlockDone], None] = lambda _: None
    left: Callable[[Comparison], int] | None = None
    """Counts the inconclusive cells, if another question than which one is faster decides."""

    def run(self) -> Ended:
        """Measure until all verdicts are conclusive, or the next block exceeds the budget. Raise UserError."""
        self._began = self.servers.clock()
        self._long: dict[VariantName, str] = {}
        block, longest = self._next(), 0.0
        while True:
            if block and not self._left(self._compared()):
                return "known"
            if longest and self.servers.clock() - self._began + longest > self.budget:
                return "spent"
            longest = max(longest, self._block(block))
            block += 1

    def _next(self) -> int:
        """Return the number of the next block. An unfinished block of an interrupted run counts."""
        cells = [cell for each in self.journals.values() for cell in each.result.cells]
        return 1 + max((run.block for cell in cells for run in cell.runs if run.block is not None), default=-1)

    def _block(self, block: int) -> float:
        began = self.servers.clock()
        order = block_orders(self.session, block + 1)[block]
        for name in order:
            self._measure("A" if name == "A" else "B", block)
        seconds = self.servers.clock() - began
        found = self._compared()
        self.tell(BlockDone(block, order, seconds, found, self._left(found)))
        return seconds

    def _left(self, found: Comparison) -> int:
        return self.left(found) if self.left else len(inconclusive_cells(found, self.conditions))

    def _measure(self, name: VariantName, block: int) -> None:
        journal, servers = self.journals[name], self.servers
        try:
            journal.add_start(servers.start(name))
            for request in block_requests(self.conditions, self._text(name), block):
                at = servers.clock() - self._began
                response = servers.request(request)
                if isinstance(response, Failure) and response.why != "empty":
                    raise UserError(f"server {name} did not respond: {response.message}", response.help)
                if request.cell is not None:
                    start = len(journal.result.starts) - 1
                    run = run_from_response(response, self.conditions[request.cell], at=at, start=start, block=block)
                    journal.add_run(request.cell, run)
        finally:
            servers.stop()

    def _text(self, name: VariantName) -> str:
        """Return the long text, counted by the tokenizer of a server."""
        tokens = long_tokens(self.conditions)
        if tokens and name not in self._long:
            self._long[name] = long_prompt(tokens, self.servers.count)
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
        trial.report(str(done))

    with TrialHost(trial, pair.session) as host:
        return Blocks(host, pair.journals, conditions, pair.session, trial.seconds, tell, left).run()
