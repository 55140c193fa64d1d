"""Servers for trial: the input of the verbs `serve.trials.run` and `serve.trials.restore`, and what they report.

The controller sends `go` after MINE, if servers are stopped, and then commands: `start TRIAL`, `stop`, `unit BASE64`
and `judge BYTES`.
"""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.onhost.files import WrittenFile

MINE, READY_TO_START = "mine", "armed"
"""`mine`: no other run changes the host from now on. `armed`: the declared servers are stopped, or run side by side."""


@dataclass(frozen=True)
class NeededGpu:
    """Bytes that a trial needs on a GPU, which `at` identifies."""

    name: str
    at: str
    need: int


@dataclass(frozen=True)
class TrialServer:
    """A server for trial: its name in commands, its unit, and the memory that it needs for certain."""

    trial: str
    service: str
    ram: int = 0
    gpus: tuple[NeededGpu, ...] = ()


@dataclass(frozen=True)
class StoppedServer:
    """A declared server to stop during the trials, and the folder of its kept versions."""

    service: str
    kept: str


@dataclass(frozen=True)
class TrialsInput:
    """Servers for trial, one after another in place of declared ones that are stopped, or side by side with all.

    `longest` and `patience` are seconds: until the host restores everything in any case, and for the restore itself.
    """

    name: str
    """The service of the declared server."""
    who: str
    servers: tuple[TrialServer, ...]
    stops: tuple[StoppedServer, ...]
    drain_seconds: int
    longest: int
    patience: int
    files: tuple[WrittenFile, ...]
    leftovers: tuple[str, ...]
    """Paths that are removed in the end."""
    placed: str = ""
    """The unit that the controller may replace; empty if it may replace none."""
    scratch: str = ""
    """The folder for files of programs that run to their end; empty if there are none."""


@dataclass(frozen=True)
class RestoreServersInput:
    """Units for trial to stop, paths to remove, and units to start again."""

    services: tuple[str, ...]
    leftovers: tuple[str, ...]
    served: tuple[str, ...]
