"""Hold the lock of measurements until the connection ends, and read the commands that arrive on it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from types import FrameType

from llamaherd.onhost.system import POLL_SECONDS, HeldError, LockFile, System
from llamaherd.onhost.verbs import Verb

BEAT_SECONDS = 15
"""Seconds between two empty lines of a verb that waits, or whose programs take long."""


_LONGEST_SILENCE = 3600.0


def receive(system: System) -> str | None:
    """Wait for the next line that the controller sends after the document; None once the connection has ended."""
    while (line := system.next_line(_LONGEST_SILENCE)) is None:
        pass
    return line.rstrip("\n") if line else None


@contextmanager
def heartbeat(system: System, seconds: float = BEAT_SECONDS) -> Iterator[None]:
    """Print an empty line now and then: by this, sshd detects a broken connection, and ends it."""
    ended = Event()

    def beat() -> None:
        while not ended.wait(seconds):
            system.report("")

    thread = Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def exit_by_signals() -> Iterator[None]:
    """Let signals that end this program raise SystemExit, so that it restores what it changed."""

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise SystemExit(1)

    before = {each: signal.signal(each, end) for each in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


LOCK = "measure"
HELD = "llamaherd: the lock is held"
"""The line of `hold` once it holds the lock."""
_BEAT_SECONDS = 30


@dataclass(frozen=True)
class ExclusivityInput:
    """The user and the machine that measure, as the lock stores them."""

    who: str


@contextmanager
def measuring(system: System, who: str, seconds: float) -> Iterator[None]:
    """Hold the lock of measurements. Raise HeldError if another measurement still holds it after so many seconds."""
    with system.lock_file(LOCK) as lock:
        if not take_within(lock, seconds, system):
            raise HeldError(
                f"another measurement runs on this host, by {lock.holder() or 'a run that has just begun'}",
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
