"""Power: limits, clocks and fans of GPUs, set at every boot by a unit of ours."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.plan import Plan
from llamaherd.role.role import Inspection, Role, Task
from roles.power.changes import power_changes, power_leftovers
from roles.power.describe import describe
from roles.power.onhost import Found
from roles.power.plan import plan
from roles.power.preflight import facts
from roles.power.refusals import refusals
from roles.power.state import question, take
from roles.power.verify import judge, probes


def tasks(plan: Plan) -> Iterator[Task]:
    """Before servers, which may be slower afterwards, and no longer trip a fuse."""
    if plan.power:
        yield Task("limits, clocks and fans", lambda state, _: power_changes(plan, state))


ROLE = Role(
    name="power",
    summary="GPUs are held to their limits, clocks and fan speeds, from every boot on.",
    plan=plan,
    brings=lambda plan: plan.power.files if plan.power else (),
    inspection=Inspection("power.inspect", question, Found, take),
    refusals=refusals,
    facts=facts,
    leftovers=power_leftovers,
    tasks=tasks,
    probes=probes,
    judge=judge,
    section="cards",
    describe=describe,
)
