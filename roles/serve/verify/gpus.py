"""Whether a server is on its GPUs, and how much of them it holds: what the driver and /proc say, judged here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llamaherd.onhost.nvidia_smi import parse_number
from llamaherd.plan import GpuRef, InstancePlan
from llamaherd.text.numbers import whole
from roles.serve.onhost.verified import GpuProcesses, GpusFound

OFF_BY = 0.1
"""Of what is planned of a GPU: holding so much more or less is worth a word. On an H200, plans were off by 0.9 %."""

FIRST_NAMESPACE = "pid:[4026531836]"
"""Of processes, in every Linux (include/linux/proc_ns.h, PROC_PID_INIT_INO). The driver counts in no other."""


@dataclass(frozen=True)
class Gpu:
    """A GPU as the driver knows it; `minor` is that of its device, None where it is not told."""

    pci: str
    uuid: str
    minor: int | None


@dataclass(frozen=True)
class Found:
    """Where a server's processes were found: MiB by UUID, None for what is not told. `how`, if not by the driver."""

    held: Mapping[str, float | None]
    how: str = ""


def on_gpus(planned: InstancePlan, own: GpuProcesses, driver: GpusFound) -> tuple[bool, str]:
    """Whether the server is on its GPUs and on no other, and what was found."""
    pids = frozenset(own.pids)
    if not pids:
        return False, "no process runs"
    gpus = _gpus(driver)
    if not gpus:
        return False, _first(driver.listed) or "nvidia-smi said nothing"
    found = _listed(pids, driver) or _opened(frozenset(own.devices), gpus, driver)
    if found is None:
        return False, "it cannot be told: the driver shows no processes here, and no devices"
    if not found.held:
        return False, "it is on no GPU and serves from the CPU: its log says why CUDA did not start"
    wanted = _wanted(planned, gpus, found)
    absent = [card.name for card in planned.server.cards if wanted[card.name] not in found.held]
    others = sorted(f"{uuid}, which is not its" for uuid in found.held if uuid not in wanted.values() and not found.how)
    there = [(card.name, uuid) for card in planned.server.cards if (uuid := wanted[card.name]) in found.held]
    where = "; ".join(_shown(name, found.held[str(uuid)], planned) for name, uuid in there)
    enough = len(absent) < len(planned.server.cards) if planned.server.one_card else not absent
    lacks = f"not on {' and '.join(absent)}" if absent and not enough else ""
    detail = "; ".join(filter(None, [f"on {where}" if where else "", *(f"on {other}" for other in others), lacks]))
    return enough and not others, f"{detail}{found.how}"


def _first(said: str) -> str:
    return next((line.strip() for line in said.splitlines() if line.strip()), "")


def _gpus(driver: GpusFound) -> list[Gpu]:
    """All GPUs in the order of their addresses."""
    rows = (line.split(", ") for line in driver.listed.splitlines())
    # The driver's program writes the domain with eight digits, the kernel with four.
    found = [
        Gpu(row[0], row[1], driver.minors.get(row[0].lower()[-12:]))
        for row in rows
        if len(row) == 2 and row[1].startswith("GPU-")
    ]
    return sorted(found, key=lambda gpu: gpu.pci.upper())


def _in_wsl(driver: GpusFound) -> bool:
    return "microsoft" in driver.kernel.lower()


def _listed(pids: frozenset[str], driver: GpusFound) -> Found | None:
    """By the driver's list of processes; None where that cannot tell."""
    if _in_wsl(driver) or driver.namespace != FIRST_NAMESPACE:
        return None
    held: dict[str, float | None] = {}
    clear = True
    for line in driver.processes.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 3 or whole(fields[0]) is None or not fields[1].startswith("GPU-"):
            # `[N/A]`, `[Insufficient Permissions]`, or a sentence instead of a list.
            clear = clear and not line.strip()
        elif fields[0] in pids:
            memory, before = parse_number(fields[2]), held.get(fields[1], 0.0)
            held[fields[1]] = None if memory is None or before is None else before + memory
    return Found(held) if held or clear else None


def _opened(devices: frozenset[str], gpus: list[Gpu], driver: GpusFound) -> Found | None:
    """By the devices that processes hold open; None where those cannot tell. Only CUDA opens nvidia-uvm."""
    if _in_wsl(driver):
        held = {gpu.uuid: None for gpu in gpus} if "/dev/dxg" in devices else {}
        return Found(held, " (by its open device, which is one for all GPUs under WSL)")
    if all(gpu.minor is None for gpu in gpus):
        return None
    computes = "/dev/nvidia-uvm" in devices
    held = {gpu.uuid: None for gpu in gpus if computes and f"/dev/nvidia{gpu.minor}" in devices}
    return Found(held, " (by its open devices: the driver's list does not tell here)")


def _wanted(planned: InstancePlan, gpus: list[Gpu], found: Found) -> dict[str, str | None]:
    """The UUID of each planned GPU; for one that may be any, one that the server was found on."""
    wanted = {card.name: _uuid(card, gpus) for card in planned.server.cards if card.at != "any"}
    left = [uuid for uuid in found.held if uuid not in wanted.values()]
    return wanted | {card.name: left.pop(0) if left else None for card in planned.server.cards if card.at == "any"}


def _uuid(card: GpuRef, gpus: list[Gpu]) -> str | None:
    if (place := whole(card.at)) is not None:
        return gpus[place].uuid if place < len(gpus) else None
    return next((gpu.uuid for gpu in gpus if card.at.upper() in (gpu.uuid.upper(), gpu.pci.upper())), None)


def _shown(name: str, held: float | None, planned: InstancePlan) -> str:
    """A GPU by its name, with what is held of it beside what was planned."""
    if held is None:
        return name
    text = f"{name} with {held:,.0f} MiB"
    rooms = {room.where: room.total / (1 << 20) for room in planned.memory.holds} if planned.memory else {}
    if not (wanted := rooms.get(name)):
        return text
    off = held / wanted - 1
    note = f", which is {abs(off):.0%} {'more' if off > 0 else 'less'}" if abs(off) > OFF_BY else ""
    return f"{text}, planned are {wanted:,.0f}{note}"
