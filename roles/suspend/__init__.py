"""Suspend: the host falls asleep when it is not used, by a timer of systemd."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llamaherd.host.responses import ProbeOutputs
from llamaherd.host.state import HostState, StatePart
from llamaherd.inventory.schema import Rig
from llamaherd.layout import SUSPEND_PROGRAM, SUSPEND_TABLE, SUSPEND_TIMER, SUSPEND_UNIT, UNITS
from llamaherd.onhost.verbs import NoInput
from llamaherd.onhost.verification import Probe
from llamaherd.plan import Estimate, InstancePlan, Plan, SuspendPlan, TextFile
from llamaherd.render import render
from llamaherd.role.changes import Action, Change, RunVerb, file_differences, written_files
from llamaherd.role.report import Check, service_check, service_probe
from llamaherd.role.role import Inspection, Planning, PlanPart, Role, Task, Verified
from llamaherd.text.numbers import show_hours
from roles.suspend.onhost import ApplyInput, Found


@dataclass(frozen=True)
class SuspendState(Found, StatePart):
    """The timer that suspends the host."""


def plan(planning: Planning) -> PlanPart:
    """Return when the host suspends, by its servers, which are planned before."""
    return PlanPart(fields={"suspend": plan_suspend(planning.rig, planning.planned["instances"])})


def plan_suspend(rig: Rig, instances: Sequence[InstancePlan]) -> SuspendPlan | None:
    """Return when a rig suspends; None without `suspend`, without `wake`, and under WSL."""
    if rig.suspend is None or rig.wake is None or rig.host.wsl is not None:
        return None
    table = {"after": rig.suspend.after, "mac": rig.wake.mac, "servers": list(map(_server, instances))}
    program = (Path(__file__).parent / "onhost" / "suspend_program.py").read_text(encoding="utf-8")
    service = render("suspend/suspend.service.j2", rig=rig.rig, program=SUSPEND_PROGRAM, table=SUSPEND_TABLE)
    return SuspendPlan(
        after=rig.suspend.after,
        files=(
            TextFile(path=str(SUSPEND_PROGRAM), text=program, mode="0755"),
            TextFile(path=str(SUSPEND_TABLE), text=json.dumps(table, indent=1) + "\n"),
            TextFile(path=str(UNITS / SUSPEND_UNIT), text=service),
            TextFile(path=str(UNITS / SUSPEND_TIMER), text=render("suspend/suspend.timer.j2", rig=rig.rig)),
        ),
    )


def _server(instance: InstancePlan) -> dict[str, object]:
    """Return what the program reads of a server."""
    endpoint = instance.endpoint
    asleep = endpoint.unloads and not instance.members and endpoint.props_path
    return {
        "service": instance.service,
        "unit": instance.backend == "systemd",
        "metrics": list(endpoint.metrics),
        "props": endpoint.url(endpoint.props_path) if asleep and endpoint.props_path else "",
        "key": str(instance.key_file) if instance.key_file else "",
    }


def suspend_changes(plan: Plan, state: HostState) -> list[Change]:
    """Return the change that applies the planned timer."""
    if plan.suspend is None:
        return []
    timer = SuspendState.of(state).timer
    stopped = () if timer == "active" else (f"its timer is {timer}" if timer else "it is not there",)
    reasons = (*file_differences(plan.suspend.files, state), *stopped)
    if not reasons:
        return []
    action: Action = "update" if timer else "create"
    how = RunVerb("suspend.apply", ApplyInput(written_files(plan.suspend.files)), "applying the suspend of the host")
    return [Change(action, "suspend", SUSPEND_TIMER, reasons, how)]


def suspend_leftovers(plan: Plan, state: HostState) -> list[Change]:
    """Return the change that removes the timer where the host no longer suspends."""
    if plan.suspend or not SuspendState.of(state).timer:
        return []
    how = RunVerb("suspend.remove", NoInput(), "ending the suspend of the host")
    return [Change("remove", "suspend", SUSPEND_TIMER, ("the rig has no `suspend` any more",), how)]


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield the probe of the timer."""
    if plan.suspend:
        yield service_probe("suspend timer", SUSPEND_TIMER)
        yield Probe("suspend result", "", ("systemctl", "show", "-P", "Result", SUSPEND_UNIT), errors=True)


def suspend_checks(plan: Plan, outputs: ProbeOutputs) -> Iterator[Check]:
    """Yield checks of the timer, and of the last run of its program."""
    if plan.suspend is None:
        return
    yield service_check("suspend", outputs.get(("suspend timer", ""), ""), SUSPEND_TIMER)
    if (result := outputs.get(("suspend result", ""), "").strip()) not in ("success", ""):
        detail = f"the host was not suspended ({result}): see `journalctl -u {SUSPEND_UNIT}`"
        yield Check("suspend", True, detail, doubt=True)


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> Iterator[str]:
    """Yield the time after which the host suspends."""
    if plan.suspend:
        yield f"  suspend    after {show_hours(plan.suspend.after)} without a request, a login or a run"


def tasks(plan: Plan) -> Iterator[Task]:
    """Yield the task, after that of the servers. If it fails, the host stays awake."""
    if plan.suspend:
        yield Task("suspend when it is not used", lambda state, _: suspend_changes(plan, state), alone=True)


ROLE = Role(
    name="suspend",
    summary="The host sleeps when it is not used.",
    plan=plan,
    brings=lambda plan: plan.suspend.files if plan.suspend else (),
    # Also where none is declared any more: what an earlier run has left is removed.
    inspection=Inspection("suspend.inspect", lambda plan: None if plan.wsl else NoInput(), SuspendState),
    leftovers=suspend_leftovers,
    tasks=tasks,
    probes=probes,
    judge=lambda judging: Verified(tuple(suspend_checks(judging.plan, judging.outputs))),
    describe=describe,
)
