"""Servers as values that controller and host exchange: their state in an inspection, and the input of trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llamaherd.onhost.files import WrittenFile


@dataclass(frozen=True)
class UnitState:
    """A unit of ours: `run` is systemd's id of its last start, and `port` the one that its process was given.

    `waits_for` is the port that its file gives it, where it has no process: it may start at any moment.
    """

    active: str
    enabled: str
    needs_reload: bool
    run: str
    spec: str
    port: int | None = None
    waits_for: int | None = None


@dataclass(frozen=True)
class ContainerState:
    """A container of ours; `run` is Docker's id of it."""

    status: str
    health: str
    run: str
    spec: str
    port: int | None = None
    limits: Mapping[str, str] = field(default_factory=dict)
    """By Docker's names, those that are set."""


@dataclass(frozen=True)
class Holder:
    """A process that holds a port, and its container, if it is Docker's."""

    pid: int
    program: str
    container: str


@dataclass(frozen=True)
class Refused:
    """An attempt that was rolled back: its identity, when, by the host's clock, and why."""

    tried: str
    when: str
    why: str


@dataclass(frozen=True)
class Loaded:
    """The seconds of a start, from the stop of the server before, and the folders that it read."""

    seconds: float
    folders: tuple[str, ...]


@dataclass(frozen=True)
class FailedSwitch:
    """A server that could not be changed: why, and what serves now. A verb sends it before it fails.

    `reason` is the line of the engine's log that names why it ended; empty if there is none.
    """

    service: str
    why: str
    reason: str = ""
    serves: bool = False
    """Whether the previous version, or what was to be replaced, serves."""
    downtime: float | None = None
    """Seconds without a server until that served again; None if it never stopped."""


@dataclass(frozen=True)
class StartedServer:
    """A server that was started and serves, and how fast it decoded its first responses. A verb sends it.

    `downtime` are the seconds from the stop of the version before until this one was healthy; None if none ran before,
    or if another server took its requests meanwhile.
    """

    service: str
    tokens_per_second: float | None
    downtime: float | None = None


@dataclass(frozen=True)
class Holding:
    """The planned memory of the server of a spec, in bytes, by GPU, and of RAM the part that it cannot do without."""

    spec: str
    room: Mapping[str, int]


@dataclass(frozen=True)
class ServingState:
    """The stored state of a server, and the state of its process."""

    changed: tuple[str, ...] = ()
    """Changes since the start of the server: files that it reads, or the record of them itself."""
    foreign: tuple[str, ...] = ()
    """Drop-ins of other programs for this unit alone, and unit files with precedence over llamaherd's."""
    other_unit: str = ""
    """The unit file of this name that llamaherd did not write."""
    shared: Mapping[str, str] = field(default_factory=dict)
    """Drop-ins for several units, and the keys in them that decide the program and its user."""
    argv: str = ""
    """The sha256 of its arguments as /proc has them."""
    arguments: tuple[str, ...] = ()
    """Its program and these arguments, if it has no more than a person would compare."""
    replaced: str = ""
    """The program of which it runs an older version."""
    user: str = ""
    """The number of the user of its process, if that is not its account's."""
    groups: str = ""
    """Numbers of the additional groups of its process."""
    variables: str = ""
    """Names of variables whose values in its process differ from the declared ones."""
    given_to_all: str = ""
    """Of these, the variables that systemd gives to each unit."""
    hangs: str = ""
    """Why it certainly does not respond."""
    untried: tuple[str, ...] = ()
    """The specs of started servers that have not responded to a prompt: a run was interrupted before."""
    beside: bool = False
    """Whether a candidate that ran side by side still exists: a run was interrupted before."""
    refused: Refused | None = None
    """The version that it failed to become."""
    loaded: Loaded | None = None
    """Its last start, if llamaherd made it."""
    holding: Holding | None = None
    """The planned memory of the last server that was kept."""
    pause_left: float | None = None
    """The seconds that are left of its pause; None if it has no record of a pause."""


MINE, READY_TO_START = "mine", "armed"
"""`mine`: no other run changes the host from now on. `armed`: the declared servers are stopped, or run side by side."""


@dataclass(frozen=True)
class NeededGpu:
    """Bytes that must be free on a GPU, which `at` identifies: an index, a PCI address or a UUID."""

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
    holder: str
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
