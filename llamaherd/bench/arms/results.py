"""The two results that a comparison in blocks leaves: what each begins with, and which one that was cut off goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from llamaherd import __version__
from llamaherd.bench.arms.units import Arm, ArmName
from llamaherd.bench.asking.suite import suite
from llamaherd.bench.results.provenance import Around, Engine, Host, ModelFile, Provenance, Server
from llamaherd.bench.results.result import Cell, Condition, Method, Result
from llamaherd.bench.results.store import Journal, cut_off, read_result, result_files
from llamaherd.diagnostics.findings import UserError
from llamaherd.plan import Plan
from llamaherd.text.units import utc_stamp

_LOOKED_AT = 50
"""Of an instance's results, the newest."""

RULE = "blocks until each cell has a verdict, or the budget is spent"


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
            rule=RULE,
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


class Pair:
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
                self.journals[name] = Journal.resume(path) if path else Journal.begin(results, _of(each, other))
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


def measured_before(results: Path, a: Result, b: Result, since: datetime) -> tuple[Result, Result] | None:
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


def _of(result: Result, other: Result | None) -> Result:
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

        if path := cut_off(results, each.rig, each.instance, same):
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
