"""Convert usage into the telemetry that a result stores, and list what a host cannot measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from llamaherd.measure.meter.readings import Hello, Readings
from llamaherd.measure.meter.usage import GpuUsage, Usage
from llamaherd.measure.results.result import GpuTelemetry, Peak, Slowed, Telemetry
from llamaherd.plan import RAM, Estimate


def usage_telemetry(used: Usage, uuids: Sequence[str]) -> Telemetry:
    """What was used in a window, with GPUs by their numbers among these."""
    host, numbers = used.host, {uuid: number for number, uuid in enumerate(uuids)}
    return Telemetry(
        seconds=round(used.window.seconds, 3),
        gpus=tuple(_gpu(numbers[gpu.uuid], gpu) for gpu in used.gpus if gpu.uuid in numbers),
        processor_joules=_rounded(host.joules),
        processor_celsius=host.celsius,
        processor_mhz=_rounded(host.mhz),
        processors=_rounded(host.processors),
        others=_rounded(host.others),
        meter=_rounded(host.meter, 4),
        faults=host.faults,
        read_bytes=host.read_bytes,
        doubts=tuple(_numbered(doubt, numbers) for doubt in used.doubts),
    )


def combined_telemetry(parts: Sequence[Telemetry]) -> Telemetry | None:
    """Several times as one: joules are added, means are over time, and the most is the most. None of none."""
    if len(parts) < 2:
        return parts[0] if parts else None
    numbers = dict.fromkeys(gpu.gpu for part in parts for gpu in part.gpus)
    heat = [part.processor_celsius for part in parts if part.processor_celsius is not None]
    faults, read = ([getattr(part, name) for part in parts] for name in ("faults", "read_bytes"))
    return Telemetry(
        seconds=round(sum(part.seconds for part in parts), 3),
        gpus=tuple(_gpus_together(number, parts) for number in numbers),
        processor_joules=_sum([part.processor_joules for part in parts]),
        processor_celsius=max(heat, default=None),
        processor_mhz=_mean(parts, [part.processor_mhz for part in parts]),
        processors=_mean(parts, [part.processors for part in parts]),
        others=_mean(parts, [part.others for part in parts]),
        meter=_mean(parts, [part.meter for part in parts], 4),
        faults=None if None in faults else sum(faults),
        read_bytes=None if None in read else sum(read),
        doubts=tuple(dict.fromkeys(doubt for part in parts for doubt in part.doubts)),
    )


def memory_peaks(used: Usage, uuids: Sequence[str], planned: Estimate | None) -> Iterator[Peak]:
    """The most that was held, of each GPU and of RAM, pages of mapped files included."""
    holds = [each for each in planned.holds if each.where != RAM] if planned else []
    by_uuid = {gpu.uuid: gpu for gpu in used.gpus}
    for number, uuid in enumerate(uuids):
        # Several GPUs are planned in the order in which they were given; of any one it is the only one.
        expected = holds[number].total if len(holds) == len(uuids) else None
        held = by_uuid[uuid].memory_bytes if uuid in by_uuid else None
        yield Peak(gpu=number, held_bytes=held, planned_bytes=expected)
    in_ram = next((each.total for each in planned.holds if each.where == RAM), None) if planned else None
    yield Peak(held_bytes=used.host.resident_bytes, planned_bytes=in_ram)


def _gpu(number: int, gpu: GpuUsage) -> GpuTelemetry:
    return GpuTelemetry(
        gpu=number,
        counted_joules=_rounded(gpu.counted),
        integrated_joules=_rounded(gpu.integrated),
        watts=_rounded(gpu.watts),
        peak_watts=gpu.peak_watts,
        celsius_begin=gpu.celsius_begin,
        celsius_end=gpu.celsius_end,
        celsius_most=gpu.celsius_most,
        sm_mhz=gpu.sm_mhz,
        slowed=tuple(Slowed(reason=reason, share=round(share, 4)) for reason, share in gpu.slowed.items()),
    )


def _gpus_together(number: int, parts: Sequence[Telemetry]) -> GpuTelemetry:
    found = [(part, gpu) for part in parts for gpu in part.gpus if gpu.gpu == number]
    held, every = [part for part, _ in found], [gpu for _, gpu in found]
    shares = [{each.reason: each.share for each in gpu.slowed} for gpu in every]
    reasons = dict.fromkeys(reason for each in shares for reason in each)
    slowed = [(reason, _mean(held, [each.get(reason, 0.0) for each in shares], 4)) for reason in reasons]
    return GpuTelemetry(
        gpu=number,
        counted_joules=_sum([gpu.counted_joules for gpu in every]),
        integrated_joules=_sum([gpu.integrated_joules for gpu in every]),
        watts=_mean(held, [gpu.watts for gpu in every]),
        peak_watts=_most([gpu.peak_watts for gpu in every]),
        celsius_begin=every[0].celsius_begin,
        celsius_end=every[-1].celsius_end,
        celsius_most=_most([gpu.celsius_most for gpu in every]),
        sm_mhz=_mean(held, [gpu.sm_mhz for gpu in every]),
        slowed=tuple(Slowed(reason=reason, share=share or 0.0) for reason, share in slowed),
    )


def _numbered(doubt: str, numbers: Mapping[str, int]) -> str:
    """A sentence without UUIDs."""
    for uuid, number in numbers.items():
        doubt = doubt.replace(uuid, str(number))
    return doubt


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)


def _sum(values: Sequence[float | None]) -> float | None:
    """All together; None where one of them is not known."""
    known = [value for value in values if value is not None]
    return round(sum(known), 3) if known and len(known) == len(values) else None


def _most(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _mean(parts: Sequence[Telemetry], values: Sequence[float | None], digits: int = 3) -> float | None:
    """The mean over time, of the parts of which it is known."""
    known = [(part.seconds, value) for part, value in zip(parts, values, strict=True) if value is not None]
    seconds = sum(each for each, _ in known)
    return round(sum(each * value for each, value in known) / seconds, digits) if seconds else None


_MACHINES = ("none", "")
"""What systemd-detect-virt says where nothing lies between the system and the machine."""


def unmeasured_sentences(readings: Readings) -> tuple[str, ...]:
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
