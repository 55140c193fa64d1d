"""A driver that servers are slower by than their gates allow: measured before and after its reboot, and taken back."""

from __future__ import annotations

from functools import partial

from llamaherd.host.state import HostState
from llamaherd.plan import DriverPlan, InstancePlan, Plan
from llamaherd.role.changes import Change, JudgedSince, MeasuredBefore, RebootHost, RunVerb
from roles.nvidia_driver.going_back import BACK_SECONDS, undo_input, undo_unit
from roles.nvidia_driver.onhost.booting import NothingInput, ReadingInput, SettleInput, TakenBackInput
from roles.nvidia_driver.onhost.undo import TakeBackInput


def gated(plan: Plan) -> tuple[InstancePlan, ...]:
    """The servers that must not become slower by a driver: where one is not rebooted for it, nobody can judge it."""
    if plan.driver is None or not plan.driver.reboot:
        return ()
    return tuple(
        each
        for each in plan.of("systemd")
        if each.gate and (each.gate.decode is not None or each.gate.prefill is not None) and not each.members
    )


def measured_before(plan: Plan, state: HostState, *, retry: bool) -> MeasuredBefore | None:
    """What is to be measured before the driver is changed; None where nothing is, or an earlier run has done it."""
    nvidia = state.nvidia
    if retry or nvidia.loaded is None or nvidia.says or measured_already(state):
        return None
    units = ((each, state.units.get(each.service)) for each in gated(plan))
    servers = tuple((each, unit.spec) for each, unit in units if unit and unit.active == "active" and unit.spec)
    return MeasuredBefore(servers, nvidia.loaded, _keep) if servers else None


def measured_already(state: HostState) -> bool:
    """Whether an earlier run has measured before what this boot runs is changed, and has kept it."""
    return bool(state.nvidia.kept and state.nvidia.reading and not state.nvidia.answered)


def settle_changes(plan: Plan, state: HostState, *, retry: bool) -> list[Change]:
    """Judge the driver that answers since a boot, and remove what was kept of the one before. By `retry` it stays."""
    nvidia, driver = state.nvidia, plan.driver
    if driver is None or not nvidia.answered or not nvidia.kept or nvidia.judging:
        return []
    how = RunVerb("nvidia_driver.booting.forget_before", NothingInput())
    judged = None
    if retry:
        why = "the new one stays, by `--retry`"
    elif nvidia.loaded in (None, nvidia.kept):
        why = "it is not what the host was booted for"
    elif not gated(plan):
        why = "no `gate` asks for it"
    else:
        why = f"it is kept until {nvidia.loaded} is judged"
        judged = _judged(plan, driver, nvidia.loaded or "", state)
    return [Change("remove", "driver", nvidia.kept, (why,), how, judged=judged)]


def _judged(plan: Plan, driver: DriverPlan, loaded: str, state: HostState) -> JudgedSince:
    servers = gated(plan)
    units = tuple(f"{each.service}.service" for each in plan.of("systemd"))
    settled = SettleInput(units, max(each.server.start_seconds for each in servers))
    back = partial(take_back, driver, loaded, state.nvidia.kept)
    how = RunVerb("nvidia_driver.booting.settle", settled)
    return JudgedSince(loaded, state.nvidia.kept, state.nvidia.reading, how, back)


def take_back(driver: DriverPlan, loaded: str, before: str, why: str) -> RebootHost:
    """Go back from a driver that is loaded to the one before, which is kept, and wait for the boot with that."""
    given = TakeBackInput(why, undo_input(driver, judged=True), undo_unit())
    return RebootHost(
        ask=RunVerb("nvidia_driver.undo.take_back", given),
        back=RunVerb("nvidia_driver.booting.require_booted", NothingInput()),
        after=RunVerb("nvidia_driver.booting.report_taken_back", TakenBackInput(loaded, before, why)),
        extra=BACK_SECONDS,
    )


def _keep(reading: str) -> RunVerb:
    return RunVerb("nvidia_driver.booting.keep_reading", ReadingInput(reading))
