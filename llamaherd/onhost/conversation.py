"""Verbs that take commands: they read lines until the connection ends, and then restore what they changed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from types import FrameType

from llamaherd.onhost.system import System

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
