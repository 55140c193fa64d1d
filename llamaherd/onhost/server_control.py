"""The inputs and results of verbs that print the log of a server, stop it, start it or pause it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llamaherd.onhost.reservation import RunLockInput

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
