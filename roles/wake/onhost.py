"""The part of the program on hosts that lets a gateway's host wake rigs."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.layout import GATEWAY_USER, UNITS, WAKE_PROGRAM, WAKE_SOCKET, WAKE_TABLE, WAKE_UNIT
from llamaherd.onhost.clients import unit_properties
from llamaherd.onhost.files import WrittenFile, write_files
from llamaherd.onhost.services import enable_units, journal, locked, remove_service, require_installed, restart_units
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import NoInput, Verb

_LOG_LINES = 5


@dataclass(frozen=True)
class ApplyInput:
    """The units, the program and its table. `restart`: the socket does not listen as its unit has it."""

    files: tuple[WrittenFile, ...]
    restart: bool


@dataclass(frozen=True)
class Found:
    """The state of the socket in systemd's word; empty if there is none."""

    socket: str = ""


def apply(given: ApplyInput, system: System) -> None:
    """Let the gateway's host wake rigs. Raise FailedError if the socket does not listen afterwards."""
    with locked(system, "applying what wakes rigs"):
        require_installed(system, "HAProxy", [], GATEWAY_USER)
        write_files(system, given.files)
        enable_units(system, [WAKE_SOCKET])
        if given.restart and not restart_units(system, [WAKE_SOCKET]):
            log = journal(system, [WAKE_SOCKET], _LOG_LINES)
            raise FailedError(f"{WAKE_SOCKET} does not listen", f"see `systemctl status {WAKE_SOCKET}`", log)


def remove(_: NoInput, system: System) -> None:
    """Remove the socket, the program and its table."""
    with locked(system, "removing what wakes rigs"):
        remove_service(system, [WAKE_SOCKET], [str(UNITS / WAKE_UNIT), str(WAKE_PROGRAM), str(WAKE_TABLE)])


def inspect(_: NoInput, system: System) -> Found:
    """Return the state of the socket."""
    shown = unit_properties(system, WAKE_SOCKET, "LoadState", "ActiveState")
    return Found("" if shown.get("LoadState", "not-found") == "not-found" else shown.get("ActiveState", ""))


VERBS = {"apply": Verb(ApplyInput, apply), "remove": Verb(NoInput, remove), "inspect": Verb(NoInput, inspect)}
