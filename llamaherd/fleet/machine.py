"""The machine of a rig: how it is reached, its processor and memory, its cards, WSL around it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from llamaherd.cards import CARDS, USUAL_MULTIPROCESSORS
from llamaherd.fleet.base import Declared, LocalPath, Megahertz, Name, Port, Size, Watts

OperatingSystem = Literal["debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04"]


def _as_text(value: Any) -> Any:
    """`branch: 580` and `cuda: 13.0` are numbers to YAML and names to people."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class Connect(Declared):
    """How the controller reaches a rig. `connect: local` is the machine that herd runs on."""

    host: str
    """Name or address to log in at, or a `Host` of `~/.ssh/config`."""
    port: Port = 22
    """Port of the SSH server."""
    user: str | None = None
    """Who logs in: root, or a user with `sudo` without a password."""
    key: LocalPath | None = None
    """Private SSH key, without a passphrase."""
    known_hosts: LocalPath | None = None
    """File with the host's key; no other is accepted."""


class Cpu(Declared):
    """Physical cores, which is what engines want as threads: SMT siblings only slow them down."""

    cores: Annotated[int, Field(ge=1)]
    """Physical cores, without SMT siblings."""
    performance: Annotated[int, Field(ge=1)] | None = None
    """How many of them are performance cores, where there are two kinds."""


class Wsl(Declared):
    """The host is a distribution under WSL 2: what `.wslconfig` of Windows shall say, and what WSL needs to stay up."""

    memory: Size | None = None
    """Memory of the virtual machine; WSL takes half of the host's otherwise."""
    swap: Annotated[int, Field(ge=0)] | Size | None = None
    """Swap of the virtual machine; 0 for none."""
    processors: Annotated[int, Field(ge=1)] | None = None
    """Logical processors of the virtual machine."""
    networking: Literal["nat", "mirrored", "virtioproxy", "none"] | None = None
    """`mirrored` makes servers reachable from Windows and the LAN as if Windows ran them."""
    keep_alive: bool = True
    """Never shut down when idle: WSL ends itself with its last terminal otherwise, servers included."""
    windows_profile: str | None = None
    """The Windows user's folder as WSL sees it, such as `/mnt/c/Users/tom`, where it cannot be found out."""
    settings: dict[str, dict[str, str | int | bool]] = Field(default_factory=dict)
    """Further keys of `.wslconfig`, by section."""


class Host(Declared):
    """What the machine is."""

    os: OperatingSystem
    """Distribution and release. Another one found on the host stops the run before anything is changed."""
    cpu: Cpu
    """Its processor."""
    ram: Size
    """Memory of the host; under WSL that of the virtual machine."""
    wsl: Wsl | None = None
    """Given where the host is a distribution under WSL 2."""


class Clocks(Declared):
    """Between which clocks a card is held."""

    min: Megahertz = 210
    """Lowest clock of the graphics unit."""
    max: Megahertz
    """Highest clock of the graphics unit."""


class Card(Declared):
    """One GPU. Which it is of several, `uuid`, `pci` or `index` says."""

    model: str
    """What it is called, such as `RTX 3090`."""
    uuid: Annotated[str, StringConstraints(pattern=r"^GPU-[0-9A-Za-z-]+$")] | None = None
    """From `nvidia-smi -L`; stays the same wherever the card is plugged in."""
    pci: (
        Annotated[str, StringConstraints(pattern=r"^([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$")] | None
    ) = None
    """Its PCI address, such as `0000:01:00.0`: the slot rather than the card."""
    index: Annotated[int, Field(ge=0, le=31)] | None = None
    """The n-th card in the order of PCI addresses, from 0."""
    architecture: Annotated[str, StringConstraints(pattern=r"^\d{2,3}[af]?$")] | None = None
    """Compute capability without the dot, where `model` does not tell."""
    memory: Size | None = None
    """Its memory as `nvidia-smi` shows it, where `model` does not tell."""
    reserved: Size | None = None
    """What something else holds of it, such as a desktop; servers get the rest."""
    power_limit: Watts | None = None
    """Power that it may draw."""
    clocks: Clocks | None = None
    """Between which clocks it is held; a laptop's card often takes these and no power limit."""

    @model_validator(mode="after")
    def _known(self) -> Card:
        if self.architecture is None and self.model not in CARDS:
            raise ValueError(f"the architecture of `{self.model}` is not known here; add `architecture:`, such as `86`")
        if sum(way is not None for way in (self.uuid, self.pci, self.index)) > 1:
            raise ValueError("give one of `uuid`, `pci` and `index`")
        return self

    @property
    def cuda_architecture(self) -> str:
        """The value for CMAKE_CUDA_ARCHITECTURES, such as `86`."""
        return self.architecture or CARDS[self.model].architecture

    @property
    def multiprocessors(self) -> int:
        """How many it has, or a card like it."""
        return CARDS[self.model].multiprocessors if self.model in CARDS else USUAL_MULTIPROCESSORS

    @property
    def memory_bytes(self) -> int | None:
        """All of its memory, in bytes, the driver's own share included; None where it is not known."""
        if self.memory or self.model not in CARDS:
            return self.memory
        return CARDS[self.model].memory_mib << 20


class Driver(Declared):
    """NVIDIA's driver."""

    branch: Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | int), Field(pattern=r"^\d{3}$")]
    """Its branch, such as 580."""
    version: Annotated[str, StringConstraints(pattern=r"^\d{3}(\.\d+)+$")] | None = None
    """One version of the branch, such as `580.95.05`; the newest otherwise."""

    @model_validator(mode="after")
    def _of_that_branch(self) -> Driver:
        if self.version and not self.version.startswith(f"{self.branch}."):
            raise ValueError(f"version {self.version} is not of branch {self.branch}")
        return self


class Gpus(Declared):
    """The cards of a rig, their driver, and the CUDA toolkit that engines are built with."""

    driver: Driver | None = None
    """Given where llamaherd shall bring the driver; under WSL it is Windows' own."""
    cuda: Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | float), Field(pattern=r"^\d+\.\d+$")]
    """Version of the CUDA toolkit, such as "13.0"."""
    cards: dict[Name, Card]
    """The cards, by names of your own."""
