"""What a host is now, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Self

from llamaherd.host.driver import DriverState
from llamaherd.onhost.disk import Disk
from llamaherd.onhost.machine import MachineState
from llamaherd.onhost.nvidia_smi import GpuState
from llamaherd.onhost.serving import ContainerState, Holder, ServingState, UnitState
from llamaherd.wsl.state import WslState


@dataclass(frozen=True)
class FileState:
    """A file: octal mode, owner as number and as name, when it was written (seconds since the epoch), its sha256."""

    mode: str
    owner: tuple[str, str]
    written: float
    sha256: str


class FolderState(NamedTuple):
    """A folder: the permissions, and its owner's name."""

    mode: int
    owner: str


class UserState(NamedTuple):
    """An account: its shell and its groups, its own first."""

    shell: str
    groups: tuple[str, ...]


class StatePart:
    """What one role alone asks of a host. It lies in `HostState.parts`, by its class."""

    @classmethod
    def of(cls, state: HostState) -> Self:
        """What is known of it; as it is made where nothing is."""
        part = state.parts.get(cls)
        return part if isinstance(part, cls) else cls()

    @classmethod
    def within(cls, state: HostState) -> Self:
        """The same, to be told more."""
        part = state.parts.setdefault(cls, cls())
        assert isinstance(part, cls)
        return part

    @classmethod
    def keep(cls, state: HostState, found: Self) -> None:
        """Add what a role has found to the state of a host."""
        state.parts[cls] = found


@dataclass
class HostState:
    """All of it; what was not there is not in it."""

    unread: set[str] = field(default_factory=set)
    """Parts of the host that did not respond to the inspection, as `systemd`: what they know is not in it either."""
    os: str = ""
    arch: str = ""
    systemd: bool = False
    free: tuple[str, int, str] | None = None
    """Where builds go, or its nearest parent, the bytes free there, and the device."""
    store: Disk | None = None
    """The filesystem that models go to."""
    folders: dict[str, FolderState] = field(default_factory=dict)
    """Of our own folders those that are there."""
    closed: list[str] = field(default_factory=list)
    """What a server would read, and may not."""
    addresses: list[str] = field(default_factory=list)
    """The host's own, each with the length of its network's prefix."""
    listening: set[int] = field(default_factory=set)
    holders: dict[int, Holder] = field(default_factory=dict)
    """Who holds ports that are planned, and are none of our servers'."""
    own_ports: dict[int, str] = field(default_factory=dict)
    """By planned port: the unit of ours whose control group the process is in that holds it."""
    packages: set[str] = field(default_factory=set)
    users: dict[str, UserState] = field(default_factory=dict)
    twins: dict[str, str] = field(default_factory=dict)
    """Accounts of ours whose number another account has, too, and which."""
    passwords: set[str] = field(default_factory=set)
    """Accounts of ours that take a password."""
    files: dict[str, FileState] = field(default_factory=dict)
    fetcher: str = ""
    """The fingerprint of our programs there."""
    builds: dict[str, str] = field(default_factory=dict)
    """By build id: `done`, `built` but not let in yet, `building`; `intact`, but something is new about its files;
    `damaged`, since a program is not what was built."""
    sources: set[str] = field(default_factory=set)
    verified: dict[str, dict[str, tuple[int, float, str]]] = field(default_factory=dict)
    """By model folder and file: size, time and sha256 when it was last verified."""
    stored: dict[str, dict[str, tuple[int, float]]] = field(default_factory=dict)
    """By model folder and file: size and time now."""
    incoming: dict[str, int] = field(default_factory=dict)
    """What has arrived or is arriving, by the name in the store's `.incoming`: bytes of the disk."""
    kept: dict[str, int] = field(default_factory=dict)
    """Every revision in the store, by its folder: bytes that removing it would free."""
    fetch: str | None = None
    """The id of the fetch that runs."""
    units: dict[str, UnitState] = field(default_factory=dict)
    projects: set[str] = field(default_factory=set)
    containers: dict[str, ContainerState] = field(default_factory=dict)
    serving: dict[str, ServingState] = field(default_factory=dict)
    """What else is known of units and containers that run."""
    images: set[str] = field(default_factory=set)
    off_cards: set[str] = field(default_factory=set)
    """Containers that are healthy, and not on their GPUs: at boot Docker starts them without asking."""
    cards: list[GpuState] = field(default_factory=list)
    driver_says: str = ""
    """Why there is no GPU to be seen, in the words of nvidia-smi."""
    wsl: WslState | None = None
    """Where the host is a distribution of it."""
    machine: MachineState = field(default_factory=MachineState)
    repositories: dict[str, str] = field(default_factory=dict)
    """By name of those that we would add: a file of somebody else's that names the same address."""
    nvidia: DriverState = field(default_factory=DriverState)
    """The driver, where one is planned."""
    parts: dict[type[StatePart], StatePart] = field(default_factory=dict)
    """What single roles asked, by the class of it."""

    @property
    def kind(self) -> str:
        """What it is: `bare metal`, `virtual machine (kvm)`, `container (docker)`, `WSL`; empty where not known."""
        virtual = self.machine.virtual
        if self.wsl:
            return "WSL"
        if self.machine.in_container:
            return f"container ({virtual})"
        if virtual not in ("", "none"):
            return f"virtual machine ({virtual})"
        if self.machine.laptop:
            return "laptop"
        return "bare metal" if virtual else ""
