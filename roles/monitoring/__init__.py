"""Monitoring: what tells figures of each host, and on one of them Prometheus and Alertmanager, which the distribution
brings, in units of ours."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.plan import Plan, TextFile
from llamaherd.role.role import Inspection, Role, Task
from roles.monitoring.changes import exporter_changes, leftovers, watcher_changes
from roles.monitoring.config import own
from roles.monitoring.describe import describe
from roles.monitoring.keys import key_places
from roles.monitoring.measured import measured
from roles.monitoring.plan import plan
from roles.monitoring.refusals import facts, refusals
from roles.monitoring.state import MonitoringState
from roles.monitoring.state import question as state_question
from roles.monitoring.verify import judge, probes


def tasks(plan: Plan) -> Iterator[Task]:
    """After servers, so that nobody is told of those that are not there yet. Each goes its own way."""
    if plan.monitoring and plan.monitoring.exporter:
        yield Task("figures of this host", lambda state, _: exporter_changes(plan, state), alone=True)
    if plan.monitoring and plan.monitoring.watcher:
        yield Task("what watches the fleet", lambda state, _: watcher_changes(plan, state), alone=True)


def _texts(plan: Plan) -> tuple[TextFile, ...]:
    return plan.monitoring.watcher.files if plan.monitoring and plan.monitoring.watcher else ()


def _files(plan: Plan) -> Iterator[str]:
    yield from (file.path for file in _texts(plan))
    if plan.monitoring and plan.monitoring.watcher:
        yield from (own(f"keys/{name}", "").path for name, _, _ in key_places(plan.monitoring.watcher))


ROLE = Role(
    name="monitoring",
    summary="Prometheus reads figures of hosts and servers, and people are told when something is wrong.",
    measured=measured,
    plan=plan,
    brings=lambda plan: plan.monitoring.brought if plan.monitoring else (),
    files=_files,
    texts=_texts,
    inspection=Inspection("monitoring.inspect", state_question, MonitoringState, MonitoringState.keep),
    refusals=refusals,
    facts=facts,
    leftovers=leftovers,
    tasks=tasks,
    probes=probes,
    judge=judge,
    describe=describe,
)
