"""The hardware of a machine that is not set up yet: processor, memory, disk, and GPUs with or without a driver."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from llamaherd.onhost.files import resolve
from llamaherd.onhost.machine import has_amx, memory_bytes
from llamaherd.onhost.nvidia_smi import parse_number
from llamaherd.onhost.system import NOT_STARTED, TIMED_OUT, System
from llamaherd.onhost.verbs import Verb

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
    """What `nvidia-smi` printed in place of a list."""


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
    return f"{values['ID']}-{values.get('VERSION_ID', '')}" if "ID" in values else ""


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
    """Return the GPUs that the driver lists, or what it printed in place of a list."""
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
