"""Plan the two servers of a comparison, and begin or resume their two results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from llamaherd import __version__
from llamaherd.diagnostics.findings import Finding, UserError
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Connect
from llamaherd.inventory.settings import Setting, with_settings
from llamaherd.inventory.yaml_file import Document
from llamaherd.measure.client.suite import suite
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
from llamaherd.measure.trials.units import Arm, ArmName, arm_instance, arms_port, server_with, unit_of
from llamaherd.pipeline.history import keyless, missing_on_host
from llamaherd.pipeline.load import plans
from llamaherd.plan import InstancePlan, Only, Plan
from llamaherd.role.role import Role
from llamaherd.text.numbers import utc_stamp

_NAMED = re.compile(r"([^/\s:]+)/([^/\s:]+)")
_NOT_COMPARED = ("port", "listen", "api_key", "backend", "group", "expect", "tune", "drain")
"""Keys that are no arm's own: both listen where nothing else does, as units, and are not held to anything."""


@dataclass(frozen=True)
class Pair:
    """Two servers to compare, each with the plan that it is of, and the declared servers whose place they take."""

    connect: Connect
    a: Arm
    b: Arm
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
    """The rig and the instance in RIG/INSTANCE. Raises UserError."""
    found = _NAMED.fullmatch(word)
    if not found:
        raise UserError(f"`{word}` names no instance of a rig", "with --run, name RIG/INSTANCE, such as duo/chat")
    return found[1], found[2]


def _names(a: str, b: str | None, settings: Sequence[Setting]) -> tuple[str, str, str]:
    """The rig, and the instances A and B. Raises UserError where these cannot be compared."""
    rig, one = parse_instance_name(a)
    rig_b, other = parse_instance_name(b) if b else (rig, one)
    if rig_b != rig:
        raise UserError(f"{a} and {b} are on two hosts", "measure each, and compare their results without --run")
    if other == one and not settings:
        raise UserError("A and B are the same", "say what is otherwise about B, `--with KEY=VALUE`, or name another")
    if wrong := next((each for each in settings if each.path[0] in _NOT_COMPARED), None):
        raise UserError(f"`--with {wrong}` is nothing that two arms can differ in", "choose another key")
    return rig, one, other


def plan_pair(
    inventory: Path,
    roles: Sequence[Role],
    a: str,
    b: str | None,
    settings: Sequence[Setting],
    doubtful: Callable[[Sequence[Finding]], None],
) -> Pair:
    """A as it is declared; B another instance of its rig, or the same, with these keys. Raises UserError."""
    rig, one, other = _names(a, b, settings)
    usual: list[Finding] = []
    declared, plan = plans(inventory, roles, (rig,), doubtful=usual.extend)[rig]
    servers = {each: unit_of(plan, rig, each) for each in (one, other)}
    port = arms_port(plan, one)

    def edit(whole: Document) -> Document:
        return with_settings(whole, other, settings) if whole.data.get("rig") == rig else whole

    def new(found: Sequence[Finding]) -> None:
        doubtful([each for each in found if each not in usual])

    plan_b = plans(inventory, roles, (rig,), edit=edit, doubtful=new)[rig][1] if settings else plan
    title_b = " with ".join([f"{rig}/{other}", *([", ".join(map(str, settings))] if settings else [])])
    return Pair(
        declared.connect,
        Arm("A", f"{rig}/{one}", arm_instance(plan, rig, one, port)),
        Arm("B", title_b, arm_instance(plan_b, rig, other, port)),
        plan,
        plan_b,
        tuple({each.name: each for each in servers.values()}.values()),
        bool(settings),
    )


def missing_for_trial(two: Pair, state: HostState) -> str | None:
    """What the host lacks for both, and for each; None where both can be started."""
    for each in two.declared:
        if each.service not in state.units:
            return f"{each.service} is not on its host yet"
    for plan, arm in ((two.plan_a, two.a), (two.plan_b, two.b)):
        part = plan.model_copy(update={"only": Only(instances=(server_with(plan, arm.instance.name).name,))})
        if gone := list(missing_on_host(part, state)):
            return f"the host has no {', no '.join(gone)}, which {arm.title} needs"
    return None


_LOOKED_AT = 50
"""Of an instance's results, the newest."""

BLOCKS_RULE = "blocks until each cell has a verdict, or the budget is spent"


def begin_results(pair: Pair, conditions: Sequence[Condition], session: str, now: datetime) -> tuple[Result, Result]:
    """Return results of A and B without runs. A is newer by a second: it is what the inventory declares, or serves."""
    asked, earlier = tuple(conditions), now - timedelta(seconds=1)
    return (
        arm_result(pair.rig, pair.plan_a, pair.a, asked, session=session, began=utc_stamp(now), declared=True),
        arm_result(
            pair.rig, pair.plan_b, pair.b, asked, session=session, began=utc_stamp(earlier), declared=not pair.changed
        ),
    )


def arm_result(
    rig: str, plan: Plan, arm: Arm, asked: tuple[Condition, ...], *, session: str, began: str, declared: bool
) -> Result:
    """A result without runs. One that is not `declared` so is called by what is otherwise about it."""
    return Result(
        llamaherd=__version__,
        rig=rig,
        instance=arm.instance.name,
        stack=None if declared else arm.title,
        began=began,
        suite=suite().ref,
        method=Method(
            client="controller",
            seed=session,
            warm_up=len(asked),
            rule=BLOCKS_RULE,
            series=session,
            arm="A" if arm.name == "A" else "B",
        ),
        provenance=_provenance(plan, arm),
        cells=tuple(Cell(condition=each) for each in asked),
    )


def _provenance(plan: Plan, arm: Arm) -> Provenance:
    """What the plan says of it: the host runs no other build and no other files than these."""
    instance = arm.instance
    build = next((each for each in plan.builds if each.id == instance.build), None)
    options = tuple(f"{name}={value}" for name, value in build.options.items()) if build else ()
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
    """The servers beside that of an instance: a group's own is not there meanwhile."""
    return tuple(
        each.name for each in plan.instances if name not in (each.name, *(member.name for member in each.members))
    )


class JournalPair:
    """Both journals. Whatever ends it, what they hold stays, and the same comparison goes on with it."""

    def __init__(self, results: Path, a: Result, b: Result) -> None:
        """Go on with those of the same servers, prompts and cells; else begin two. Raises UserError."""
        paths = _cut_off(results, a, b)
        self.resumed = bool(paths)
        other = read_result(next(iter(paths.values()))) if paths else None
        self.journals: dict[ArmName, Journal] = {}
        begun: dict[ArmName, Result] = {"A": a, "B": b}
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
        """What both are arms of: it decides orders."""
        return self.journals["A"].result.method.series or ""

    def close(self) -> None:
        """Let others write them; those in which nothing stands yet go."""
        for each in self.journals.values():
            if not any(cell.runs for cell in each.result.cells):
                each.path.unlink(missing_ok=True)
            each.close()

    def finish(self, ended: str) -> list[Path]:
        """The documents that they become."""
        return [each.finish(ended) for each in self.journals.values()]


def finished_results(results: Path, a: Result, b: Result, since: datetime) -> tuple[Result, Result] | None:
    """The newest two of the same servers, prompts and cells that have come to their end since then."""
    ended = list(_ended(results, a, since))
    others = {each.method.series: each for each in reversed(ended) if _same(each, b)}
    return next(
        ((one, others[one.method.series]) for one in ended if _same(one, a) and one.method.series in others), None
    )


def _ended(results: Path, like: Result, since: datetime) -> Iterator[Result]:
    """What an instance's newest results say that have begun since then and ended."""
    files = [each for each in result_files(results, like.rig, like.instance) if each.suffix == ".json"]
    for path in files[:_LOOKED_AT]:
        with suppress(UserError):
            found = read_result(path)
            if datetime.fromisoformat(found.began) < since:
                return
            if found.ended:
                yield found


def _result_of_session(result: Result, other: Result | None) -> Result:
    """A result as one of the series that the other arm has begun, if it has: A is the later by a second."""
    if other is None:
        return result
    later = 1 if result.method.arm == "A" else -1
    began = datetime.fromisoformat(other.began) + timedelta(seconds=later)
    method = result.method.model_copy(update={"series": other.method.series, "seed": other.method.seed})
    return result.model_copy(update={"began": utc_stamp(began), "method": method})


def _cut_off(results: Path, a: Result, b: Result) -> Mapping[ArmName, Path]:
    """The journals of a run of the same that was killed: one of them may not have begun by then."""
    found: dict[ArmName, Path] = {}
    series: str | None = None
    begun: dict[ArmName, Result] = {"A": a, "B": b}
    for name, each in begun.items():

        def same(other: Result, each: Result = each, series: str | None = series) -> bool:
            return _same(other, each) and series in (None, other.method.series)

        if path := unfinished_journal(results, each.rig, each.instance, same):
            found[name] = path
            series = series or read_result(path).method.series
    return found


def _same(found: Result, begun: Result) -> bool:
    """Whether its blocks would be blocks of the same: what ran, with which files, prompts and conditions."""
    return (
        found.method.series is not None
        and found.method.arm == begun.method.arm
        and found.method.rule == begun.method.rule
        and found.suite == begun.suite
        and found.provenance == begun.provenance
        and [each.condition for each in found.cells] == [each.condition for each in begun.cells]
    )
