"""Suspend's part of the program on hosts: apply the timer and its program, and remove them."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.layout import (
    SUSPEND_PROGRAM,
    SUSPEND_RUN,
    SUSPEND_STATE,
    SUSPEND_TABLE,
    SUSPEND_TIMER,
    SUSPEND_UNIT,
    UNITS,
)
from llamaherd.onhost.clients import unit_properties
from llamaherd.onhost.files import WrittenFile, write_files
from llamaherd.onhost.services import enable_units, journal, locked, remove_service, restart_units
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import NoInput, Verb

_PURPOSE = "applying the suspend of this host"
_LOG_LINES = 5


@dataclass(frozen=True)
class ApplyInput:
    """The units, the program and its table."""

    files: tuple[WrittenFile, ...]


@dataclass(frozen=True)
class Found:
    """The state of the timer in systemd's word; empty if there is none."""

    timer: str = ""


def apply(given: ApplyInput, system: System) -> None:
    """Let the host suspend when it is not used. Raise FailedError if the timer does not run afterwards."""
    with locked(system, _PURPOSE):
        write_files(system, given.files)
        enable_units(system, [SUSPEND_TIMER])
        if not restart_units(system, [SUSPEND_TIMER]):
            log = journal(system, [SUSPEND_TIMER], _LOG_LINES)
            raise FailedError(f"{SUSPEND_TIMER} does not start", f"see `systemctl status {SUSPEND_TIMER}`", log)


def remove(_: NoInput, system: System) -> None:
    """Remove the timer, the program and its table."""
    with locked(system, _PURPOSE):
        paths = (UNITS / SUSPEND_UNIT, SUSPEND_PROGRAM, SUSPEND_TABLE, SUSPEND_RUN, SUSPEND_STATE)
        remove_service(system, [SUSPEND_TIMER], map(str, paths))


def inspect(_: NoInput, system: System) -> Found:
    """Return the state of the timer."""
    shown = unit_properties(system, SUSPEND_TIMER, "LoadState", "ActiveState")
    return Found("" if shown.get("LoadState", "not-found") == "not-found" else shown.get("ActiveState", ""))


VERBS = {"apply": Verb(ApplyInput, apply), "remove": Verb(NoInput, remove), "inspect": Verb(NoInput, inspect)}
