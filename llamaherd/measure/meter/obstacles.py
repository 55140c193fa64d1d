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
"""Bytes in swap that are nothing yet."""
_BUSY = 0.5
"""Processors that others may use."""
_BELOW = 1.0
"""Watts by which drivers round a limit."""


class OtherProgram(NamedTuple):
    """A program beside the server: its name, its unit or container, and how many processors it uses."""

    name: str
    unit: str
    processors: float

    def __str__(self) -> str:
        return f"{self.name} of {self.unit}" if self.unit else self.name


class GpuProcess(NamedTuple):
    """A process on a GPU; `size` is what it has of its memory, if that is told."""

    uuid: str
    pid: int
    size: int | None
    name: str
    unit: str


@dataclass(frozen=True)
class HostSnapshot:
    """A server's host at a moment. `apps` is None where the driver does not tell who is on the GPUs.

    `listens`: whether the server is who listens at its port; None where nobody does. `gpus` are the last readings.
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
    """Why a measurement would not say what it seems to. `help` is empty where there is no way out that is surely right.

    `code` is a word that does not change: what was overruled is kept by it.
    """

    code: str
    message: str
    help: str = ""


def host_snapshot(readings: Readings) -> HostSnapshot | None:
    """The last look of all; None where none was told yet."""
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
    """The UUIDs of a server's GPUs: those that it is found on, else those that it was given; all where any will do."""
    own = tuple(dict.fromkeys(app.uuid for app in look.apps or () if app.pid in look.ours))
    if own:
        return own
    given = [ref.at for ref in refs]
    return tuple(look.gpus) if "any" in given else tuple(uuid for at in given if (uuid := find_gpu(look, at)))


def find_gpu(look: HostSnapshot, at: str) -> str | None:
    """The UUID of the GPU that a plan means: by its UUID, its address, or its number in the order of addresses."""
    facts = [gpu for gpu in look.facts.values() if gpu.address and is_pci_address(gpu.address)]
    in_order = sorted(facts, key=lambda gpu: pci_address(gpu.address or ""))
    if (place := whole_number(at)) is not None:
        return in_order[place].uuid if place < len(in_order) else None
    return next((gpu.uuid for gpu in in_order if at.upper() in (gpu.uuid.upper(), (gpu.address or "").upper())), None)


def obstacles(look: HostSnapshot, plan: Plan, instance: InstancePlan) -> tuple[Obstacle, ...]:
    """What is in the way of measuring an instance, the gravest first."""
    uuids = gpus_of(look, instance.server.cards)
    return tuple(_server(look, plan.rig, instance)) or (
        *_alone(look, instance, uuids),
        *_slow(look, uuids),
        *(each for uuid in uuids for each in _held(look, plan, uuid)),
    )


def _server(look: HostSnapshot, rig: str, instance: InstancePlan) -> Iterator[Obstacle]:
    """That it is not the planned server which would be measured: then nothing else counts."""
    name = instance.name
    if not look.running:
        yield Obstacle("server-down", f"{name} does not run", f"`herd up {rig}` starts it")
    elif look.spec != instance.spec:
        yield Obstacle("not-as-planned", f"what runs of {name} is not what is planned", f"`herd diff {rig}` shows why")
    elif look.listens is False and (instance.backend == "systemd" or instance.server.host_network):
        yield Obstacle("port-taken", f"another program than {name} listens at port {instance.endpoint.port}")


def _alone(look: HostSnapshot, instance: InstancePlan, uuids: Sequence[str]) -> Iterator[Obstacle]:
    """Who else is there."""
    if look.in_flight:
        plural = "s" if look.in_flight > 1 else ""
        message = f"{instance.name} answers {look.in_flight} request{plural} of somebody else"
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
    """What makes it slower than it could be."""
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
    """That a GPU is held to less power than it should be: somebody has set it by hand, and forgotten."""
    ours = plan.power.cards if plan.power else ()
    declared = next((gpu.limit for gpu in (*ours, *plan.windows_power) if find_gpu(look, gpu.at) == uuid), None)
    default = look.facts[uuid].power_default_watts if uuid in look.facts else None
    limit = look.gpus[uuid].limit if uuid in look.gpus else None
    if limit is None:
        return
    if declared is not None and limit < declared - _BELOW:
        message = f"GPU {uuid} is held to {limit:.0f} W, and {declared:.0f} W are declared"
        # Under WSL it is Windows' to set.
        yield Obstacle("power-held", message, f"`herd up {plan.rig}` sets it" if ours else "")
    if declared is None and default is not None and limit < default - _BELOW:
        message = f"GPU {uuid} is held to {limit:.0f} W of {default:.0f} W, and nothing is declared"
        yield Obstacle("power-held", message, f"declare its `power_limit`, or set it to {default:.0f} W")
