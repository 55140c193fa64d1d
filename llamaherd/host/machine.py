"""The machine as it is, before any driver: see `templates/base/machine.sh.j2`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from llamaherd.text.numbers import parse_whole
from llamaherd.text.pci import is_address

CONTAINERS = frozenset(
    {"systemd-nspawn", "lxc-libvirt", "lxc", "rkt", "docker", "podman", "openvz", "proot", "pouch", "container-other"}
)
"""In the words of systemd-detect-virt. The bus in there is that of their host."""


class PciGpu(NamedTuple):
    """An NVIDIA GPU: where it is on the bus, what it is, and the driver that has it now. Empty is what is not known.

    `device` is its id on the bus, four hexadecimal digits. `name` is lspci's: that of the chip, and in brackets the
    GPU's. Where a container hides the bus, only the driver's name of the GPU is known.
    """

    address: str
    device: str
    name: str
    driver: str = ""


@dataclass
class MachineState:
    """What lies under the system; what is not known is empty or None."""

    kernel: str = ""
    """The kernel that runs."""
    next_kernel: str = ""
    """The kernel that the next boot starts."""
    virtual: str = ""
    """In the words of systemd-detect-virt: `none`, `kvm`, `docker`, `wsl`."""
    laptop: bool = False
    bus: int | None = None
    """How many devices there are on the PCI bus, whoever made them; None where there is no such bus to look at. It and
    the next four are asked where GPUs are declared that are this system's, and `nouveau`."""
    cards: list[PciGpu] = field(default_factory=list)
    """NVIDIA's."""
    secure_boot: bool | None = None
    """None where there is no UEFI to tell."""
    mok: bool | None = None
    """Whether the key is enrolled that this host signs kernel modules with; None where there is no such key, or no
    mokutil to tell."""
    headers: set[str] = field(default_factory=set)
    """Kernels that modules can be compiled for here."""
    gcc: set[int] = field(default_factory=set)
    """Major versions of g++ that are installed."""
    memory: int = 0
    """Bytes of RAM."""
    amx: bool = False
    """Whether the processor has AMX, as far as this system may use it."""
    boot_free: int | None = None
    """Bytes free in /boot."""
    package_holder: str = ""
    """Who holds the locks of apt or dpkg now: the name of the process and its id."""
    held: set[str] = field(default_factory=set)
    """Packages that somebody has put on hold."""
    nouveau: bool = False
    """Whether that driver is loaded."""

    @property
    def in_container(self) -> bool:
        """Whether this is a container, whose kernel and bus are its host's."""
        return self.virtual in CONTAINERS

    def tell(self, what: str, fields: Sequence[str]) -> None:
        """Take in one line of the answer. Raises ValueError on one that cannot have been printed."""
        match what, fields:
            case "kernel", [running, following]:
                self.kernel, self.next_kernel = running, following
            case "virtual", [kind]:
                self.virtual = kind
            case "laptop", []:
                self.laptop = True
            case "amx", []:
                self.amx = True
            case "bus", [devices]:
                self.bus = parse_whole(devices)
            case "card", [address, device, name, driver]:
                known = address if is_address(address) else ""
                self.cards.append(PciGpu(known, device.strip("-"), name.removeprefix("-"), driver))
            case "secure-boot", [("on" | "off") as state]:
                self.secure_boot = state == "on"
            case "mok", [("enrolled" | "new") as state]:
                self.mok = state == "enrolled"
            case "headers", [kernel]:
                self.headers.add(kernel)
            case "gcc", [version]:
                self.gcc.add(parse_whole(version))
            case "memory", [kibibytes]:
                self.memory = parse_whole(kibibytes) * 1024
            case "boot", [free]:
                self.boot_free = parse_whole(free)
            case "holder", [who]:
                self.package_holder = who
            case "held", [package]:
                self.held.add(package)
            case "nouveau", []:
                self.nouveau = True
            case _:
                raise ValueError(what)
