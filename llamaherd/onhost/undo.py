"""Undo a change by a unit of systemd, after its program has ended or if no new login confirms it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from llamaherd.layout import LOCKS, UNDO_RUN
from llamaherd.onhost.clients import systemctl
from llamaherd.onhost.document import VERSION, dump
from llamaherd.onhost.files import cannot_write
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
    """Stop a guard, and wait until it has restored everything; do nothing if no guard runs."""
    systemctl(system, "stop", unit, seconds=_STOP_SECONDS)


def guard_waits(system: System, unit: str) -> bool:
    """Return whether a guard still waits: without it, nothing would be restored."""
    return systemctl(system, "-q", "is-active", unit).ok


UNDONE = "undone"
"""The report of a login if the host was faster."""


@dataclass(frozen=True)
class DisarmInput:
    """An undo, by its name, and how many seconds it may take once it has begun."""

    name: str
    patience: int


def arm(system: System, name: str, seconds: int, verb: str, given: object) -> None:
    """Let the host run a verb after so many seconds, unless a login disarms it before. Raise FailedError.

    The verb uses `undoing` of the same name.
    """
    path = f"{UNDO_RUN}/{name}"
    try:
        system.folder(str(UNDO_RUN), mode=0o700)
        system.remove(path)
        system.remove(f"{path}.undone")
        system.write(path, dump({"version": VERSION, "verb": verb, "input": given}))
    except OSError as error:
        raise cannot_write(error, "; nothing was changed") from error
    arm_within(system, name, seconds)


def arm_within(system: System, name: str, seconds: int) -> None:
    """Let an armed undo run so many seconds from now on. One that has begun is not armed again. Raise FailedError."""
    path, unit = f"{UNDO_RUN}/{name}", f"llamaherd-undo-{name}"
    if not system.entry(path):
        return
    systemctl(system, "stop", f"{unit}.timer")
    timer = ["systemd-run", "-q", "--collect", f"--unit={unit}", f"--on-active={seconds}"]
    program = ["/usr/bin/python3", "-I", system.program, path]
    started = system.run([*timer, "--timer-property=AccuracySec=1s", *program], seconds=90)
    if not started.ok:
        raise FailedError(f"the timer {unit} cannot be started", log=last_lines(started, 3))


@contextmanager
def undoing(system: System, name: str) -> Iterator[bool]:
    """Yield whether the change is to be undone. Timer and login both move one file, and the first decides."""
    path = f"{UNDO_RUN}/{name}"
    if not _move(system, path, f"{path}.begun"):
        yield False
        return
    try:
        yield True
    finally:
        system.rename(f"{path}.begun", f"{path}.undone")


def stop_timer(system: System, name: str) -> None:
    """Stop the timer of an undo that this program runs itself."""
    systemctl(system, "stop", f"llamaherd-undo-{name}.timer")


def forget_undone(system: System, name: str) -> None:
    """Forget that a change was undone: this run reports it itself."""
    system.remove(f"{UNDO_RUN}/{name}.undone")


def disarm(given: DisarmInput, system: System) -> None:
    """Disarm an undo: this login has reached the host. Report `undone` where the host was faster."""
    path = f"{UNDO_RUN}/{given.name}"
    if _move(system, path, f"{path}.disarmed"):
        stop_timer(system, given.name)
        system.remove(f"{path}.disarmed")
        return
    # It was too late: until the undo has ended, the state is unknown.
    for _ in range(given.patience):
        if not system.entry(f"{path}.begun"):
            break
        system.sleep(1)
    if system.entry(f"{path}.undone"):
        system.remove(f"{path}.undone")
        system.report(UNDONE)


def _move(system: System, path: str, to: str) -> bool:
    """Return whether this program was the first to move a file."""
    if not system.entry(path):
        return False
    try:
        system.rename(path, to)
    except FileNotFoundError:
        return False
    return True
