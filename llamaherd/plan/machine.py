"""What a plan holds of the machine: where packages come from, driver and toolkits, power, WSL."""

from __future__ import annotations

from llamaherd.plan.base import Planned, TextFile
from llamaherd.reference.packages import DriverSource, KernelModules


class RepositoryPlan(Planned):
    """A repository of apt besides the distribution's. `keyring` is where the key at the URL `key` is kept."""

    name: str
    url: str
    key: str
    fingerprint: str
    keyring: str
    sources: TextFile


class DriverPlan(Planned):
    """NVIDIA's driver: a branch, or one version of it, and the packages that it is.

    `library` is that of `packages` whose version is the driver's. `beside` are packages that are taken where there are
    such. `pinning`: NVIDIA's own preferences, the first of which that exists comes before the driver. `prebuilt` begins
    the names of packages with modules that the distribution compiled and signed; the rest of a name says which kernel.
    `components` are parts of the distribution's repository. `reboot`: whether the host may be rebooted for it; `local`:
    it is the one that herd runs on.
    """

    branch: str
    version: str | None
    source: DriverSource
    modules: KernelModules
    pinning: tuple[str, ...]
    packages: tuple[str, ...]
    beside: tuple[str, ...]
    library: str
    prebuilt: str | None
    components: tuple[str, ...]
    files: tuple[TextFile, ...]
    reboot: bool
    local: bool

    @property
    def wanted(self) -> str:
        """What is declared, for people: `580`, or `580.95.05`."""
        return self.version or self.branch

    @property
    def kind(self) -> str:
        """What tells two drivers of one version apart: `open nvidia`."""
        return f"{self.modules} {self.source}"

    def wants(self, version: str) -> bool:
        """Whether a version of the driver, such as `580.95.05`, is as declared."""
        return version == self.version if self.version else version.startswith(f"{self.branch}.")


class ToolkitPlan(Planned):
    """A CUDA toolkit, `version` as in X.Y. `preferences` keep out of apt what would drag a driver in.

    `compiler` is the program that compiles the host's part of CUDA code, where the distribution's own is too new.
    """

    version: str
    package: str
    repository: RepositoryPlan
    preferences: TextFile
    compiler: str | None = None

    @property
    def nvcc(self) -> str:
        """Where its compiler lies, whoever brought it."""
        return f"/usr/local/cuda-{self.version}/bin/nvcc"


class ContainerToolkitPlan(Planned):
    """What gives GPUs to containers: its packages, all at one version, which is the newest where None is given.

    `devices` are the names in CDI that containers ask for. `order` has Docker wait at boot until those are known.
    """

    version: str | None
    repository: RepositoryPlan
    devices: tuple[str, ...]
    order: TextFile
    restart_docker: bool


class RuntimePlan(Planned):
    """Docker and its Compose: of these versions at least, or else the distribution's packages.

    `compose_package` is that one of the distribution's `packages` which has Compose.
    """

    packages: tuple[str, ...]
    compose_package: str
    docker: tuple[int, int]
    compose: tuple[int, int]
    toolkit: ContainerToolkitPlan | None = None


class GpuPlan(Planned):
    """A GPU that is declared; `at` says which it is, as in GpuPower, and is empty where nothing is said of that."""

    name: str
    model: str
    at: str


class GpuRef(Planned):
    """A GPU that a server is to be on, and where it is found on the host.

    `at`: its UUID, its PCI address as nvidia-smi writes it, its number in the order of addresses, or `any` where
    nothing tells it from others.
    """

    name: str
    at: str


class GpuPower(Planned):
    """What one GPU is held to: a power limit in watts, a lowest and a highest clock in MHz, its fans in percent.

    `at` says which GPU: its UUID, its PCI address as nvidia-smi writes it, or its number in the order of addresses.
    """

    name: str
    at: str
    limit: int | None = None
    clocks: tuple[int, int] | None = None
    fans: int | None = None

    @property
    def declared(self) -> str:
        """The same for people."""
        limit = f"{self.limit} W" if self.limit is not None else ""
        clocks = f"{self.clocks[0]} to {self.clocks[1]} MHz" if self.clocks else ""
        fans = f"fans at {self.fans} %" if self.fans is not None else ""
        return ", ".join(filter(None, (limit, clocks, fans)))


class PowerPlan(Planned):
    """GPUs that are held to limits, clocks and fan speeds, from every boot on: by a program, its table, and a unit.

    `fans` is the program that sets fans. It is always there, as it also gives them back when they are not declared.
    """

    cards: tuple[GpuPower, ...]
    fans: TextFile
    program: TextFile
    table: TextFile
    unit: TextFile

    @property
    def files(self) -> tuple[TextFile, ...]:
        """All of them, each after those that it uses: a run may end between two."""
        return (self.fans, self.program, self.table, self.unit)


class WslPlan(Planned):
    """What WSL around a host must say. `profile`: the Windows user's folder as WSL sees it, where it is declared.

    `settings` are those of `.wslconfig`, by section and key, as they stand there. The paths of `scripts`, which Windows
    is to run, count from the profile.
    """

    profile: str | None
    settings: dict[str, dict[str, str]]
    scripts: tuple[TextFile, ...]
