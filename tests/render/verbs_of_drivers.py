"""Verbs of NVIDIA's driver, as documents: what is installed and how a host is rebooted for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llamaherd.host.state import HostState
from llamaherd.role.changes import Change, RunVerb
from roles.nvidia_driver.changes import driver_changes, load_changes, reboot
from tests.render.pieces import not_loaded, other_driver
from tests.render.plans import DRIVER, SIGNED

REBOOT = reboot("580.95.05", "6.8.0-88-generic", kept=True)

DRIVERS: dict[str, Callable[[], Sequence[Change]]] = {
    "driver_components": lambda: driver_changes(SIGNED, HostState())[:1],
    "driver_install": lambda: driver_changes(DRIVER, other_driver())[-1:],
    "driver_install_signed": lambda: driver_changes(SIGNED, HostState())[-1:],
    "driver_load": lambda: load_changes(DRIVER, not_loaded()),
    "driver_reboot": lambda: change(REBOOT.ask),
    "driver_booted": lambda: change(REBOOT.back),
    "driver_after_reboot": lambda: change(REBOOT.after),
}


def change(how: RunVerb) -> list[Change]:
    """Return a change by a verb."""
    return [Change("reboot", "host", "gpu", (), how)]
