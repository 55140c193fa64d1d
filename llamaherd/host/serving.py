"""Servers as they are on a host: see `templates/serve/inspect.sh.j2`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from llamaherd.host.limits import ContainerLimits
from llamaherd.text.numbers import parse_whole

BEFORE_OURS = (
    *("/etc/systemd/system.control", "/run/systemd/system.control"),
    *("/run/systemd/transient", "/run/systemd/generator.early"),
)
"""Where systemd looks for a unit before it comes to ours (systemd.unit, unit file load path)."""

UNIT_ROOTS = (
    *BEFORE_OURS,
    *("/etc/systemd/system", "/etc/systemd/system.attached", "/run/systemd/system", "/run/systemd/system.attached"),
    *("/run/systemd/generator", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"),
    "/run/systemd/generator.late",
)
"""All folders that it reads units and drop-ins from."""


DECIDING = (
    "^[ \t]*(Exec[A-Za-z]*|User|Group|DynamicUser|SupplementaryGroups|Environment|EnvironmentFile|PassEnvironment"
    "|UnsetEnvironment|RootDirectory|RootImage)[ \t]*="
)
"""The keys that decide what is run as whom. Others loosen walls, as containers must."""


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
    limits: ContainerLimits = field(default_factory=dict)


class Refused(NamedTuple):
    """What was tried and taken back: when, by the host's clock, and why."""

    tried: str
    when: str
    why: str


class Loaded(NamedTuple):
    """How long a start took, in seconds from the stop of what served before, and the folders that it read."""

    seconds: float
    folders: tuple[str, ...]


class Holding(NamedTuple):
    """The bytes that the server of a spec was planned to hold, by GPU, and of RAM those that it cannot do without."""

    spec: str
    room: dict[str, int]


@dataclass
class ServingState:
    """What else is known of a server."""

    changed: list[str] = field(default_factory=list)
    """What is no longer as it was when the server was started: files that it reads, or the record of them itself."""
    foreign: list[str] = field(default_factory=list)
    """Files of others that change this unit alone: drop-ins, and definitions that come before ours."""
    shared: dict[str, str] = field(default_factory=dict)
    """Drop-ins that change other units too, and which keys they set that decide what is run as whom."""
    argv: str = ""
    """The sha256 of its arguments as /proc has them."""
    replaced: str = ""
    """The program that it runs an older one of."""
    user: str = ""
    """The number of the user that its process is, where that is not its account's."""
    groups: str = ""
    """Numbers of the groups that its process is in beside its own."""
    variables: str = ""
    """Names of variables that its process has otherwise than declared."""
    given_to_all: str = ""
    """Of these, what systemd gives to each unit that it starts."""
    hangs: str = ""
    """Why it surely answers nobody."""
    untried: list[str] = field(default_factory=list)
    """The specs of what was started and has not answered a prompt: a run was cut off before."""
    beside: bool = False
    """Whether a server that was tried beside it is still there: a run was cut off before."""
    refused: Refused | None = None
    """What it was to be, and could not."""
    loaded: Loaded | None = None
    """How its last start went, as far as it was ours."""
    holding: Holding | None = None
    """What the server that was kept last was planned to hold."""

    def tell(self, what: str, fields: Sequence[str]) -> None:
        """Take in one line of the answer. Raises ValueError on one that cannot have been printed."""
        match what, fields:
            case "changed", [_, path]:
                self.changed.append(path)
            case "foreign", [path]:
                self.foreign.append(path)
            case "shared", [path, keys]:
                self.shared[path] = keys
            case "argv", [sha256]:
                self.argv = sha256
            case "replaced", [path]:
                self.replaced = path
            case "user", [number]:
                self.user = number
            case "groups", [numbers]:
                self.groups = numbers
            case "variables", [names, given]:
                self.variables, self.given_to_all = names, given.strip()
            case "hangs", [why]:
                self.hangs = why
            case "loaded", [milliseconds, *folders]:
                self.loaded = Loaded(parse_whole(milliseconds) / 1000, tuple(folders))
            case "holding", [spec, *room]:
                pairs = (each.rpartition("=") for each in room)
                self.holding = Holding(spec, {where: parse_whole(size) for where, _, size in pairs})
            case "untried", [spec]:
                self.untried.append(spec)
            case "beside", []:
                self.beside = True
            case "refused", [tried, when, why]:
                self.refused = Refused(tried, when, why)
            case _:
                raise ValueError(what)
