"""Allow one measurement of a host: hold the lock of measurements until the connection of the measurement ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from llamaherd.onhost.conversation import heartbeat, receive
from llamaherd.onhost.system import POLL_SECONDS, HeldError, LockFile, System
from llamaherd.onhost.verbs import Verb

LOCK = "measure"
HELD = "llamaherd: the lock is held"
"""What `hold` reports once it holds the lock."""
_BEAT_SECONDS = 30


@dataclass(frozen=True)
class ExclusivityInput:
    """The user and the machine that measure."""

    who: str


@contextmanager
def measuring(system: System, who: str, seconds: float) -> Iterator[None]:
    """Hold the lock of measurements. Raise HeldError if another measurement still holds it after so many seconds."""
    with system.lock_file(LOCK) as lock:
        if not take_within(lock, seconds, system):
            raise HeldError(
                f"another measurement goes on here, by {lock.holder() or 'a run that has just begun'}",
                "wait until it has ended",
            )
        lock.sign(" ".join(who.split()))
        yield


def take_within(lock: LockFile, seconds: float, system: System) -> bool:
    """Return whether a lock becomes free within so many seconds, and hold it."""
    until = system.now() + seconds
    while not lock.take():
        if system.now() >= until:
            return False
        system.sleep(POLL_SECONDS)
    return True


def hold(given: ExclusivityInput, system: System) -> None:
    """Hold the lock of measurements until the controller closes its end. Raise HeldError."""
    with measuring(system, given.who, 0), heartbeat(system, _BEAT_SECONDS):
        system.report(HELD)
        while receive(system) is not None:
            pass


VERBS = {"hold": Verb(ExclusivityInput, hold)}
