"""What one look at a host tells: the question, and the answer taken apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import get_args

from llamaherd.diagnostics.findings import UserError
from llamaherd.host import protocol
from llamaherd.host.remote import Remote
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.inventory.schema.machine import OperatingSystem
from llamaherd.text.numbers import parse_real, parse_whole, whole

INIT_SECONDS = 60.0
"""More than `nvidia-smi` gets to answer in the script."""


class LookError(UserError):
    """A look that cannot become a rig: a sentence that says why, and a way out."""


@dataclass(frozen=True)
class FoundGpu:
    """One GPU as `nvidia-smi` shows it; memory in MiB, power in watts, None where it says `[N/A]`."""

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
    """What a host tells of itself. 0 and empty texts stand for what it did not tell; memory and disk are in bytes."""

    name: str = ""
    os: str = ""
    arch: str = ""
    cpu: str = ""
    cores: int = 0
    threads: int = 0
    performance: int | None = None
    amx: bool = False
    memory: int = 0
    free: int = 0
    wsl: bool = False
    cuda: tuple[str, ...] = ()
    """Toolkits at /usr/local/cuda-X.Y."""
    cards: tuple[FoundGpu, ...] = ()
    """As the driver shows them."""
    bus: tuple[tuple[str, str], ...] = ()
    """NVIDIA's GPUs on the PCI bus: address, and what `lspci` calls them."""
    refused: str = ""
    """What `nvidia-smi` said instead of an answer."""


def init_script(root: str = "") -> str:
    """The script to run on a host. `root` is where its files are, for a host that is not the running one."""
    return protocol.question_of("scaffold/look.sh.j2", root=root)


def look(connect: Connect) -> FoundHost:
    """Look at a host, in one connection.

    Raises RemoteError where it cannot be reached, LookError where what it says is nothing to start from.
    """
    seen = parse_look(protocol.ask_host(Remote(connect), init_script(), INIT_SECONDS))
    refuse_unfit(seen, "this machine" if connect.host == LOCAL else connect.host)
    return seen


def refuse_unfit(seen: FoundHost, host: str) -> None:
    """Raises LookError where llamaherd could do nothing with such a host."""
    known = get_args(OperatingSystem)
    if seen.os not in known:
        what = f"runs {seen.os}" if seen.os else "does not say in /etc/os-release what it runs"
        raise LookError(f"{host} {what}, which llamaherd cannot provision", f"it knows {', '.join(known)}")
    if not seen.memory or not (seen.cores or seen.threads):
        raise LookError(f"{host} does not tell its cores and memory", "is /proc mounted there?")


def parse_look(lines: Iterable[str]) -> FoundHost:
    """What the facts of these lines say. Raises UnaskedError for a line that the script cannot have printed."""
    facts: dict[str, str] = {}
    cuda: list[str] = []
    gpus: list[FoundGpu] = []
    bus: list[tuple[str, str]] = []

    def take(kind: str, fields: list[str]) -> bool:
        match kind, fields:
            case "cuda", [version]:
                cuda.append(version)
            case "card", _:
                gpus.append(_gpu(fields))
            case "bus", [address, name]:
                bus.append((address, name))
            case (("name" | "os" | "arch" | "cpu" | "refused" | "wsl" | "amx"), [value]):
                facts[kind] = value
            case (("cores" | "threads" | "performance" | "memory" | "free"), [value]) if _count(value):
                facts[kind] = value or "0"
            case _:
                return False
        return all(field.isprintable() for field in fields)

    protocol.take_facts(lines, take)
    return _found(facts, cuda, gpus, bus)


def _found(
    facts: Mapping[str, str], cuda: Iterable[str], gpus: Iterable[FoundGpu], bus: Iterable[tuple[str, str]]
) -> FoundHost:
    return FoundHost(
        name=facts.get("name", ""),
        os=facts.get("os", ""),
        arch=facts.get("arch", ""),
        cpu=facts.get("cpu", ""),
        cores=parse_whole(facts.get("cores", "0")),
        threads=parse_whole(facts.get("threads", "0")),
        performance=parse_whole(facts.get("performance", "0")) or None,
        amx="amx" in facts,
        memory=parse_whole(facts.get("memory", "0")) << 10,
        free=parse_whole(facts.get("free", "0")) << 10,
        wsl="wsl" in facts,
        cuda=tuple(cuda),
        cards=tuple(gpus),
        bus=tuple(bus),
        refused=facts.get("refused", ""),
    )


_MOST_COUNT = 10**15


def _count(value: str) -> bool:
    return not value or whole(value, _MOST_COUNT) is not None


def _gpu(fields: list[str]) -> FoundGpu:
    index, uuid, pci, memory, limit, default, most, driver, capability, name = fields
    total = _number(memory)
    return FoundGpu(
        index=parse_whole(index),
        uuid=uuid,
        pci=pci,
        memory_mib=None if total is None else int(total),
        power_limit=_number(limit),
        default_power=_number(default),
        most_power=_number(most),
        driver=driver,
        capability=capability,
        name=name,
    )


def _number(text: str) -> float | None:
    """The number of `350.00`; None for `[N/A]`, `[Not Supported]` and the like."""
    return None if text.startswith("[") else parse_real(text)
