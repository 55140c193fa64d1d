"""Changes that may cut the connection to a host: the host undoes them by itself, unless a new login disarms that.

systemd runs the undo by a timer, which outlives this connection and the run that began it. It does not survive a boot.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from llamaherd.layout import UNDO_RUN
from llamaherd.onhost.clients import systemctl
from llamaherd.onhost.disk import cannot_write
from llamaherd.onhost.document import VERSION, dump
from llamaherd.onhost.services import last_lines
from llamaherd.onhost.system import FailedError, System

UNDONE = "undone"
"""What a login reports where the host was faster."""


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
    # It was too late: until the undo has ended, nothing is known.
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
