"""The machine under a system, before any driver: read from /sys and /proc, so that no driver and no tool is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from llamaherd.onhost.system import System

CONTAINERS = frozenset(
    {"systemd-nspawn", "lxc-libvirt", "lxc", "rkt", "docker", "podman", "openvz", "proot", "pouch", "container-other"}
)
"""As systemd-detect-virt prints them. The PCI bus in a container is that of its host."""
_LAPTOPS = {"8", "9", "10", "14", "30", "31", "32"}
"""Types of a chassis, by SMBIOS."""
_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_MODULE_KEYS = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")
"""The key that dkms signs modules with: Ubuntu's path, then dkms' own."""
_PACKAGE_LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock")
_ADDRESS = re.compile(r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_LSPCI = re.compile(r"([0-9a-f:.]+) (?:VGA compatible|3D|Display) controller[^:]*: (NVIDIA.*)")
_SMI_SECONDS = 10


@dataclass(frozen=True)
class PciGpu:
    """An NVIDIA GPU: where it is on the bus, what it is, and the driver that has it. What is unknown is empty.

    `device` is its id on the bus, four hexadecimal digits. `name` is lspci's: that of the chip, and in brackets the
    GPU's. Where a container hides the bus, only the driver's name of the GPU is known.
    """

    address: str
    device: str
    name: str
    driver: str = ""


@dataclass(frozen=True)
class MachineState:
    """What lies under the system; what is unknown is empty or None."""

    kernel: str = ""
    """The kernel that runs."""
    next_kernel: str = ""
    """The kernel that the next boot starts."""
    virtual: str = ""
    """As systemd-detect-virt prints it: `none`, `kvm`, `docker`, `wsl`."""
    laptop: bool = False
    bus: int | None = None
    """How many devices there are on the PCI bus; None where there is no such bus. It, the fields up to `headers`, and
    `nouveau` are inspected where the plan has GPUs that are this system's."""
    cards: tuple[PciGpu, ...] = ()
    """NVIDIA's GPUs."""
    secure_boot: bool | None = None
    """None where there is no UEFI."""
    mok: bool | None = None
    """Whether the key is enrolled that this host signs kernel modules with; None where there is no such key, or no
    mokutil."""
    headers: tuple[str, ...] = ()
    """Kernels that modules can be compiled for here."""
    gcc: tuple[int, ...] = ()
    """Major versions of g++ that are installed."""
    memory: int = 0
    """Bytes of RAM."""
    amx: bool = False
    """Whether the processor has AMX, as far as this system may use it."""
    boot_free: int | None = None
    """Bytes free in /boot."""
    package_holder: str = ""
    """The process that holds the locks of apt or dpkg, and its id."""
    held: tuple[str, ...] = ()
    """Packages that are on hold."""
    nouveau: bool = False
    """Whether that driver is loaded."""

    @property
    def in_container(self) -> bool:
        """Return whether this is a container, whose kernel and bus are its host's."""
        return self.virtual in CONTAINERS


@dataclass(frozen=True)
class _Bus:
    """What the PCI bus and the firmware tell about GPUs and their driver."""

    devices: int | None
    cards: tuple[PciGpu, ...]
    secure_boot: bool | None
    mok: bool | None
    headers: tuple[str, ...]
    nouveau: bool


def inspect_machine(system: System, *, has_gpus: bool, root: str = "") -> MachineState:
    """Inspect the machine. `root` is the folder with its files: empty."""
    kernel = _first_word(f"{root}/proc/sys/kernel/osrelease", system)
    bus = _inspect_bus(system, root) if has_gpus else _Bus(None, (), None, None, (), nouveau=False)
    compilers = (re.fullmatch(r"g\+\+-([0-9]{1,3})", name) for name in system.names(f"{root}/usr/bin"))
    virtual = system.run(["systemd-detect-virt"]).out.strip()
    return MachineState(
        kernel=kernel,
        next_kernel=_next_kernel(system, root) or kernel,
        virtual=virtual,
        laptop=_first_word(f"{root}/sys/class/dmi/id/chassis_type", system) in _LAPTOPS,
        bus=bus.devices,
        cards=bus.cards,
        secure_boot=bus.secure_boot,
        mok=bus.mok,
        headers=bus.headers,
        gcc=tuple(sorted(int(found[1]) for found in compilers if found)),
        memory=memory_bytes(system, root),
        amx=has_amx(system, root),
        boot_free=system.free(f"{root}/boot"),
        package_holder=_package_holder(system, root),
        held=_held_packages(system, root),
        nouveau=bus.nouveau,
    )


def _first_word(path: str, system: System) -> str:
    return next(iter((system.read(path) or "").split()), "")


def _next_kernel(system: System, root: str) -> str:
    """Return the kernel that the next boot starts: where Debian's and Ubuntu's link points, or else the newest."""
    for link in (f"{root}/boot/vmlinuz", f"{root}/vmlinuz"):
        target = system.target(link)
        if target and (found := re.search(r"(?:^|/)vmlinuz-([^/]+)$", target)):
            return found[1]
    versions = [name.removeprefix("vmlinuz-") for name in system.names(f"{root}/boot") if name.startswith("vmlinuz-")]
    return max(versions, key=_in_order, default="")


def _in_order(version: str) -> list[tuple[int, str]]:
    """Return a key that sorts versions as `sort -V` does: numbers by their value."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"[0-9]+|[^0-9]+", version)]


def _inspect_bus(system: System, root: str) -> _Bus:
    devices = system.names(f"{root}/sys/bus/pci/devices")
    cards = _by_lspci(system) or _by_ids(devices, system, root) or _by_driver(system)
    with_driver = [
        PciGpu(
            each.address if _ADDRESS.fullmatch(each.address) else "",
            each.device,
            each.name,
            system.target(f"{root}/sys/bus/pci/devices/{each.address}/driver").rpartition("/")[2],
        )
        for each in cards
    ]
    # Four bytes of attributes come first.
    value = (system.read(f"{root}{_SECURE_BOOT}") or "")[4:5]
    built = [
        each for each in system.names(f"{root}/lib/modules") if _is_folder(f"{root}/lib/modules/{each}/build", system)
    ]
    return _Bus(
        devices=len(devices) or None,
        cards=tuple(with_driver),
        secure_boot=value == "\x01" if value else None,
        mok=_module_key(system, root),
        headers=tuple(built),
        nouveau=system.entry(f"{root}/sys/module/nouveau") is not None,
    )


def _is_folder(path: str, system: System) -> bool:
    found = system.entry(system.resolved(path))
    return found is not None and found.kind == "folder"


def _by_lspci(system: System) -> list[PciGpu]:
    """Return the GPUs that lspci lists, with their names."""
    found = []
    for line in system.run(["lspci", "-D", "-nn", "-d", "10de:"]).out.splitlines():
        if not (match := _LSPCI.fullmatch(line)):
            continue
        address, name = match.groups()
        device = re.search(r"\[10de:([0-9a-f]{4})\]", name)
        name = re.sub(r" *\[10de:....\].*| *\(rev .*|^NVIDIA Corporation *", "", name)
        address = address if address.count(":") == 2 else f"0000:{address}"
        found.append(PciGpu(address, device[1] if device else "", name))
    return found


def _by_ids(devices: list[str], system: System, root: str) -> list[PciGpu]:
    """Return the GPUs by their ids in /sys."""
    found = []
    for address in devices:
        folder = f"{root}/sys/bus/pci/devices/{address}"
        is_gpu = _first_word(f"{folder}/class", system).startswith("0x03")
        if is_gpu and _first_word(f"{folder}/vendor", system) == "0x10de":
            found.append(PciGpu(address, _first_word(f"{folder}/device", system).removeprefix("0x"), ""))
    return found


def _by_driver(system: System) -> list[PciGpu]:
    """Return the GPUs that NVIDIA's driver lists, where a container hides the bus."""
    query = ["nvidia-smi", "--query-gpu=pci.bus_id,name", "--format=csv,noheader"]
    lines = system.run(query, seconds=_SMI_SECONDS).out.splitlines()
    by_address = [found for each in lines if (found := re.fullmatch(r"([0-9A-Fa-f:.]+), (.+)", each))]
    if by_address:
        return [PciGpu(found[1], "", found[2]) for found in by_address]
    lines = system.run(["nvidia-smi", "-L"], seconds=_SMI_SECONDS).out.splitlines()
    by_name = (re.match(r"GPU [0-9]+: (.*) \(UUID: ", each) for each in lines)
    return [PciGpu("", "", found[1]) for found in by_name if found]


def _module_key(system: System, root: str) -> bool | None:
    for key in _MODULE_KEYS:
        if system.entry(f"{root}{key}"):
            tested = system.run(["mokutil", "--test-key", f"{root}{key}"])
            return "already enrolled" in tested.out if tested.out else None
    return None


def memory_bytes(system: System, root: str) -> int:
    """Return the bytes of RAM; 0 where they are unknown."""
    found = re.search(r"^MemTotal:\s*([0-9]{1,15}) kB", system.read(f"{root}/proc/meminfo") or "", re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def has_amx(system: System, root: str) -> bool:
    """Return whether the processor has AMX, as far as this system may use it."""
    found = re.search(r"^flags\s*:(.*)$", system.read(f"{root}/proc/cpuinfo", 1 << 16) or "", re.MULTILINE)
    return found is not None and "amx_int8" in found[1].split()


def _package_holder(system: System, root: str) -> str:
    """Return the process that holds a lock of apt or dpkg, by the kernel's list: fuser may not be installed."""
    locks = {found.inode: path for each in _PACKAGE_LOCKS if (found := system.entry(path := f"{root}{each}"))}
    for pid in _holders({*locks}, system.read(f"{root}/proc/locks") or ""):
        # Another filesystem may have a file of that number: the process tells which file it has open.
        for handle in system.names(f"{root}/proc/{pid}/fd"):
            if system.resolved(f"{root}/proc/{pid}/fd/{handle}") in map(system.resolved, locks.values()):
                return f"{(system.read(f'{root}/proc/{pid}/comm') or '').strip()} ({pid})"
    return ""


def _holders(inodes: set[int], locks: str) -> Iterator[str]:
    """Yield the processes that hold locks of files with these numbers."""
    for line in locks.splitlines():
        words = line.split()
        if len(words) > 5 and words[1] != "->" and words[4].isdigit() and words[4] != "0":
            number = words[5].rpartition(":")[2]
            if number.isdigit() and int(number) in inodes:
                yield words[4]


def _held_packages(system: System, root: str) -> tuple[str, ...]:
    """Return the packages on hold. apt-mark would take a second and more: it reads all packages that there are."""
    status = system.read(f"{root}/var/lib/dpkg/status", 64 << 20) or ""
    if "\nStatus: hold " not in status:
        return ()
    found = re.findall(r"^Package: (\S+)$(?:(?!^$).)*?^Status: hold ", status, re.MULTILINE | re.DOTALL)
    return tuple(sorted({*found}))


def read_installed(system: System, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return which of these packages are installed."""
    ended = system.run(["dpkg-query", "-W", "-f", "${Package}\\t${db:Status-Status}\\n", *names])
    rows = (line.partition("\t") for line in ended.out.splitlines())
    return tuple(sorted({name for name, _, status in rows if status == "installed"}))


def wsl_release(system: System) -> str:
    """Return the kernel's release under WSL; empty elsewhere. A container on a WSL host has that kernel, too."""
    release = (system.read("/proc/sys/kernel/osrelease") or "").strip()
    in_container = system.entry("/.dockerenv") or system.entry("/run/.containerenv")
    return release if "microsoft" in release.lower() and not in_container else ""
