"""The planned repositories, driver, toolkits, container runtime, power and WSL of a host."""

from __future__ import annotations

from llamaherd.plan.artifacts import Planned, TextFile
from llamaherd.reference.packages import DriverSource, KernelModules


class RepositoryPlan(Planned):
    """An apt repository besides the distribution's. The key at the URL `key` is stored in `keyring`."""

    name: str
    url: str
    key: str
    fingerprint: str
    keyring: str
    sources: TextFile


class DriverPlan(Planned):
    """NVIDIA's driver: a branch, or one version of it, and its packages.

    `library` is the package of `packages` whose version is the driver's. `beside` are optional packages, which are
    installed if they exist. `pinning` are packages of NVIDIA's own preferences: the first that exists is installed
    before the driver. `prebuilt` begins the names of packages with modules that the distribution compiled and signed;
    the rest of a name is the kernel's. `components` are parts of the distribution's repository. `reboot`: the host may
    be rebooted for it; `local`: herd runs on this host.
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
        """The declared branch or version, for messages: `580`, or `580.95.05`."""
        return self.version or self.branch

    @property
    def kind(self) -> str:
        """The kind of modules and their source, such as `open nvidia`: drivers of one version differ in these."""
        return f"{self.modules} {self.source}"

    def wants(self, version: str) -> bool:
        """Return whether a version of the driver, such as `580.95.05`, matches the declaration."""
        return version == self.version if self.version else version.startswith(f"{self.branch}.")


class ToolkitPlan(Planned):
    """A CUDA toolkit, `version` as in X.Y. `preferences` keep packages that depend on a driver out of apt.

    `compiler` compiles the host's part of CUDA code, if the distribution's own compiler is too new.
    """

    version: str
    package: str
    repository: RepositoryPlan
    preferences: TextFile
    compiler: str | None = None

    @property
    def nvcc(self) -> str:
        """The path of its compiler, however it was installed."""
        return f"/usr/local/cuda-{self.version}/bin/nvcc"


class ContainerToolkitPlan(Planned):
    """NVIDIA's container toolkit: its packages, all of one version; the newest for None.

    `devices` are the CDI names of the containers. With `order`, Docker waits at boot until CDI has them.
    """

    version: str | None
    repository: RepositoryPlan
    devices: tuple[str, ...]
    order: TextFile
    restart_docker: bool


class RuntimePlan(Planned):
    """Docker and its Compose: of these versions at least, or else the distribution's packages.

    `compose_package` is the package of the distribution's `packages` that contains Compose.
    """

    packages: tuple[str, ...]
    compose_package: str
    docker: tuple[int, int]
    compose: tuple[int, int]
    toolkit: ContainerToolkitPlan | None = None


class GpuPlan(Planned):
    """A declared GPU; `at` identifies it, as in GpuPower, and is empty if nothing is declared."""

    name: str
    model: str
    at: str


class GpuRef(Planned):
    """A GPU of a server, and where it is found on the host.

    `at` is its UUID, its PCI address as nvidia-smi prints it, its number in the order of addresses, or `any` if nothing
    identifies it.
    """

    name: str
    at: str


class GpuPower(Planned):
    """The settings of one GPU: a power limit in watts, a lowest and a highest clock in MHz, its fans in percent.

    `at` is its UUID, its PCI address as nvidia-smi prints it, or its number in the order of addresses.
    """

    name: str
    at: str
    limit: int | None = None
    clocks: tuple[int, int] | None = None
    fans: int | None = None

    @property
    def declared(self) -> str:
        """The settings as text."""
        limit = f"{self.limit} W" if self.limit is not None else ""
        clocks = f"{self.clocks[0]} to {self.clocks[1]} MHz" if self.clocks else ""
        fans = f"fans at {self.fans} %" if self.fans is not None else ""
        return ", ".join(filter(None, (limit, clocks, fans)))


class PowerPlan(Planned):
    """Limits, clocks and fan speeds of GPUs, which a program applies after every boot: the program, its table and unit.

    `fans` is the program that sets fans. It is always there, as it also resets fans that are no longer declared.
    """

    cards: tuple[GpuPower, ...]
    fans: TextFile
    program: TextFile
    table: TextFile
    unit: TextFile

    @property
    def files(self) -> tuple[TextFile, ...]:
        """All files, each after the files that it uses: a run may end between two."""
        return (self.fans, self.program, self.table, self.unit)


class WslPlan(Planned):
    """The settings of WSL around a host. `profile` is the Windows user's folder as mounted in WSL, if it is declared.

    `settings` are those of `.wslconfig`, by section and key, as written there. The paths of `scripts`, which Windows
    runs, are relative to the profile.
    """

    profile: str | None
    settings: dict[str, dict[str, str]]
    scripts: tuple[TextFile, ...]


class SuspendPlan(Planned):
    """When the host suspends, in seconds without use, and the files that do it."""

    after: int
    files: tuple[TextFile, ...]
