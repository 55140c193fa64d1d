"""Base: the distribution's packages, the accounts, and the small files that the other roles stand on."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.plan import Plan
from llamaherd.role.role import Inspection, Role, Task
from roles.base.changes import base_changes, package_changes
from roles.base.describe import describe
from roles.base.onhost.inspection import Found
from roles.base.plan import plan
from roles.base.preflight import facts
from roles.base.refusals import refusals
from roles.base.state import question as state_question
from roles.base.state import take
from roles.base.verify import judge, probes


def tasks(plan: Plan) -> Iterator[Task]:
    """Packages first: the rest uses them."""
    yield Task("packages", lambda state, _: package_changes(plan, state))
    yield Task("accounts and files", lambda state, run: [*base_changes(plan, state), *run.leftovers])


ROLE = Role(
    name="base",
    summary="The distribution's packages, accounts, folders and our own programs are there.",
    for_instances=True,
    ground=True,
    plan=plan,
    brings=lambda plan: plan.files,
    inspection=Inspection("base.inspection.inspect", state_question, Found, take),
    refusals=refusals,
    facts=facts,
    tasks=tasks,
    probes=probes,
    judge=judge,
    describe=describe,
)
