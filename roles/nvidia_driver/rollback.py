"""Roll back a driver that does not respond after its reboot, or by which servers are slower than their gates allow."""

from __future__ import annotations

from functools import partial

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.state import HostState, RefusedDriver
from llamaherd.layout import DRIVER_BEFORE, DRIVER_UNDO, DRIVER_UNDO_UNIT, UNITS
from llamaherd.onhost.files import WrittenFile
from llamaherd.plan import DriverPlan, InstancePlan, Plan, TextFile
from llamaherd.render import render
from llamaherd.role.changes import Change, JudgedSince, MeasuredBefore, RebootHost, RunVerb, written_files
from roles.nvidia_driver.onhost.booting import NothingInput, ReadingInput, SettleInput, TakenBackInput
from roles.nvidia_driver.onhost.undo import DOCUMENT, TakeBackInput, UndoInput, WayBack

JUDGING_SECONDS = 3600
"""How long the judging may take at most: apt may be held for ten minutes, and modules are compiled."""

BACK_SECONDS = 1800
"""How much longer a host is waited for that may go back: modules are compiled, and it boots once more."""


def way_back(driver: DriverPlan, *, judged: bool) -> WayBack:
    """Return how the next boot goes back to the driver that works.

    `judged`: what is kept stays after that boot, where something was measured before it.
    """
    return WayBack(undo_input(driver, judged=judged), undo_unit())


def undo_input(driver: DriverPlan, *, judged: bool) -> UndoInput:
    """Return how a driver is judged at the next boot. `judged` as above."""
    return UndoInput(driver.kind, driver.reboot, judged)


def undo_unit() -> WrittenFile:
    """Return the unit that judges at the next boot."""
    (unit,) = written_files([undo_file()])
    return unit


def undo_file() -> TextFile:
    """Return the same as a text."""
    text = render(
        "nvidia_driver/driver-undo.service.j2",
        before=DRIVER_BEFORE,
        program=DRIVER_UNDO,
        document=DOCUMENT,
        most_seconds=JUDGING_SECONDS,
    )
    return TextFile(path=str(UNITS / DRIVER_UNDO_UNIT), text=text)


def rollback_note(driver: DriverPlan, state: HostState) -> str:
    """Return what happens to a host whose new driver does not come up, in words."""
    nvidia = state.driver
    kept = "" if nvidia.answered else nvidia.kept
    before = kept or (nvidia.loaded if nvidia.loaded and not nvidia.problem else "")
    if not before:
        return "no driver answers now, so that there is none to go back to"
    return f"{before} comes back by itself where {driver.wanted} does not answer"


def refused_driver(driver: DriverPlan, state: HostState) -> RefusedDriver | None:
    """Return the declared driver's earlier attempt that was rolled back; None if there is none."""
    tried, installed = state.driver.refused, state.driver.version(driver.library)
    if tried is None or tried.kind != driver.kind or not driver.wants(tried.version):
        return None
    return None if installed and driver.wants(installed) else tried


def raise_if_refused(driver: DriverPlan, state: HostState, *, retry: bool) -> None:
    """Raise UserError where what is declared was tried and went back, unless by `retry`."""
    tried = refused_driver(driver, state)
    if tried is None or retry:
        return
    stays = f", and {tried.before} serves as before" if state.driver.loaded == tried.before else ""
    if tried.slower:
        raise UserError(
            f"driver {tried.version} was tried on {tried.when}, and taken back: {tried.why}{stays}",
            "declare another branch or version, change `gate`, or `herd up --retry` to have it as slow as it is",
        )
    raise UserError(
        f"driver {tried.version} was tried on {tried.when}, and did not come up ({tried.why}){stays}",
        "declare another branch or version, or `herd up --retry` to try the same again",
    )


def gated(plan: Plan) -> tuple[InstancePlan, ...]:
    """Return the servers that a driver must not slow down."""
    # Where one is not rebooted for it, nobody can judge it.
    if plan.driver is None or not plan.driver.reboot:
        return ()
    return tuple(
        each
        for each in plan.of("systemd")
        if each.gate and (each.gate.decode is not None or each.gate.prefill is not None) and not each.members
    )


def measured_before(plan: Plan, state: HostState, *, retry: bool) -> MeasuredBefore | None:
    """Return what to measure before the driver changes; None if nothing, or an earlier run has done it."""
    nvidia = state.driver
    if retry or nvidia.loaded is None or nvidia.problem or measured_already(state):
        return None
    units = ((each, state.servers.units.get(each.service)) for each in gated(plan))
    servers = tuple((each, unit.spec) for each, unit in units if unit and unit.active == "active" and unit.spec)
    return MeasuredBefore(servers, nvidia.loaded, _keep) if servers else None


def measured_already(state: HostState) -> bool:
    """Return whether an earlier run has measured before this boot's driver changed, and kept the result."""
    return bool(state.driver.kept and state.driver.reading and not state.driver.answered)


def settle_changes(plan: Plan, state: HostState, *, retry: bool) -> list[Change]:
    """Judge the driver that answers since a boot, and remove what was kept of the one before. By `retry` it stays."""
    nvidia, driver = state.driver, plan.driver
    if driver is None or not nvidia.answered or not nvidia.kept or nvidia.judging:
        return []
    how = RunVerb("nvidia_driver.booting.forget_before", NothingInput())
    judged = None
    if retry:
        why = "the new one stays, by `--retry`"
    elif nvidia.loaded in (None, nvidia.kept):
        why = "it is not what the host was booted for"
    elif not gated(plan):
        why = "no `gate` requires it"
    else:
        why = f"it is kept until {nvidia.loaded} is judged"
        judged = _judged(plan, driver, nvidia.loaded or "", state)
    return [Change("remove", "driver", nvidia.kept, (why,), how, judged=judged)]


def _judged(plan: Plan, driver: DriverPlan, loaded: str, state: HostState) -> JudgedSince:
    servers = gated(plan)
    units = tuple(f"{each.service}.service" for each in plan.of("systemd"))
    settled = SettleInput(units, max(each.server.start_seconds for each in servers))
    back = partial(roll_back, driver, loaded, state.driver.kept)
    how = RunVerb("nvidia_driver.booting.settle", settled)
    return JudgedSince(loaded, state.driver.kept, state.driver.reading, how, back)


def roll_back(driver: DriverPlan, loaded: str, before: str, why: str) -> RebootHost:
    """Return the reboot from a loaded driver to the kept previous one."""
    given = TakeBackInput(why, undo_input(driver, judged=True), undo_unit())
    return RebootHost(
        ask=RunVerb("nvidia_driver.undo.take_back", given),
        back=RunVerb("nvidia_driver.booting.require_booted", NothingInput()),
        after=RunVerb("nvidia_driver.booting.report_taken_back", TakenBackInput(loaded, before, why)),
        extra=BACK_SECONDS,
    )


def _keep(reading: str) -> RunVerb:
    return RunVerb("nvidia_driver.booting.keep_reading", ReadingInput(reading))
