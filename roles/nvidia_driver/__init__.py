"""NVIDIA's driver: its packages, what keeps them, and the module in the kernel, by a reboot where nothing less does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llamaherd.host.state import HostState
from llamaherd.layout import DRIVER_KEPT
from llamaherd.plan import Plan
from llamaherd.role.changes import Change
from llamaherd.role.role import Inspection, Role, Run, Task
from roles.nvidia_driver.changes import driver_changes, load_changes, reboot_changes, refusal_changes
from roles.nvidia_driver.describe import describe
from roles.nvidia_driver.judging import gated, settle_changes
from roles.nvidia_driver.onhost.inspection import Found
from roles.nvidia_driver.plan import plan
from roles.nvidia_driver.preflight import facts
from roles.nvidia_driver.refusals import refusals
from roles.nvidia_driver.state import question, take
from roles.nvidia_driver.verify import judge, probes


def tasks(plan: Plan) -> Iterator[Task]:
    """A look for each: what the one did decides on the next."""

    def settle(state: HostState, run: Run) -> Sequence[Change]:
        return settle_changes(plan, state, retry=run.retry)

    if plan.driver:
        # Alone: what was there before goes on, and so does the rest of the run.
        again = "not one that did not come up"
        yield Task(again, lambda state, run: refusal_changes(plan, state, retry=run.retry), alone=True)
        if gated(plan):
            yield Task("judged, if an earlier run could not", settle, alone=True)
        yield Task("packages", lambda state, run: driver_changes(plan, state, retry=run.retry))
        yield Task("loaded", lambda state, _: load_changes(plan, state))
        yield Task("reboot, if only that loads it", lambda state, _: reboot_changes(plan, state))
        if gated(plan):
            yield Task("judged, if it is new", settle, alone=True)


ROLE = Role(
    name="nvidia_driver",
    summary="The declared driver is installed, stays as it is, and is in the kernel.",
    plan=plan,
    brings=lambda plan: plan.driver.files if plan.driver else (),
    files=lambda plan: (str(DRIVER_KEPT),) if plan.driver else (),
    inspection=Inspection("nvidia_driver.inspection.inspect", question, Found, take),
    refusals=refusals,
    facts=facts,
    tasks=tasks,
    probes=probes,
    judge=judge,
    section="driver",
    describe=describe,
)
