"""Container runtime: Docker and its Compose, and GPUs for containers."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.layout import PINNED
from llamaherd.plan import Plan
from llamaherd.role.role import Inspection, Role, Task
from roles.container_runtime.changes import docker_changes, toolkit_changes
from roles.container_runtime.describe import describe
from roles.container_runtime.onhost import Found
from roles.container_runtime.plan import plan
from roles.container_runtime.refusals import refusals
from roles.container_runtime.state import question, take
from roles.container_runtime.verify import judge, probes


def tasks(plan: Plan) -> Iterator[Task]:
    """The engine first: what it lacks for GPUs, only it can tell."""
    if plan.runtime:
        yield Task("Docker and Compose", lambda state, _: docker_changes(plan, state))
    if plan.runtime and plan.runtime.toolkit:
        yield Task("GPUs for containers", lambda state, _: toolkit_changes(plan, state))


ROLE = Role(
    name="container_runtime",
    summary="Docker and Compose run, and containers are given the GPUs that they ask for.",
    for_instances=True,
    plan=plan,
    brings=lambda plan: (plan.runtime.toolkit.order,) if plan.runtime and plan.runtime.toolkit else (),
    files=lambda plan: (PINNED,) if plan.runtime and plan.runtime.toolkit else (),
    inspection=Inspection("container_runtime.inspect", question, Found, take),
    refusals=refusals,
    tasks=tasks,
    probes=probes,
    judge=judge,
    describe=describe,
)
