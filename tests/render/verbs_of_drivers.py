"""Verbs of NVIDIA's driver, as documents: what is installed, how it is judged, and how it goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llamaherd.host.state import HostState, PackageState
from llamaherd.role.changes import Change, JudgedSince, MeasuredBefore, RebootHost, RunVerb
from roles.nvidia_driver.changes import driver_changes, load_changes, reboot
from roles.nvidia_driver.rollback import roll_back, settle_changes
from tests.render.pieces import not_loaded, other_driver
from tests.render.plans import DRIVER, SIGNED
from tests.support.ours import parse_state
from tests.support.rigs import converged, gpu_rig, planned
from tests.support.states import with_driver

GATED = planned(gpu_rig(), {"gpus/driver": {"branch": 580}, "instances/worker/gate": {"decode": "-3%"}})
BEFORE, VERSION = "570.211.01", "580.95.05"
REBOOT = reboot(VERSION, "6.8.0-88-generic", kept=True)

DRIVERS: dict[str, Callable[[], Sequence[Change]]] = {
    "driver_components": lambda: driver_changes(SIGNED, HostState())[:1],
    "driver_install": lambda: driver_changes(DRIVER, other_driver())[-1:],
    "driver_install_signed": lambda: driver_changes(SIGNED, HostState())[-1:],
    "driver_install_judged": lambda: driver_changes(GATED, other_version())[-1:],
    "driver_load": lambda: load_changes(DRIVER, not_loaded()),
    "driver_reboot": lambda: change(REBOOT.ask),
    "driver_booted": lambda: change(REBOOT.back),
    "driver_after_reboot": lambda: change(REBOOT.after),
    "driver_reading": lambda: change(measured().keep('{"format": 1}')),
    "driver_settled": lambda: settle_changes(GATED, answering(), retry=False),
    "driver_servers_settled": lambda: change(judged().settled),
    "driver_back": lambda: change(taken_back().ask),
    "driver_after_back": lambda: change(taken_back().after),
}


def change(how: RunVerb) -> list[Change]:
    """Return a change by a verb."""
    return [Change("reboot", "host", "gpu", (), how)]


def other_version() -> HostState:
    """As planned, but for the version of the driver, by which its servers run."""
    seen = parse_state(converged(GATED, {}))
    packages = {name: PackageState(f"{BEFORE}-1", "nvidia") for name in seen.driver.packages}
    return with_driver(seen, packages=packages, loaded=BEFORE)


def answering() -> HostState:
    """As planned since a boot, and what is kept of the driver before waits until this one is judged."""
    return with_driver(parse_state(converged(GATED, {})), kept=BEFORE, answered=True, reading="{}")


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
    return roll_back(GATED.driver, "580.95.05", BEFORE, "chat is slower by it: writing code -9.0%")
