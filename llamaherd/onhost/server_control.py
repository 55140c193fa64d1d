"""The inputs and results of verbs that print the log of a server, stop it, start it or pause it, and paused servers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from llamaherd.layout import PAUSED
from llamaherd.onhost.document import DocumentError, decode, parse_document
from llamaherd.onhost.reservation import RunLockInput
from llamaherd.onhost.system import System
from llamaherd.onhost.verbs import NoInput, Verb

MOST_LINES = 10_000
"""Lines of a log that one command prints."""
LONGEST_PAUSE = 30 * 86_400
"""Seconds."""


@dataclass(frozen=True)
class LogsInput:
    """A part of a server's log: its last `lines`, of the last `since` seconds, with a text in them.

    `follow`: further lines are sent until the controller has ended.
    """

    name: str
    service: str
    unit: bool
    """Whether it is a unit of systemd, and not a container."""
    lines: int
    since: int | None = None
    grep: str = ""
    """Upper and lower case are the same. Empty for all lines."""
    follow: bool = False


@dataclass(frozen=True)
class ControlledServer:
    """A server that is stopped or started: its names, its port, and how long its running requests may take to end."""

    name: str
    service: str
    port: int
    drain_seconds: int


@dataclass(frozen=True)
class ControlInput:
    """Servers to stop or to start, and the lock of the run.

    `anew`: a running server is restarted. `seconds` is the length of a pause.
    """

    lock: RunLockInput
    servers: tuple[ControlledServer, ...]
    anew: bool = False
    seconds: int = 0


@dataclass(frozen=True)
class ServerResult:
    """The result of one server: how long it took, and whether anything was changed.

    `why` is the reason of a failure; empty if it succeeded.
    """

    seconds: float
    changed: bool
    why: str = ""


@dataclass(frozen=True)
class ControlResult:
    """The results by the names of servers."""

    servers: Mapping[str, ServerResult] = field(default_factory=dict)


@dataclass(frozen=True)
class PauseEndInput:
    """The server whose pause ends now."""

    server: ControlledServer


_MOST_BYTES = 1 << 12
_MOST_SERVERS = 1000


@dataclass(frozen=True)
class Pause:
    """The record of a pause: its server, its begin and its end, in seconds since 1970 by the clock of the host."""

    server: str
    since: float
    until: float


@dataclass(frozen=True)
class Pauses:
    """The seconds that are left of each pause, by the name of the server. 0 for a pause that is about to end."""

    left: Mapping[str, float] = field(default_factory=dict)


def record_of(service: str) -> str:
    """Return the path of a server's record."""
    return f"{PAUSED}/{service}/pause.json"


def read_pause(service: str, system: System) -> Pause | None:
    """Return the record of a server; None if it is not paused."""
    data = system.read_bytes(record_of(service), _MOST_BYTES)
    with suppress(DocumentError):
        return None if data is None else decode(Pause, parse_document(data))
    return None


def left_of(service: str, system: System) -> float | None:
    """Return the seconds that are left of a server's pause; None if it is not paused."""
    pause = read_pause(service, system)
    return _left(pause, system) if pause else None


def _left(pause: Pause, system: System) -> float:
    """Return the seconds that are left of a pause.

    The host's clock alone decides, so clocks that differ do not matter. If that clock is set back, no more is left than
    the whole pause.
    """
    return max(0.0, min(pause.until - system.clock(), pause.until - pause.since))


def pauses(given: NoInput, system: System) -> Pauses:
    """Return all pauses of this host."""
    del given
    records = (read_pause(service, system) for service in system.names(str(PAUSED))[:_MOST_SERVERS])
    return Pauses({pause.server: _left(pause, system) for pause in records if pause})


VERBS = {"pauses": Verb(NoInput, pauses)}
