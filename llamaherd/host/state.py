"""The state of a host as values: files, units, servers, GPUs and NVIDIA's driver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self, TypeVar

from llamaherd.host.wsl_state import WslState
from llamaherd.onhost.files import Disk
from llamaherd.onhost.hardware import GpuState, MachineState
from llamaherd.onhost.servers import ContainerState, Holder, ServingState, UnitState
from llamaherd.reference.packages import DRIVER_PARTS, DriverSource, branch_of, upstream_version
from llamaherd.text.numbers import whole_number

DRIVER_PACKAGES = (*DRIVER_PARTS, "dkms", "linux-image-[!0-9u]*", "linux-headers-[!0-9]*")
"""The packages that a host is asked about: a driver's, and those that stand for the newest kernel and its headers."""


class PackageState(NamedTuple):
    """A package that is installed: its version, and whose repository has that; None where none has it, or both.

    Its maintainer does not tell: NVIDIA's packaging is made from the distributions', and names theirs.
    """

    version: str
    source: DriverSource | None = None

    @property
    def branch(self) -> str | None:
        """The branch of the driver that it is of, where it counts by those."""
        return branch_of(self.version)


class Persistence(NamedTuple):
    """The unit of NVIDIA's persistence daemon, in systemd's words."""

    active: str
    enabled: str


class RefusedDriver(NamedTuple):
    """A driver that did not come up, or was too slow: its kind as a plan has it, when that was, what came back for it,
    and why."""

    version: str
    kind: str
    when: str
    before: str
    why: str


@dataclass
class DriverState:
    """What there is of the driver; what is not there is empty or None."""

    packages: dict[str, PackageState] = field(default_factory=dict)
    """By name."""
    loaded: str | None = None
    """The version of the module in the kernel."""
    uvm: bool = False
    """Whether the module for CUDA's memory is loaded too."""
    disk: dict[str, str] = field(default_factory=dict)
    """By kernel, the running one and the next: the version of the module that it would load."""
    library: str = ""
    """The version of the library that nvidia-smi speaks through."""
    says: str = ""
    """Why nvidia-smi shows nothing."""
    runfile: bool = False
    """Whether a driver was installed by NVIDIA's .run file, past the packages."""
    persistence: Persistence | None = None
    components: set[str] = field(default_factory=set)
    """Parts of repositories that apt knows, such as `main` and `non-free`."""
    free: int | None = None
    """Bytes free in /."""
    tried: str = ""
    """Driver and kernel that this host was rebooted for, while that driver is not loaded."""
    kept: str = ""
    """The version that the next boot goes back to, where the one that is installed does not answer."""
    judging: bool = False
    """Whether this boot is finding out just now whether the driver answers, or going back."""
    refused: RefusedDriver | None = None

    def version(self, library: str) -> str | None:
        """The driver's version, by the package that has it; None where that is not installed."""
        package = self.packages.get(library)
        return upstream_version(package.version) if package else None


class AddressedGpu(Protocol):
    """A GPU that is known by its UUID and its PCI address."""

    @property
    def uuid(self) -> str:
        """As nvidia-smi writes it."""

    @property
    def pci(self) -> str:
        """The same."""


Gpu = TypeVar("Gpu", bound=AddressedGpu)


def find_gpu(at: str, gpus: Iterable[Gpu]) -> Gpu | None:
    """The GPU that a plan means: by its UUID, its PCI address, or its number in the order of addresses."""
    in_order = sorted(gpus, key=lambda gpu: gpu.pci.upper())
    if (place := whole_number(at)) is not None:
        return in_order[place] if place < len(in_order) else None
    return next((gpu for gpu in in_order if at.upper() in (gpu.uuid.upper(), gpu.pci.upper())), None)


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
