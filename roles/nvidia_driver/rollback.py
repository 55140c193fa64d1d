"""Roll back a driver that does not respond after its reboot."""

from __future__ import annotations

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.state import HostState, RefusedDriver
from llamaherd.layout import DRIVER_BEFORE, DRIVER_UNDO, DRIVER_UNDO_UNIT, UNITS
from llamaherd.plan import DriverPlan, TextFile
from llamaherd.render import render
from llamaherd.role.changes import written_files
from roles.nvidia_driver.onhost.undo import DOCUMENT, UndoInput, WayBack

JUDGING_SECONDS = 3600
"""How long the judging may take at most: apt may be held for ten minutes, and modules are compiled."""

BACK_SECONDS = 1800
"""How much longer a host is waited for that may go back: modules are compiled, and it boots once more."""


def way_back(driver: DriverPlan) -> WayBack:
    """Return how the next boot goes back to the driver that works."""
    (unit,) = written_files([undo_file()])
    return WayBack(UndoInput(driver.kind, driver.reboot), unit)


def undo_file() -> TextFile:
    """Return the unit that judges at the next boot."""
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
    before = nvidia.kept or (nvidia.loaded if nvidia.loaded and not nvidia.problem else "")
    if not before:
        return "no driver responds now, so the host cannot roll back"
    return f"the host restores {before} if {driver.wanted} does not respond"


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
    raise UserError(
        f"driver {tried.version} was tried on {tried.when}, and did not come up ({tried.why}){stays}",
        "declare another branch or version, or `herd up --retry` to try the same again",
    )
