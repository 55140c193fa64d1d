"""The inspected state of a host: `HostState`, and the parts of it that several roles read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, Self, TypeVar

from llamaherd.onhost.hardware import GpuState, MachineState
from llamaherd.onhost.servers import ContainerState, ServingState, UnitState
from llamaherd.reference.packages import DRIVER_PARTS, DriverSource, branch_of, upstream_version
from llamaherd.text.numbers import whole_number

DRIVER_PACKAGES = (*DRIVER_PARTS, "dkms", "linux-image-[!0-9u]*", "linux-headers-[!0-9]*")
"""The packages to inspect: those of a driver, and those that depend on the newest kernel and its headers."""


@dataclass(frozen=True)
class FileState:
    """A file: octal mode, owner as number and as name, when it was written (seconds since the epoch), its sha256."""

    mode: str
    owner: tuple[str, str]
    written: float
    sha256: str


@dataclass(frozen=True)
class StatePart:
    """A part of a host's state that one role inspects. Each of its fields has a default, for what was not found."""

    @classmethod
    def of(cls, state: HostState) -> Self:
        """Return this part of the state; the defaults if the role inspected nothing."""
        part = state.parts.get(cls)
        return part if isinstance(part, cls) else cls()


_STOPPED = ("inactive", "failed", "exited", "created", "dead")
"""States of units and containers that do not run, and are not about to."""


@dataclass(frozen=True)
class HostState:
    """The state of a host: the files that roles name, and the parts that roles inspect, by class."""

    files: Mapping[str, FileState] = field(default_factory=dict)
    parts: Mapping[type[StatePart], StatePart] = field(default_factory=dict)
    unsettled: str = ""
    """Why the newest release has not the state of the host; empty if it has, or if there is none."""

    @classmethod
    def of(cls, *parts: StatePart, files: Mapping[str, FileState] | None = None) -> HostState:
        """Return the state with these parts."""
        return cls(files or {}, {type(part): part for part in parts})

    def with_parts(self, *parts: StatePart) -> HostState:
        """Return this state with these parts instead of those of the same classes."""
        return replace(self, parts={**self.parts, **{type(part): part for part in parts}})

    @property
    def system(self) -> SystemState:
        """Return the operating system and the machine."""
        return SystemState.of(self)

    @property
    def gpus(self) -> GpusState:
        """Return the GPUs that the driver shows."""
        return GpusState.of(self)

    @property
    def driver(self) -> DriverState:
        """Return the state of NVIDIA's driver, if a driver is planned."""
        return DriverState.of(self)

    @property
    def engines(self) -> EnginesState:
        """Return the builds of engines."""
        return EnginesState.of(self)

    @property
    def models(self) -> ModelsState:
        """Return the models in the store."""
        return ModelsState.of(self)

    @property
    def servers(self) -> ServersState:
        """Return the servers."""
        return ServersState.of(self)

    @property
    def running(self) -> dict[str, str]:
        """Return the specs of the servers, by service; empty for a server that does not run."""
        units = {name: unit.spec for name, unit in self.servers.units.items()}
        return units | {name: container.spec for name, container in self.servers.containers.items()}

    def pause_left(self, service: str) -> float | None:
        """Return the seconds that are left of a server's pause; None if it is not paused, or runs all the same."""
        unit, container = self.servers.units.get(service), self.servers.containers.get(service)
        stopped = (unit is None or unit.active in _STOPPED) and (container is None or container.status in _STOPPED)
        serving = self.servers.serving.get(service)
        return serving.pause_left if serving and stopped else None


@dataclass(frozen=True)
class SystemState(StatePart):
    """The operating system and the machine, as the role `base` inspects them."""

    os: str = ""
    arch: str = ""
    systemd: bool = False
    """Whether systemd runs."""
    wsl: str = ""
    """The release of the kernel under WSL; empty on all other hosts. WSL 1 only imitates a kernel."""
    free: tuple[str, int, str] | None = None
    """The folder of builds, or its nearest existing parent; its free bytes; its device."""
    addresses: tuple[str, ...] = ()
    """The addresses of the host, each with the length of its network's prefix."""
    listening: Set[int] = frozenset()
    """Ports on which a program listens."""
    packages: Set[str] = frozenset()
    """Of the planned packages, those that are installed."""
    repositories: Mapping[str, str] = field(default_factory=dict)
    """By name of a planned repository: a file of another tool that names the same address."""
    machine: MachineState = field(default_factory=MachineState)

    @property
    def kind(self) -> str:
        """Return `bare metal`, `virtual machine (kvm)`, `container (docker)`, `WSL`, `laptop`; empty if unknown."""
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


@dataclass(frozen=True)
class GpusState(StatePart):
    """The GPUs that nvidia-smi shows; if it shows none, its message."""

    shown: tuple[GpuState, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class EnginesState(StatePart):
    """The builds of engines."""

    builds: Mapping[str, str] = field(default_factory=dict)
    """By build id: `done`; `built`, but not admitted; `building`; `intact`, but its files were written since it was
    admitted; `damaged`, because a program differs from the one that was built."""


@dataclass(frozen=True)
class ModelsState(StatePart):
    """The models in the store."""

    verified: Mapping[str, Mapping[str, tuple[int, float, str]]] = field(default_factory=dict)
    """By model folder and file: size, time and sha256 when it was last verified."""
    stored: Mapping[str, Mapping[str, tuple[int, float]]] = field(default_factory=dict)
    """By model folder and file: size and time now."""
    kept: Mapping[str, int] = field(default_factory=dict)
    """By folder of each revision in the store: bytes that removing it would free."""


@dataclass(frozen=True)
class ServersState(StatePart):
    """The servers, by service."""

    units: Mapping[str, UnitState] = field(default_factory=dict)
    containers: Mapping[str, ContainerState] = field(default_factory=dict)
    serving: Mapping[str, ServingState] = field(default_factory=dict)
    """Further facts of units and containers that run."""
    images: Set[str] = frozenset()
    """Of the planned images, those that exist."""
    closed: tuple[str, ...] = ()
    """Paths that a server reads and has no permission to read."""


class PackageState(NamedTuple):
    """An installed package: its version, and whose repository has that version; None if none has it, or both."""

    # The maintainer's name does not show it: NVIDIA's packages derive from the distributions', and name theirs.
    version: str
    source: DriverSource | None = None

    @property
    def branch(self) -> str | None:
        """Return the branch of the driver, if the package's version counts by branches."""
        return branch_of(self.version)


class Persistence(NamedTuple):
    """The unit of NVIDIA's persistence daemon: `ActiveState` and `UnitFileState` of systemd."""

    active: str
    enabled: str


class RefusedDriver(NamedTuple):
    """A driver that did not come up and was rolled back."""

    version: str
    kind: str
    """The kind of driver, as in the plan."""
    when: str
    before: str
    """The version that was restored."""
    why: str


@dataclass(frozen=True)
class DriverState(StatePart):
    """NVIDIA's driver: its packages, its modules, and a change of it that is not finished."""

    packages: Mapping[str, PackageState] = field(default_factory=dict)
    """By name."""
    loaded: str | None = None
    """The version of the module in the kernel."""
    uvm: bool = False
    """Whether the module for CUDA's memory is loaded too."""
    disk: Mapping[str, str] = field(default_factory=dict)
    """By kernel, the running one and the next: the version of the module that it would load."""
    library: str = ""
    """The version of the library that nvidia-smi uses."""
    problem: str = ""
    """The message of nvidia-smi, if it shows no GPU."""
    runfile: bool = False
    """Whether a driver was installed by NVIDIA's .run file instead of packages."""
    persistence: Persistence | None = None
    components: Set[str] = frozenset()
    """Components of the configured repositories, such as `main` and `non-free`."""
    free: int | None = None
    """Bytes free in /."""
    tried: str = ""
    """Driver and kernel that this host was rebooted for, if that driver is not loaded."""
    kept: str = ""
    """The version that the next boot restores if the installed driver does not respond."""
    judging: bool = False
    """Whether this boot is testing whether the driver responds, or restoring the previous version."""
    refused: RefusedDriver | None = None

    def version(self, library: str) -> str | None:
        """Return the driver's version, by the package of its library; None if that package is not installed."""
        package = self.packages.get(library)
        return upstream_version(package.version) if package else None


class AddressedGpu(Protocol):
    """A GPU with its UUID and its PCI address."""

    @property
    def uuid(self) -> str:
        """Return the UUID as nvidia-smi prints it."""

    @property
    def pci(self) -> str:
        """Return the PCI address as nvidia-smi prints it."""


Gpu = TypeVar("Gpu", bound=AddressedGpu)


def find_gpu(at: str, gpus: Iterable[Gpu]) -> Gpu | None:
    """Return the GPU with this UUID, this PCI address, or this number in the order of addresses; None if absent."""
    in_order = sorted(gpus, key=lambda gpu: gpu.pci.upper())
    if (place := whole_number(at)) is not None:
        return in_order[place] if place < len(in_order) else None
    return next((gpu for gpu in in_order if at.upper() in (gpu.uuid.upper(), gpu.pci.upper())), None)


class TextState(NamedTuple):
    """A file of the user: the time of its last write (seconds since the epoch), and its bytes."""

    written: float
    content: bytes


class ScriptState(NamedTuple):
    """A script in Windows: its sha256, and the sha256 of the script that ran last."""

    sha256: str
    applied: str


class WslMachineState(NamedTuple):
    """The virtual machine: its start (seconds since the epoch), its memory in bytes, and its processors."""

    started: float
    memory: int
    processors: int


@dataclass(frozen=True)
class WslState(StatePart):
    """The files and the virtual machine of WSL."""

    profiles: Mapping[str, bool] = field(default_factory=dict)
    """By folder of a Windows user that WSL can open: whether it contains the disk of a distribution.

    Only read if there are several folders."""
    files: Mapping[str, TextState] = field(default_factory=dict)
    """By path: `wsl.conf`, and `.wslconfig` of the profile."""
    scripts: Mapping[str, ScriptState] = field(default_factory=dict)
    """By path."""
    machine: WslMachineState | None = None
