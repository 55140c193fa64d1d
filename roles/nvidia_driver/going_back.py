"""A driver that does not come up after its reboot goes back to the version before by itself, and is not tried again."""

from __future__ import annotations

from typing import Any

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.driver import RefusedDriver
from llamaherd.host.state import HostState
from llamaherd.layout import (
    DRIVER_ARMED,
    DRIVER_BEFORE,
    DRIVER_HELD,
    DRIVER_KEPT,
    DRIVER_READING,
    DRIVER_REFUSED,
    DRIVER_UNDO,
    DRIVER_UNDO_UNIT,
    DRIVER_WANTED,
    REBOOT_MARK,
    REBOOT_NOTE,
    UNITS,
)
from llamaherd.plan import DriverPlan, TextFile
from llamaherd.reference.drivers import DRIVER_TOOLS, PARTS
from llamaherd.render import render
from llamaherd.role.changes import put_files
from llamaherd.text.quoting import Written

ANSWER_SECONDS = 60
"""How long a driver may take to answer after a boot, beyond what one call of nvidia-smi takes."""

MOST_KEPT = 10**9
"""Bytes of packages that are kept: a driver for computing has 0.4 GB of them, with its desktop 0.7 GB."""

BESIDE_KEPT = 2 * 10**9
"""Bytes that must be free besides: what the new driver takes."""

JUDGING_SECONDS = 3600
"""How long the judging may take at most: apt may be held for ten minutes, and modules are compiled."""

BACK_SECONDS = 1800
"""How much longer a host is waited for that may go back: modules are compiled, and it boots once more."""

WHERE = {
    "before": DRIVER_BEFORE,
    "armed": DRIVER_ARMED,
    "refused": DRIVER_REFUSED,
    "undo_unit": DRIVER_UNDO_UNIT,
    "undo_file": UNITS / DRIVER_UNDO_UNIT,
}
"""What templates call the places."""

_WRITTEN = (DRIVER_KEPT, DRIVER_WANTED, DRIVER_HELD)
"""What the way back brings back besides packages."""


def way_back(driver: DriverPlan, *, judged: bool) -> Written:
    """The script, within that which installs, that keeps the driver that works and has the next boot judge.

    `judged`: what is kept stays after that boot, where something was measured before it.
    """
    return render(
        "nvidia_driver/keep.sh.j2",
        **WHERE,
        library=driver.library,
        families=PARTS,
        tools=DRIVER_TOOLS,
        files=_WRITTEN,
        most=MOST_KEPT,
        room=BESIDE_KEPT,
        put=put_files(undo_files(driver, judged=judged)),
        judged=judged,
        reading=DRIVER_READING,
    )


def undo_files(driver: DriverPlan, *, judged: bool = False) -> tuple[TextFile, ...]:
    """The program that judges at the next boot, and the unit that starts it. `judged` as above."""
    values: dict[str, Any] = {
        **WHERE,
        "kind": driver.kind,
        "files": _WRITTEN,
        "seconds": ANSWER_SECONDS,
        "note": REBOOT_NOTE,
        "mark": REBOOT_MARK,
        "may_reboot": driver.reboot,
        "judged": judged,
        "reading": DRIVER_READING,
    }
    program = render("nvidia_driver/driver-undo.sh.j2", **values)
    unit = render(
        "nvidia_driver/driver-undo.service.j2", before=DRIVER_BEFORE, program=DRIVER_UNDO, most_seconds=JUDGING_SECONDS
    )
    return (
        TextFile(path=str(DRIVER_UNDO), text=program, mode="0755"),
        TextFile(path=str(UNITS / DRIVER_UNDO_UNIT), text=unit),
    )


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
