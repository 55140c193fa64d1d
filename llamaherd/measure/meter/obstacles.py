"""Find obstacles to a measurement in one snapshot of a host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llamaherd.measure.meter.readings import GpuFacts, GpuSample, Readings
from llamaherd.measure.meter.usage import HEAT, POWER_CAP, slowdown_reasons
from llamaherd.plan import GpuRef, InstancePlan, Plan
from llamaherd.reference.cards import is_pci_address, pci_address
from llamaherd.text.numbers import show_size, whole_number

_SWAPPED = 1 << 20
"""Bytes in swap that are negligible."""
_BUSY = 0.5
"""Processors that other programs may use."""
_BELOW = 1.0
"""Watts by which drivers round a limit."""


class OtherProgram(NamedTuple):
    """Another program on the host: its name, its unit or container, and how many processors it uses."""

    name: str
    unit: str
    processors: float

    def __str__(self) -> str:
        return f"{self.name} of {self.unit}" if self.unit else self.name


class GpuProcess(NamedTuple):
    """A process on a GPU; `size` is the GPU memory that it holds, if the driver reports it."""

    uuid: str
    pid: int
    size: int | None
    name: str
    unit: str


@dataclass(frozen=True)
class HostSnapshot:
    """The state of a server's host. `apps` is None if the driver does not report the processes on GPUs.

    `listens`: whether the server itself listens at its port; None if no process does. `gpus` are the last readings.
    """

    running: bool
    spec: str
    listens: bool | None
    in_flight: int | None
    others: tuple[OtherProgram, ...]
    apps: tuple[GpuProcess, ...] | None
    ours: frozenset[int]
    swapped_bytes: int
    on_battery: bool | None
    load: float
    gpus: dict[str, GpuSample]
    facts: dict[str, GpuFacts]


@dataclass(frozen=True)
class Obstacle:
    """Why a measurement would be misleading. `help` is empty if no fix is certainly right.

    `code` is a word that does not change: what was overruled is stored by it.
    """

    code: str
    message: str
    help: str = ""


def host_snapshot(readings: Readings) -> HostSnapshot | None:
    """Return the last inspection; None before the first one."""
    hello, seen = readings.hello, readings.looks[-1] if readings.looks else None
    if hello is None or seen is None:
        return None
    server = readings.figures[-1].server if readings.figures else {}
    return HostSnapshot(
        running=bool(seen.ours),
        spec=hello.server.spec,
        listens=seen.listens,
        in_flight=seen.in_flight,
        others=tuple(OtherProgram(*each) for each in seen.others),
        apps=None if seen.apps is None else tuple(GpuProcess(*each) for each in seen.apps),
        ours=frozenset(seen.ours),
        swapped_bytes=server.get("swap", 0),
        on_battery=seen.battery,
        load=seen.load,
        gpus={uuid: samples[-1] for uuid, samples in readings.gpus.items()},
        facts=readings.facts,
    )


def gpus_of(look: HostSnapshot, refs: Iterable[GpuRef]) -> tuple[str, ...]:
    """Return the UUIDs of a server's GPUs: those that it runs on, else those of its plan; all if it may use any."""
    own = tuple(dict.fromkeys(app.uuid for app in look.apps or () if app.pid in look.ours))
    if own:
        return own
    given = [ref.at for ref in refs]
    return tuple(look.gpus) if "any" in given else tuple(uuid for at in given if (uuid := find_gpu(look, at)))


def find_gpu(look: HostSnapshot, at: str) -> str | None:
    """Find the UUID of the GPU that a plan means by UUID, address, or number in the order of addresses."""
    facts = [gpu for gpu in look.facts.values() if gpu.address and is_pci_address(gpu.address)]
    in_order = sorted(facts, key=lambda gpu: pci_address(gpu.address or ""))
    if (place := whole_number(at)) is not None:
        return in_order[place].uuid if place < len(in_order) else None
    return next((gpu.uuid for gpu in in_order if at.upper() in (gpu.uuid.upper(), (gpu.address or "").upper())), None)


def obstacles(look: HostSnapshot, plan: Plan, instance: InstancePlan) -> tuple[Obstacle, ...]:
    """Return what prevents a valid measurement of an instance, the gravest first."""
    uuids = gpus_of(look, instance.server.cards)
    return tuple(_server(look, plan.rig, instance)) or (
        *_alone(look, instance, uuids),
        *_slow(look, uuids),
        *(each for uuid in uuids for each in _held(look, plan, uuid)),
    )


def _server(look: HostSnapshot, rig: str, instance: InstancePlan) -> Iterator[Obstacle]:
    """Yield why the running server is not the planned one: then nothing else counts."""
    name = instance.name
    if not look.running:
        yield Obstacle("server-down", f"{name} does not run", f"`herd up {rig}` starts it")
    elif look.spec != instance.spec:
        yield Obstacle("not-as-planned", f"the running {name} differs from the plan", f"`herd diff {rig}` shows why")
    elif look.listens is False and (instance.backend == "systemd" or instance.server.host_network):
        yield Obstacle("port-taken", f"a program other than {name} listens at port {instance.endpoint.port}")


def _alone(look: HostSnapshot, instance: InstancePlan, uuids: Sequence[str]) -> Iterator[Obstacle]:
    """Yield other programs and other clients."""
    if look.in_flight:
        plural = "s" if look.in_flight > 1 else ""
        message = f"{instance.name} serves {look.in_flight} request{plural} of other clients"
        yield Obstacle("busy", message, "wait, or keep its clients away meanwhile")
    for app in look.apps or ():
        if app.uuid in uuids and app.pid not in look.ours:
            holds = f", with {show_size(app.size)}" if app.size else ""
            who = f"{app.name} of {app.unit}" if app.unit else app.name or f"process {app.pid}"
            yield Obstacle("gpu-shared", f"{who} is on GPU {app.uuid} as well{holds}")
    used = sum(other.processors for other in look.others)
    if used > _BUSY:
        names = ", ".join(dict.fromkeys(map(str, look.others[:3])))
        yield Obstacle("host-busy", f"other programs use {used:.1f} processors: {names}")


def _slow(look: HostSnapshot, uuids: Iterable[str]) -> Iterator[Obstacle]:
    """Yield what makes the server slower than it could be."""
    if look.swapped_bytes > _SWAPPED:
        size = show_size(look.swapped_bytes)
        yield Obstacle("swapped", f"{size} of the server lie in swap", "end what else takes RAM there, then restart it")
    if look.on_battery:
        yield Obstacle("on-battery", "the machine runs on its battery", "plug it in")
    for uuid in uuids:
        sample = look.gpus.get(uuid)
        for reason in sorted(slowdown_reasons(sample.reasons or 0) - {POWER_CAP}) if sample else ():
            wait = "let it cool down" if reason == HEAT else ""
            yield Obstacle("gpu-slowed", f"GPU {uuid} is slowed now: {reason}", wait)


def _held(look: HostSnapshot, plan: Plan, uuid: str) -> Iterator[Obstacle]:
    """Yield a power limit that is lower than it should be: a forgotten manual setting."""
    ours = plan.power.cards if plan.power else ()
    declared = next((gpu.limit for gpu in (*ours, *plan.windows_power) if find_gpu(look, gpu.at) == uuid), None)
    default = look.facts[uuid].power_default_watts if uuid in look.facts else None
    limit = look.gpus[uuid].limit if uuid in look.gpus else None
    if limit is None:
        return
    if declared is not None and limit < declared - _BELOW:
        message = f"GPU {uuid} is limited to {limit:.0f} W, but {declared:.0f} W are declared"
        # Under WSL, Windows sets the limit.
        yield Obstacle("power-held", message, f"`herd up {plan.rig}` sets it" if ours else "")
    if declared is None and default is not None and limit < default - _BELOW:
        message = f"GPU {uuid} is limited to {limit:.0f} W of {default:.0f} W, and no limit is declared"
        yield Obstacle("power-held", message, f"declare its `power_limit`, or set it to {default:.0f} W")
