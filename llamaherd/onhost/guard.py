"""A guard: a unit of systemd that restores what a measurement changed, whatever ends the program that changed it.

The guard waits for a lock that the program holds alone. The kernel opens the lock with the program's end. systemd then
runs a verb of a copy of the program.
"""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.layout import LOCKS
from llamaherd.onhost.clients import systemctl
from llamaherd.onhost.disk import cannot_write
from llamaherd.onhost.document import VERSION, dump
from llamaherd.onhost.services import last_lines
from llamaherd.onhost.system import FailedError, System

_STOP_SECONDS = 4 * 3600
"""A restore may load a server again, or query a slow driver."""


@dataclass(frozen=True)
class Guard:
    """A unit, its folder in /run, the lock that it waits for, and the seconds after which it no longer waits.

    `patience` is how long its verb may take; None for systemd's own limit.
    """

    unit: str
    folder: str
    lock: str
    description: str
    longest: int
    patience: int | None = None


def start_guard(system: System, guard: Guard, verb: str, given: object) -> None:
    """Let the host run a verb once this program has ended. Raise FailedError.

    The program is copied: a measurement may take longer than this version is kept on the host.
    """
    program, document = f"{guard.folder}/program.pyz", f"{guard.folder}/restore.json"
    try:
        system.remove(guard.folder)
        system.folder(guard.folder, mode=0o700)
        system.copy(system.program, program)
        system.write(document, dump({"version": VERSION, "verb": verb, "input": given}))
    except OSError as error:
        raise cannot_write(error, "; nothing was changed") from error
    properties = ["Type=exec", f"RuntimeMaxSec={guard.longest}"]
    properties += [] if guard.patience is None else [f"TimeoutStopSec={guard.patience}"]
    properties += [
        f"ExecStopPost=/usr/bin/python3 -I {program} {document}",
        f"ExecStopPost=/bin/rm -rf {guard.folder}",
    ]
    words = [word for each in properties for word in ("-p", each)]
    unit = ["systemd-run", "-q", "--collect", f"--unit={guard.unit}", f"--description={guard.description}", *words]
    started = system.run([*unit, "flock", f"{LOCKS}/{guard.lock}", "true"], seconds=90)
    if not started.ok:
        raise FailedError(f"the guard {guard.unit} cannot be started; nothing was changed", log=last_lines(started, 3))


def stop_guard(system: System, unit: str) -> None:
    """Stop a guard, and wait until it has restored what was changed; do nothing if no guard runs."""
    systemctl(system, "stop", unit, seconds=_STOP_SECONDS)


def guard_waits(system: System, unit: str) -> bool:
    """Return whether a guard still waits: without it, nothing would be restored."""
    return systemctl(system, "-q", "is-active", unit).ok
