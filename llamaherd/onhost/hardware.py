"""Inspect the hardware of a host: processor, memory and disk from /sys and /proc, GPUs also from nvidia-smi."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace

from llamaherd.onhost.files import resolve
from llamaherd.onhost.system import NOT_STARTED, TIMED_OUT, System
from llamaherd.onhost.verbs import Verb

FIELDS = (
    "uuid",
    "pci.bus_id",
    "persistence_mode",
    "power.limit",
    "power.default_limit",
    "power.min_limit",
    "power.max_limit",
    "clocks.current.graphics",
    "fan.speed",
    "name",
)
"""The fields of a query; the name is last, since it may contain a comma."""


@dataclass(frozen=True)
class GpuState:
    """A GPU: watts, MHz, and percent, None for what it does not report.

    `persistent`: it stays loaded when nothing uses it. `fan` is of GPUs with fans that can be set, and may exceed 100.
    """

    uuid: str
    pci: str
    persistent: bool | None
    limit: float | None
    default: float | None
    least: float | None
    most: float | None
    clock: float | None
    fan: float | None
    name: str


def parse_gpu(line: str) -> GpuState:
    """Return the GPU of a line. Raise ValueError where it is not a line of a GPU."""
    fields = line.split(", ", len(FIELDS) - 1)
    if len(fields) != len(FIELDS):
        raise ValueError(f"not {len(FIELDS)} fields of a GPU: {line!r}")
    uuid, pci, persistence, *numbers, name = fields
    if not _ADDRESS.fullmatch(pci):
        raise ValueError(f"not a PCI address: {pci!r}")
    limit, default, least, most, clock, fan = map(parse_number, numbers)
    persistent = {"Enabled": True, "Disabled": False}.get(persistence)
    return GpuState(uuid, pci, persistent, limit, default, least, most, clock, fan, name)


def parse_number(text: str) -> float | None:
    """Return a figure; None for `[N/A]`, `[Not Supported]`, `[Unknown Error]` and whatever stands for a missing one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


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
    """The hardware and firmware of a machine; unknown values are empty or None."""

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
    cores: int = 0
    """Physical cores; 0 where the kernel does not list them."""
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


def inspect_machine(system: System, *, has_gpus: bool, root: str = "") -> MachineState:
    """Inspect the machine. `root` is the folder with its files: empty."""
    kernel = _first_word(f"{root}/proc/sys/kernel/osrelease", system)
    bus = _inspect_bus(system, root) if has_gpus else MachineState()
    compilers = (re.fullmatch(r"g\+\+-([0-9]{1,3})", name) for name in system.names(f"{root}/usr/bin"))
    virtual = system.run(["systemd-detect-virt"]).out.strip()
    return replace(
        bus,
        kernel=kernel,
        next_kernel=_next_kernel(system, root) or kernel,
        virtual=virtual,
        laptop=_first_word(f"{root}/sys/class/dmi/id/chassis_type", system) in _LAPTOPS,
        gcc=tuple(sorted(int(found[1]) for found in compilers if found)),
        memory=memory_bytes(system, root),
        cores=_cores(_processors(root, system), root, system),
        amx=has_amx(system, root),
        boot_free=system.free(f"{root}/boot"),
        package_holder=_package_holder(system, root),
        held=_held_packages(system, root),
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


def _inspect_bus(system: System, root: str) -> MachineState:
    """Return the fields about GPUs and their driver, from the PCI bus and the firmware."""
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
    kernels = f"{root}/lib/modules"
    builds = ((each, resolve(f"{kernels}/{each}/build", system)) for each in system.names(kernels))
    return MachineState(
        bus=len(devices) or None,
        cards=tuple(with_driver),
        secure_boot=value == "\x01" if value else None,
        mok=_module_key(system, root),
        headers=tuple(each for each, build in builds if build and build.kind == "folder"),
        nouveau=system.entry(f"{root}/sys/module/nouveau") is not None,
    )


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


DRIVER_SECONDS = 30
"""A driver may hang: nvidia-smi is killed after this time."""
_FIELDS = (
    *("index", "uuid", "pci.bus_id", "memory.total", "power.limit", "power.default_limit", "power.max_limit"),
    *("driver_version", "compute_cap", "name"),
)
"""The fields of nvidia-smi; the name comes last, since it may contain a comma."""
_MOST_CPUINFO = 8 << 20
_MOST_DEVICES = 4096


@dataclass(frozen=True)
class HardwareInput:
    """`root` is the folder with the machine's files: empty."""

    root: str = ""


@dataclass(frozen=True)
class FoundGpu:
    """One GPU as `nvidia-smi` lists it: memory in MiB, power in watts, None where it prints `[N/A]`."""

    index: int
    uuid: str
    pci: str
    memory_mib: int | None
    power_limit: float | None
    default_power: float | None
    most_power: float | None
    driver: str
    capability: str
    name: str


@dataclass(frozen=True)
class FoundHost:
    """The hardware of a host. 0 and empty texts stand for what is unknown; memory and disk are in bytes."""

    name: str = ""
    os: str = ""
    arch: str = ""
    cpu: str = ""
    cores: int = 0
    threads: int = 0
    performance: int | None = None
    """Cores that Intel calls performance cores, where there are two kinds."""
    amx: bool = False
    memory: int = 0
    free: int = 0
    wsl: bool = False
    cuda: tuple[str, ...] = ()
    """Toolkits at /usr/local/cuda-X.Y."""
    cards: tuple[FoundGpu, ...] = ()
    """As the driver lists them."""
    bus: tuple[tuple[str, str], ...] = ()
    """NVIDIA's GPUs on the PCI bus: the address, and the name that `lspci` prints."""
    refused: str = ""
    """The output of `nvidia-smi` if it is not a list."""


def inspect(given: HardwareInput, system: System) -> FoundHost:
    """Return the hardware of the machine. Nothing is changed, and root is not needed."""
    root = given.root
    name, arch = (*system.run(["uname", "-nm"]).out.split(), "", "")[:2]
    processors = system.read(f"{root}/proc/cpuinfo", _MOST_CPUINFO) or ""
    model = re.search(r"^model name\s*: (.*)$", processors, re.MULTILINE)
    cards, refused = _cards(system)
    return FoundHost(
        name=name,
        os=_distribution(system.read(f"{root}/etc/os-release") or ""),
        arch=arch,
        cpu=model[1] if model else "",
        cores=_cores(_processors(root, system), root, system),
        threads=len(re.findall(r"^processor\b", processors, re.MULTILINE)),
        performance=_performance_cores(root, system),
        amx=has_amx(system, root),
        memory=memory_bytes(system, root),
        free=system.free(f"{root}/var/lib") or 0,
        wsl=_is_wsl(root, system),
        cuda=tuple(_toolkits(root, system)),
        cards=cards,
        bus=tuple(_on_the_bus(root, system)),
        refused=refused,
    )


def _distribution(release: str) -> str:
    """Return the distribution and its version as `ubuntu-24.04`, by the text of /etc/os-release."""
    values = {}
    for line in release.splitlines():
        name, _, value = line.partition("=")
        try:
            values[name] = "".join(shlex.split(value))
        except ValueError:
            continue
    return "-".join(filter(None, (values["ID"], values.get("VERSION_ID")))) if "ID" in values else ""


def _processors(root: str, system: System) -> list[str]:
    names = system.names(f"{root}/sys/devices/system/cpu")
    return [found[1] for name in names if (found := re.fullmatch(r"cpu([0-9]+)", name))]


def _cores(processors: list[str], root: str, system: System) -> int:
    """Return the number of cores of these processors: each has one list of the threads that share it."""
    folder = f"{root}/sys/devices/system/cpu"
    lists = (system.read(f"{folder}/cpu{number}/topology/thread_siblings_list") or "" for number in processors)
    return len({each.strip() for each in lists} - {""})


def _performance_cores(root: str, system: System) -> int | None:
    """Return the number of performance cores, as Intel lists them. Clocks differ among cores of one kind."""
    listed = system.read(f"{root}/sys/devices/cpu_core/cpus")
    if listed is None:
        return None
    numbers: list[str] = []
    for first, last in re.findall(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", listed):
        numbers += map(str, range(int(first), int(last or first) + 1))
    return _cores(numbers, root, system) or None


def _is_wsl(root: str, system: System) -> bool:
    release = system.read(f"{root}/proc/sys/kernel/osrelease") or ""
    return "microsoft" in release.lower() or system.entry(f"{root}/dev/dxg") is not None


def _toolkits(root: str, system: System) -> Iterator[str]:
    for name in system.names(f"{root}/usr/local"):
        compiler = resolve(f"{root}/usr/local/{name}/bin/nvcc", system)
        if name.startswith("cuda-") and "." in name and compiler and compiler.mode & 0o111:
            yield name.removeprefix("cuda-")


def _cards(system: System) -> tuple[tuple[FoundGpu, ...], str]:
    """Return the GPUs that the driver lists, or its output if it is not a list."""
    query = [f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    ended = system.run(["nvidia-smi", *query], seconds=DRIVER_SECONDS)
    if ended.code == NOT_STARTED:
        return (), ""
    if ended.code == TIMED_OUT:
        return (), f"nvidia-smi does not end within {DRIVER_SECONDS} s"
    if not ended.ok:
        return (), next((line for line in (ended.out + ended.err).splitlines() if line.strip()), "nvidia-smi failed")
    return tuple(filter(None, map(_gpu, ended.out.splitlines()))), ""


def _gpu(line: str) -> FoundGpu | None:
    """Return the GPU of a line; None if the line describes no GPU."""
    fields = line.split(", ", len(_FIELDS) - 1)
    if len(fields) != len(_FIELDS) or not re.fullmatch("[0-9]{1,4}", fields[0]):
        return None
    index, uuid, pci, *figures, driver, capability, name = fields
    total, limit, default, most = map(parse_number, figures)
    memory = None if total is None else int(total)
    return FoundGpu(int(index), uuid, pci, memory, limit, default, most, driver, capability, name)


def _on_the_bus(root: str, system: System) -> Iterator[tuple[str, str]]:
    """Yield NVIDIA's GPUs on the bus, with a driver or without: class 03 is a display controller."""
    folder = f"{root}/sys/bus/pci/devices"
    for address in system.names(folder)[:_MOST_DEVICES]:
        vendor, kind = (system.read(f"{folder}/{address}/{name}") or "" for name in ("vendor", "class"))
        if vendor.strip() == "0x10de" and kind.startswith("0x03"):
            found = re.match(r"\S+ [^:]*: (.*)", system.run(["lspci", "-s", address]).out)
            yield address, found[1].strip() if found else ""


VERBS = {"inspect": Verb(HardwareInput, inspect)}
