"""One measurement of a host at a time: its lock is held until the connection of the one that measures ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from llamaherd.onhost.conversation import heartbeat
from llamaherd.onhost.system import HeldError, System
from llamaherd.onhost.verbs import Verb

LOCK = "measure"
HELD = "llamaherd: the lock is held"
"""What `hold` reports once it holds the lock."""
_BEAT_SECONDS = 30


@dataclass(frozen=True)
class ExclusivityInput:
    """Who measures: a user and a machine."""

    who: str


@contextmanager
def measuring(system: System, who: str, seconds: float) -> Iterator[None]:
    """Hold the lock of measurements. Raise HeldError where another measurement holds it after so many seconds."""
    since = datetime.fromtimestamp(system.clock()).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    with system.claim(LOCK, seconds, f"{' '.join(who.split())} since {since}") as holder:
        if holder is not None:
            raise HeldError(
                f"another measurement goes on here, by {holder or 'a run that has just begun'}",
                "wait until it has ended",
            )
        yield


def hold(given: ExclusivityInput, system: System) -> None:
    """Hold the lock of measurements until the controller closes its end. Raise HeldError."""
    with measuring(system, given.who, 0), heartbeat(system, _BEAT_SECONDS):
        system.report(HELD)
        while system.receive() is not None:
            pass


VERBS = {"hold": Verb(ExclusivityInput, hold)}
