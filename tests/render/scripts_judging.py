"""Scripts of a driver that servers judge: what is kept before it, and how it goes."""

from __future__ import annotations

from collections.abc import Callable

from llamaherd.host.driver import PackageState
from llamaherd.host.state import HostState
from llamaherd.role.changes import JudgedSince, MeasuredBefore, RebootHost
from roles.nvidia_driver.changes import driver_changes
from roles.nvidia_driver.going_back import undo_files
from roles.nvidia_driver.judging import settle_changes, take_back
from tests.render.pieces import script
from tests.support.ours import parse_state
from tests.support.rigs import converged, gpu_rig, planned

GATED = planned(gpu_rig(), {"gpus/driver": {"branch": 580}, "instances/worker/gate": {"decode": "-3%"}})
BEFORE = "570.211.01"

JUDGING: dict[str, Callable[[], str]] = {
    "driver_undo_judged": lambda: undo_program(),
    "driver_reading": lambda: measured().keep('{"format": 1}'),
    "driver_no_reading": lambda: measured().keep(""),
    "step_driver_judged": lambda: script(driver_changes(GATED, other_version())),
    "step_driver_settled": lambda: script(settle_changes(GATED, answering(), retry=False)),
    "step_driver_servers_settled": lambda: judged().settled,
    "step_driver_back": lambda: taken_back().ask,
    "step_driver_after_back": lambda: taken_back().after,
}


def undo_program() -> str:
    """What judges a driver at the next boot, and keeps the one before where it answers."""
    assert GATED.driver
    return undo_files(GATED.driver, judged=True)[0].text


def other_version() -> HostState:
    """As planned, but for the version of the driver, by which its servers run."""
    seen = parse_state(converged(GATED, {}))
    seen.nvidia.packages = {name: PackageState(f"{BEFORE}-1", "nvidia") for name in seen.nvidia.packages}
    seen.nvidia.loaded = BEFORE
    return seen


def answering() -> HostState:
    """As planned since a boot, and what is kept of the driver before waits until this one is judged."""
    seen = parse_state(converged(GATED, {}))
    seen.nvidia.kept, seen.nvidia.answered, seen.nvidia.reading = BEFORE, True, "{}"
    return seen


def measured() -> MeasuredBefore:
    """What is measured before the driver is changed."""
    found = driver_changes(GATED, other_version())[-1].measured
    assert found
    return found


def judged() -> JudgedSince:
    """What is measured since."""
    found = settle_changes(GATED, answering(), retry=False)[-1].judged
    assert found
    return found


def taken_back() -> RebootHost:
    """How a driver goes that a server is slower by."""
    assert GATED.driver
    return take_back(GATED.driver, "580.95.05", BEFORE, "chat is slower by it: writing code -9.0%")
