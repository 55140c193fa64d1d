"""The lock of the host: one run at a time changes the host. Its holder is a process that lives as long as the run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from llamaherd.onhost.system import POLL_SECONDS, FailedError, LockFile, System
from llamaherd.onhost.verbs import Verb

HELD = "held"
"""The value that the verb sends once this run holds the lock."""
KEEPALIVE_SECONDS = 30
"""Seconds between empty lines. A broken connection ends some minutes after a lost line, and releases the lock."""
KILL_SECONDS = 5
_RUN = "run"
_UNNAMED = "a run that has just begun"


@dataclass(frozen=True)
class HoldInput:
    """The run that takes the lock of a rig's host, and the seconds that it waits for another run."""

    rig: str
    who: str
    seconds: int


@dataclass(frozen=True)
class UnlockInput:
    """Nothing: a host has one such lock."""


@dataclass(frozen=True)
class Unlocked:
    """The result of `unlock`: the lock was free, it was broken, or its holder could not be ended."""

    state: Literal["free", "broken", "held"]
    holder: str = ""


def hold(given: HoldInput, system: System) -> None:
    """Hold the lock of the host until the controller has ended. Raise FailedError where another run keeps it."""
    with system.lock_file(_RUN) as lock:
        if not _is_taken(lock, given, system):
            return
        # This waits for changes that a killed run began: after them, the host can be inspected.
        with system.lock("host", given.seconds, "beginning a run"):
            pass
        lock.sign(given.who)
        system.send(HELD)
        while (line := system.next_line(KEEPALIVE_SECONDS)) != "":
            if line is None:
                system.report("")


def _is_taken(lock: LockFile, given: HoldInput, system: System) -> bool:
    """Wait for the lock. Return False where the controller has ended meanwhile."""
    until = system.now() + given.seconds
    is_first = True
    while not lock.take():
        holder = lock.holder() or _UNNAMED
        if system.now() >= until:
            raise FailedError(
                f"another run changes this host, by {holder}",
                f"wait until it has ended and run again; if it is gone for good, `herd unlock {given.rig}` breaks its "
                "lock",
            )
        if is_first:
            system.report(f"waiting for another run on this host, by {holder}, for up to {given.seconds} s")
        is_first = False
        if system.next_line(POLL_SECONDS) == "":
            return False
    return True


def unlock(given: UnlockInput, system: System) -> Unlocked:
    """Break the lock of the host: kill the process that holds it."""
    del given
    with system.lock_file(_RUN) as lock:
        if lock.take():
            return Unlocked("free")
        holder = lock.holder()
        found = re.search(r"(?:^| )process ([0-9]{1,10})$", holder)
        if not found:
            return Unlocked("held", holder)
        pid = int(found[1])
        if _has_open(pid, lock.path, system):
            system.kill(pid)
        for _ in range(KILL_SECONDS):
            # Another run may have waited for the lock, and hold it now.
            if not _has_open(pid, lock.path, system):
                return Unlocked("broken", holder)
            system.sleep(1)
        return Unlocked("held", holder)


def _has_open(pid: int, path: str, system: System) -> bool:
    folder = f"/proc/{pid}/fd"
    return any(system.target(f"{folder}/{name}") == path for name in system.names(folder))


VERBS = {"hold": Verb(HoldInput, hold), "unlock": Verb(UnlockInput, unlock)}
