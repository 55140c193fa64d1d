"""Models: fetched into the store, by revision, and let in by their hashes."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from llamaherd.plan import Plan
from llamaherd.role.role import Inspection, Role, Task
from roles.models.changes import begin_changes, model_changes, model_sends
from roles.models.describe import describe
from roles.models.onhost.inspection import Found
from roles.models.origins import file_places
from roles.models.plan import plan
from roles.models.refusals import needs, refusals
from roles.models.state import question, take
from roles.models.verify import judge, probes

_WATCHER = secrets.token_hex(8)
"""What this run of `herd up` is called by the hosts where it waits for a fetch."""


def begin_tasks(plan: Plan) -> Iterator[Task]:
    """Begin to fetch, in a unit of its own that goes on beside what follows."""
    if any(model.url for model in plan.models):
        yield Task("begin to fetch", lambda state, _: begin_changes(plan, state, file_places, _WATCHER), alone=True)


def tasks(plan: Plan) -> Iterator[Task]:
    """Wait for what is fetched, and let all that has arrived into the store."""
    if plan.models:
        yield Task(
            "in the store",
            lambda state, _: model_changes(plan, state, file_places, _WATCHER),
            alone=True,
            goes_on=True,
        )


BEGIN = Role(
    name="models begin",
    summary="What is missing in the store is on its way, while engines are built.",
    for_instances=True,
    tasks=begin_tasks,
)

ROLE = Role(
    name="models",
    summary="Every file of every model is in the store, as its hash says.",
    for_instances=True,
    plan=plan,
    inspection=Inspection("models.inspection.inspect", question, Found, take),
    refusals=refusals,
    needs=needs,
    sends=model_sends,
    tasks=tasks,
    probes=probes,
    judge=judge,
    describe=describe,
)
