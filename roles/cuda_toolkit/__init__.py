"""CUDA toolkit: the one that engines are built with, installed without any part of a driver."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.plan import Plan
from llamaherd.role.role import Inspection, Role, Task
from roles.cuda_toolkit.changes import toolkit_changes, toolkit_needs, toolkit_refusals
from roles.cuda_toolkit.describe import describe
from roles.cuda_toolkit.onhost import Found
from roles.cuda_toolkit.plan import plan
from roles.cuda_toolkit.state import question, take
from roles.cuda_toolkit.verify import judge, probes


def tasks(plan: Plan) -> Iterator[Task]:
    """Before engines, which are compiled with it."""
    if plan.toolkit:
        yield Task(f"CUDA {plan.toolkit.version}", lambda state, _: toolkit_changes(plan, state))


ROLE = Role(
    name="cuda_toolkit",
    summary="The CUDA toolkit that engines are built with is at its place, and takes the host's compiler.",
    for_instances=True,
    plan=plan,
    files=lambda plan: (plan.toolkit.preferences.path,) if plan.toolkit else (),
    inspection=Inspection("cuda_toolkit.inspect", question, Found, take),
    refusals=toolkit_refusals,
    needs=toolkit_needs,
    tasks=tasks,
    probes=probes,
    judge=judge,
    describe=describe,
)
