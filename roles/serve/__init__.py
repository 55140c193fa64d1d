"""Serve: instances as systemd units and as compose projects, switched only when what runs is not what is planned."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.role.facts import Row, listed
from llamaherd.role.role import Inspection, Role, Verification
from roles.serve.describe import describe
from roles.serve.onhost.inspected import Found
from roles.serve.onhost.verified import Found as Verified
from roles.serve.plan import plan
from roles.serve.ports import addresses_missing, between_holders, ports_taken
from roles.serve.state import question as inspected
from roles.serve.state import take
from roles.serve.tasks import tasks
from roles.serve.verify import healthy, judge, question


def facts(plan: Plan, state: HostState) -> Iterator[Row]:
    """The ports."""
    if plan.instances:
        ports = sorted(instance.endpoint.port for instance in plan.instances)
        ours = [port for port in ports if port in state.listening]
        yield Row("ports", f"{listed(ours)} in use" if ours else "free", listed(ports))


ROLE = Role(
    name="serve",
    summary="Every instance runs as planned, answers, and does so again after a boot.",
    for_instances=True,
    plan=plan,
    files=lambda plan: (
        *(instance.file.path for instance in plan.instances),
        *(instance.key_file for instance in plan.instances if instance.key_file),
    ),
    texts=lambda plan: (instance.file for instance in plan.instances),
    inspection=Inspection("serve.inspection.inspect", inspected, Found, take),
    refusals=lambda plan, state: (*addresses_missing(plan, state), *ports_taken(plan, state)),
    facts=facts,
    unsettled=between_holders,
    tasks=tasks,
    verification=Verification("serve.verification.verify", question, Verified, healthy),
    judge=judge,
    describe=describe,
)
