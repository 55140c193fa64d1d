"""What cannot be measured on a host, in sentences: named, so that nobody takes it for nothing. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.bench.meter.readings import Readings
from llamaherd.bench.meter.told import Hello

_MACHINES = ("none", "")
"""What systemd-detect-virt says where nothing lies between the system and the machine."""


def unmeasured(readings: Readings) -> tuple[str, ...]:
    """Sentences, one for each thing; nothing where all is told, or nothing was told yet."""
    hello = readings.hello
    return () if hello is None else (*_gpus(readings, hello), *_host(readings, hello), *_server(readings, hello))


def _gpus(readings: Readings, hello: Hello) -> Iterator[str]:
    if hello.no_smi:
        yield f"nothing of GPUs: {hello.no_smi}"
        return
    if readings.gone is not None:
        yield "nothing of GPUs from some moment on: what tells of them has ended"
    if hello.no_nvml:
        yield f"no energy counters of GPUs: {hello.no_nvml}"
    for uuid, why in hello.no_counter.items():
        yield f"no energy counter on GPU {uuid}: {why}"
    for name, what in (("watts", "power as it is now"), ("reasons", "reasons for lower clocks")):
        if name not in hello.fields:
            yield f"no {what} of GPUs: this driver does not know it"
    for uuid, samples in readings.gpus.items():
        if all(each.watts is None and each.mean_watts is None for each in samples):
            yield f"no power of GPU {uuid}: it does not tell"
        if all(each.sm_mhz is None for each in samples):
            yield f"no clock of GPU {uuid}: it does not tell"
    if readings.looks and readings.looks[-1].apps is None:
        yield f"not who else is on the GPUs: {_why_no_apps(hello)}"


def _why_no_apps(hello: Hello) -> str:
    if hello.virtual == "wsl":
        return "under WSL the driver does not tell"
    return hello.no_nvml or "the driver does not tell, or counts processes otherwise than this system"


def _host(readings: Readings, hello: Hello) -> Iterator[str]:
    if hello.no_rapl:
        where = hello.virtual not in _MACHINES and hello.no_rapl == "absent"
        why = f"no RAPL in here ({hello.virtual})" if where else f"RAPL: {hello.no_rapl}"
        yield f"no energy of the processor and its memory: {why}"
    figures = readings.figures[-1] if readings.figures else None
    if figures and figures.celsius is None:
        yield "no temperature of the processor: the kernel has no sensor of it"
    if figures and figures.mhz is None:
        yield "no clock of the processor: the kernel does not control it"
    if figures and figures.server and "peak" not in figures.server:
        yield "not the most that the server's group has held: this kernel does not keep it"


def _server(readings: Readings, hello: Hello) -> Iterator[str]:
    if readings.looks and hello.server.pid and readings.looks[-1].in_flight is None:
        yield "not whether somebody else uses the server: it does not tell its requests"
