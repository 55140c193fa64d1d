"""A driver that does not come up after its reboot goes back to the version before by itself, and is not tried again."""

from __future__ import annotations

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.driver import RefusedDriver
from llamaherd.host.state import HostState
from llamaherd.layout import (
    DRIVER_BEFORE,
    DRIVER_UNDO,
    DRIVER_UNDO_UNIT,
    UNITS,
)
from llamaherd.onhost.files import WrittenFile
from llamaherd.plan import DriverPlan, TextFile
from llamaherd.render import render
from llamaherd.role.changes import written_files
from roles.nvidia_driver.onhost.before import WayBack
from roles.nvidia_driver.onhost.undo import DOCUMENT, UndoInput

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


def chance(driver: DriverPlan, state: HostState) -> str:
    """What becomes of a host whose new driver does not come up, in words."""
    nvidia = state.nvidia
    kept = "" if nvidia.answered else nvidia.kept
    before = kept or (nvidia.loaded if nvidia.loaded and not nvidia.says else "")
    if not before:
        return "no driver answers now, so that there is none to go back to"
    return f"{before} comes back by itself where {driver.wanted} does not answer"


def refused(driver: DriverPlan, state: HostState) -> RefusedDriver | None:
    """What was tried of that which is declared, and went back; None where it was not, or is there by now."""
    tried, installed = state.nvidia.refused, state.nvidia.version(driver.library)
    if tried is None or tried.kind != driver.kind or not driver.wants(tried.version):
        return None
    return None if installed and driver.wants(installed) else tried


def refuse_again(driver: DriverPlan, state: HostState, *, retry: bool) -> None:
    """Raise UserError where what is declared was tried and went back, unless by `retry`."""
    tried = refused(driver, state)
    if tried is None or retry:
        return
    stays = f", and {tried.before} serves as before" if state.nvidia.loaded == tried.before else ""
    if tried.slower:
        raise UserError(
            f"driver {tried.version} was tried on {tried.when}, and taken back: {tried.why}{stays}",
            "declare another branch or version, change `gate`, or `herd up --retry` to have it as slow as it is",
        )
    raise UserError(
        f"driver {tried.version} was tried on {tried.when}, and did not come up ({tried.why}){stays}",
        "declare another branch or version, or `herd up --retry` to try the same again",
    )
