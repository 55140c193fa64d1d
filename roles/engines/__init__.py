"""Engines: built from their pinned sources, each in a folder named by its build id."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from llamaherd.host.state import HostState
from llamaherd.plan import BuildPlan, Plan
from llamaherd.role.changes import Change
from llamaherd.role.role import Inspection, Role, Run, Task
from roles.engines.changes import build_changes, build_needs, source_sends
from roles.engines.describe import describe
from roles.engines.onhost.inspection import Found
from roles.engines.plan import plan
from roles.engines.preflight import facts
from roles.engines.refusals import refusals
from roles.engines.state import keep, question, take
from roles.engines.verify import judge, probes


def tasks(plan: Plan) -> Iterator[Task]:
    """One build after the other: each uses all cores. What needs one that fails is left as it is."""
    for build in plan.builds:
        yield Task(f"{build.engine} ({build.id})", partial(_changes, build), alone=True)


def _changes(build: BuildPlan, state: HostState, _: Run) -> list[Change]:
    return build_changes(build, state)


ROLE = Role(
    name="engines",
    summary="Every engine is built from its pinned source, and no program of it is another than was built.",
    for_instances=True,
    plan=plan,
    inspection=Inspection("engines.inspection.inspect", question, Found, take),
    keep=keep,
    refusals=refusals,
    facts=facts,
    needs=build_needs,
    sends=source_sends,
    tasks=tasks,
    probes=probes,
    judge=judge,
    describe=describe,
)
