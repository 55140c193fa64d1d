"""Compute what a server used in a window of time, as the telemetry of a result: energy, power, heat, clocks, memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import fsum
from statistics import median
from typing import NamedTuple

from llamaherd.measure.meter.readings import Figures, GpuFacts, GpuSample, Hello, Readings
from llamaherd.measure.results.result import GpuTelemetry, Peak, Slowed, Telemetry
from llamaherd.plan import RAM, Estimate


class Point(NamedTuple):
    """A reading."""

    at: float
    value: float


class Window(NamedTuple):
    """A window of time by the host's clock."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.begin


class Clocks(NamedTuple):
    """By how many seconds the host's clock is ahead of ours, and how wrong that may be."""

    ahead: float
    error: float

    def on_host(self, ours: float) -> float:
        """Convert a time of ours to the host's clock."""
        return ours + self.ahead


def value_at(points: Sequence[Point], at: float) -> float:
    """Return the value at a time, interpolated between two readings; outside of all readings the nearest value."""
    place = bisect_left(points, at, key=lambda point: point.at)
    if place == 0:
        return points[0].value
    if place == len(points):
        return points[-1].value
    (before, low), (after, high) = points[place - 1], points[place]
    if at == after:
        return high
    return low + (high - low) * (at - before) / (after - before)


def integral(points: Sequence[Point], window: Window) -> float | None:
    """Return the area below the readings in a window: joules of watts. None without a reading."""
    if not points:
        return None
    first = bisect_right(points, window.begin, key=lambda point: point.at)
    last = bisect_left(points, window.end, key=lambda point: point.at)
    ends = (Point(each, value_at(points, each)) for each in window)
    begin, end = ends
    inside = (begin, *points[first:last], end)
    return fsum((one.value + two.value) / 2 * (two.at - one.at) for one, two in pairwise(inside))


def time_mean(points: Sequence[Point], window: Window) -> float | None:
    """Return the mean over time; None without a reading, or if the window has no length."""
    area = integral(points, window)
    return None if area is None or window.seconds <= 0 else area / window.seconds


def counter_rise(points: Sequence[Point], window: Window) -> float | None:
    """Return the rise of a counter in a window. None if it was not read before and after, or fell: it was reset."""
    if not points or points[0].at > window.begin or points[-1].at < window.end:
        return None
    if any(two.value < one.value for one, two in pairwise(points)):
        return None
    return value_at(points, window.end) - value_at(points, window.begin)


def unwrapped(points: Iterable[Point], size: float) -> tuple[Point, ...]:
    """Undo the wrapping of a counter that restarts at 0 after `size`, at most once between two readings."""
    found: list[Point] = []
    turns, before = 0, 0.0
    for at, value in points:
        turns += value < before
        before = value
        found.append(Point(at, value + turns * size))
    return tuple(found)


def points_within(points: Iterable[Point], window: Window) -> tuple[Point, ...]:
    """Return the readings of a window."""
    return tuple(point for point in points if window.begin <= point.at <= window.end)


def longest_gap(points: Iterable[Point], window: Window) -> float:
    """Return the longest time in a window without a reading, its ends included."""
    times = (window.begin, *(point.at for point in points_within(points, window)), window.end)
    return max(two - one for one, two in pairwise(times))


def match_clocks(exchanges: Iterable[tuple[float, float, float]]) -> Clocks | None:
    """Return the offset of the host's clock from the exchange with the shortest round trip.

    An exchange is our time of sending, the host's time, and our time of receiving. Both ways are assumed to take
    equally long, with an error of half the round trip.
    """
    best = min(exchanges, key=lambda each: each[2] - each[0], default=None)
    if best is None:
        return None
    sent, there, received = best
    return Clocks(there - (sent + received) / 2, (received - sent) / 2)


POWER_CAP, HEAT = "power cap", "heat"
REASONS = {0x4: POWER_CAP, 0x8: "hardware", 0x20: HEAT, 0x40: HEAT, 0x80: "power brake"}
"""Why a GPU's clock is lower than it could be, by the bits of nvml.h: SwPowerCap, HwSlowdown, SwThermalSlowdown,
HwThermalSlowdown, HwPowerBrakeSlowdown. Others, as that it is idle, are no slowing."""

_APART = 0.05
"""Counted and integrated energy may differ by this share."""
_GAP = 2.0
"""Seconds without a reading, after which the energy of a window is unknown."""
_NEAR = 0.5
"""Seconds from an end of a window, within which its counter must have been read."""
_BLURRED = 10.0
"""Seconds of a window, below which a mean of power over a second mostly covers the time before the window."""
_READ = 1_000_000
"""Bytes that a server may read from the disk: its log, a library."""
_OTHERS = 0.5
"""Processors that other programs may use."""


@dataclass(frozen=True)
class GpuUsage:
    """A GPU in a window. `counted` is by its own counter of energy, `integrated` by its power; joules.

    `slowed`: the share of readings with a reduced clock, by the reason. `sm_mhz` is the median.
    """

    uuid: str
    name: str
    counted: float | None
    integrated: float | None
    watts: float | None
    peak_watts: float | None
    celsius_begin: float | None
    celsius_end: float | None
    celsius_most: float | None
    sm_mhz: float | None
    slowed: Mapping[str, float]
    memory_bytes: int | None
    generation: int | None
    lanes: int | None

    @property
    def joules(self) -> float | None:
        """The energy by the counter, or else by the power."""
        return self.integrated if self.counted is None else self.counted


@dataclass(frozen=True)
class HostUsage:
    """The host in a window. Bytes are the most of the server in the window; `peak_bytes` since it was started.

    `group_peak_bytes` are those of its control group since then, with the page cache of what it has read from the disk.
    `others` are the processors that other programs used, and `meter` those that the meter used.
    """

    joules: float | None = None
    resident_bytes: int | None = None
    anonymous_bytes: int | None = None
    peak_bytes: int | None = None
    group_peak_bytes: int | None = None
    swapped_bytes: int = 0
    faults: int | None = None
    read_bytes: int | None = None
    processors: float | None = None
    others: float | None = None
    meter: float | None = None
    celsius: float | None = None
    mhz: float | None = None


@dataclass(frozen=True)
class Usage:
    """What GPUs and host used in a window. `doubts` are sentences: reasons against the figures."""

    window: Window
    gpus: tuple[GpuUsage, ...]
    host: HostUsage
    doubts: tuple[str, ...] = field(default=())

    @property
    def joules(self) -> float | None:
        """The energy of all GPUs; None if one of them is unknown."""
        return _sum(gpu.joules for gpu in self.gpus)

    @property
    def watts(self) -> float | None:
        """The mean power of all GPUs."""
        joules = self.joules
        return None if joules is None or self.window.seconds <= 0 else joules / self.window.seconds

    @property
    def celsius(self) -> float | None:
        """The highest temperature of all GPUs."""
        return _highest(gpu.celsius_most for gpu in self.gpus)

    @property
    def sm_mhz(self) -> float | None:
        """The median clock of the slowest GPU."""
        return min((gpu.sm_mhz for gpu in self.gpus if gpu.sm_mhz is not None), default=None)

    def net_joules(self, idle: Usage) -> float | None:
        """Return the energy beyond what the same GPUs use at rest."""
        joules, rest = self.joules, idle.watts
        return None if joules is None or rest is None else joules - rest * self.window.seconds


def usage_of(readings: Readings, window: Window, uuids: Iterable[str] | None = None) -> Usage:
    """Return what these GPUs, or all, and the host used in a window."""
    facts = readings.facts
    wanted = readings.gpus if uuids is None else dict.fromkeys(uuids)
    gpus = tuple(_gpu_usage(readings, window, uuid, facts.get(uuid)) for uuid in wanted)
    host = _host_usage(readings, window)
    doubts = [doubt for gpu in gpus for doubt in _gpu_doubts(gpu, readings.gpus.get(gpu.uuid, ()), window)]
    return Usage(window, gpus, host, (*doubts, *_host_doubts(host, readings, window)))


def _points(samples: Iterable[GpuSample], *names: str) -> tuple[Point, ...]:
    """Return the readings of the first of these names that has any."""
    samples = tuple(samples)
    for name in names:
        found = tuple(Point(each.at, value) for each in samples if (value := getattr(each, name)) is not None)
        if found:
            return found
    return ()


def _covered(points: Sequence[Point], window: Window) -> bool:
    """Check that readings cover a window without a gap."""
    return bool(points) and longest_gap(points, window) <= _GAP


def _counted(points: Sequence[Point], window: Window) -> bool:
    """Check that a counter was read near both ends of a window: it keeps counting in between."""
    return all(any(abs(point.at - end) <= _NEAR for point in points) for end in window)


def _gpu_usage(readings: Readings, window: Window, uuid: str, facts: GpuFacts | None) -> GpuUsage:
    samples = readings.gpus.get(uuid, ())
    power, heat = _points(samples, "watts", "mean_watts"), points_within(_points(samples, "celsius"), window)
    counts = tuple(Point(each.t, each.mj[uuid] / 1000) for each in readings.counters if uuid in each.mj)
    inside = [each for each in samples if window.begin <= each.at <= window.end]
    known = _covered(power, window)
    return GpuUsage(
        uuid=uuid,
        name=facts.name if facts else "",
        counted=counter_rise(counts, window) if _counted(counts, window) else None,
        integrated=integral(power, window) if known else None,
        watts=time_mean(power, window) if known else None,
        peak_watts=max((point.value for point in points_within(power, window)), default=None),
        celsius_begin=heat[0].value if heat else None,
        celsius_end=heat[-1].value if heat else None,
        celsius_most=max((point.value for point in heat), default=None),
        sm_mhz=_median(each.sm_mhz for each in inside),
        slowed=_slowed([each.reasons for each in inside if each.reasons is not None]),
        memory_bytes=max((each.memory_bytes for each in inside if each.memory_bytes is not None), default=None),
        generation=max((each.generation for each in inside if each.generation is not None), default=None),
        lanes=max((each.lanes for each in inside if each.lanes is not None), default=None),
    )


def slowdown_reasons(mask: int) -> frozenset[str]:
    """Return why a clock is reduced."""
    return frozenset(reason for bit, reason in REASONS.items() if mask & bit)


def _slowed(masks: Sequence[int]) -> dict[str, float]:
    """Return the share of readings for each reason that occurs."""
    found = [slowdown_reasons(mask) for mask in masks]
    names = dict.fromkeys(reason for reason in REASONS.values() if any(reason in each for each in found))
    return {reason: sum(reason in each for each in found) / len(found) for reason in names}


def _host_usage(readings: Readings, window: Window) -> HostUsage:
    near = _around(readings.figures, window)
    servers = [each.server for each in near if each.server]
    packages = {name for each in readings.counters for name in each.uj}
    ran = _processors(readings.figures, window)
    return HostUsage(
        joules=_sum(_package_joules(readings, name, window) for name in packages) if packages else None,
        resident_bytes=_most(servers, "rss"),
        anonymous_bytes=_most(servers, "anon"),
        peak_bytes=_most(servers, "most"),
        group_peak_bytes=_most(servers, "peak"),
        swapped_bytes=_most(servers, "swap") or 0,
        faults=_grown(readings.figures, "faults", window),
        read_bytes=_grown(readings.figures, "read", window),
        processors=ran.get("server"),
        others=ran.get("others"),
        meter=ran.get("meter"),
        celsius=_highest(each.celsius for each in near),
        mhz=_median(each.mhz for each in near),
    )


def _around(figures: Sequence[Figures], window: Window) -> Sequence[Figures]:
    """Return the readings of a window, and the next ones on both sides: a window may lie between two readings."""
    first = bisect_left(figures, window.begin, key=lambda each: each.t)
    last = bisect_right(figures, window.end, key=lambda each: each.t)
    return figures[max(0, first - 1) : last + 1]


def _package_joules(readings: Readings, name: str, window: Window) -> float | None:
    size = readings.hello.rapl.get(name, 0) if readings.hello else 0
    points = unwrapped((Point(each.t, each.uj[name]) for each in readings.counters if name in each.uj), size)
    rise = counter_rise(points, window) if _covered(points, window) else None
    return None if rise is None else rise / 1e6


def _processors(figures: Sequence[Figures], window: Window) -> dict[str, float]:
    """Return how many processors the server, the meter and other programs used."""
    computed = counter_rise([Point(each.t, each.cpu) for each in figures], window)
    meter = counter_rise([Point(each.t, each.own) for each in figures], window)
    server = counter_rise([Point(each.t, each.server["cpu"]) for each in figures if "cpu" in each.server], window)
    if computed is None or meter is None or window.seconds <= 0:
        return {}
    others = max(0.0, computed - meter - (server or 0))
    spans = {"meter": meter, "others": others} | ({} if server is None else {"server": server})
    return {name: span / 1e6 / window.seconds for name, span in spans.items()}


def _gpu_doubts(gpu: GpuUsage, samples: Sequence[GpuSample], window: Window) -> Iterable[str]:
    name = f"GPU {gpu.uuid}"
    counted, summed = gpu.counted, gpu.integrated
    if counted is not None and summed is not None and abs(counted - summed) > _APART * max(counted, summed):
        yield f"{name} counted {counted:.0f} J, and its power over that time makes {summed:.0f} J"
    if gpu.counted is None and summed is not None and window.seconds < _BLURRED and not _points(samples, "watts"):
        yield f"the power of {name} is a mean over a second, and this took only {window.seconds:.1f} s"
    if gpu.joules is None and _points(samples, "watts", "mean_watts"):
        yield f"{name} was not read for more than {_GAP:.0f} s: what it took is not known"
    for reason, share in gpu.slowed.items():
        if reason != POWER_CAP:
            yield f"{name} was slowed in {share:.0%} of readings: {reason}"


def _host_doubts(host: HostUsage, readings: Readings, window: Window) -> Iterable[str]:
    inside = [each for each in readings.figures if window.begin <= each.t <= window.end]
    if readings.hello and readings.hello.server.pid and any(not each.server for each in inside):
        yield "the server ended meanwhile"
    if host.swapped_bytes:
        yield f"{host.swapped_bytes / 1e6:.0f} MB of the server lay in swap"
    if host.faults and (host.read_bytes is None or host.read_bytes >= _READ):
        size = "" if host.read_bytes is None else f", {host.read_bytes / 1e6:.0f} MB"
        yield f"the server waited for the disk: {host.faults} major page faults{size}"
    if host.others is not None and host.others > _OTHERS:
        yield f"other programs used {host.others:.1f} processors"


def _sum(values: Iterable[float | None]) -> float | None:
    """Return the sum; None if one value is unknown, or there is none."""
    values = list(values)
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _most(servers: Iterable[Mapping[str, int]], name: str) -> int | None:
    return max((each[name] for each in servers if name in each), default=None)


def _grown(figures: Iterable[Figures], name: str, window: Window) -> int | None:
    rise = counter_rise([Point(each.t, each.server[name]) for each in figures if name in each.server], window)
    return None if rise is None else round(rise)


def usage_telemetry(used: Usage, uuids: Sequence[str]) -> Telemetry:
    """Return the usage of a window as telemetry, with GPUs by their numbers among these."""
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
        doubts=tuple(with_gpu_numbers(doubt, uuids) for doubt in used.doubts),
    )


def combined_telemetry(parts: Sequence[Telemetry]) -> Telemetry | None:
    """Combine several telemetries: sums of joules, means over time, and maxima. None of none."""
    if len(parts) < 2:
        return parts[0] if parts else None
    numbers = dict.fromkeys(gpu.gpu for part in parts for gpu in part.gpus)
    faults, read = ([getattr(part, name) for part in parts] for name in ("faults", "read_bytes"))
    return Telemetry(
        seconds=round(sum(part.seconds for part in parts), 3),
        gpus=tuple(_gpus_together(number, parts) for number in numbers),
        processor_joules=_rounded(_sum(part.processor_joules for part in parts)),
        processor_celsius=_highest(part.processor_celsius for part in parts),
        processor_mhz=_mean(parts, [part.processor_mhz for part in parts]),
        processors=_mean(parts, [part.processors for part in parts]),
        others=_mean(parts, [part.others for part in parts]),
        meter=_mean(parts, [part.meter for part in parts], 4),
        faults=None if None in faults else sum(faults),
        read_bytes=None if None in read else sum(read),
        doubts=tuple(dict.fromkeys(doubt for part in parts for doubt in part.doubts)),
    )


def memory_peaks(used: Usage, uuids: Sequence[str], planned: Estimate | None) -> Iterator[Peak]:
    """Yield the peak of each GPU's memory and of RAM, pages of mapped files included."""
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
        counted_joules=_rounded(_sum(gpu.counted_joules for gpu in every)),
        integrated_joules=_rounded(_sum(gpu.integrated_joules for gpu in every)),
        watts=_mean(held, [gpu.watts for gpu in every]),
        peak_watts=_highest(gpu.peak_watts for gpu in every),
        celsius_begin=every[0].celsius_begin,
        celsius_end=every[-1].celsius_end,
        celsius_most=_highest(gpu.celsius_most for gpu in every),
        sm_mhz=_mean(held, [gpu.sm_mhz for gpu in every]),
        slowed=tuple(Slowed(reason=reason, share=share or 0.0) for reason, share in slowed),
    )


def with_gpu_numbers(sentence: str, uuids: Iterable[str]) -> str:
    """Replace the UUIDs of a sentence by their numbers among these."""
    for number, uuid in enumerate(uuids):
        sentence = sentence.replace(uuid, str(number))
    return sentence


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)


def _mean(parts: Sequence[Telemetry], values: Sequence[float | None], digits: int = 3) -> float | None:
    """Return the mean over time of the parts with a value."""
    known = [(part.seconds, value) for part, value in zip(parts, values, strict=True) if value is not None]
    seconds = sum(each for each, _ in known)
    return round(sum(each * value for each, value in known) / seconds, digits) if seconds else None


_MACHINES = ("none", "")
"""What systemd-detect-virt prints on bare metal."""


def unmeasured_sentences(readings: Readings) -> tuple[str, ...]:
    """Return a sentence for each thing that this host does not report; none before the first line."""
    hello = readings.hello
    return () if hello is None else (*_gpus(readings, hello), *_host(readings, hello), *_server(readings, hello))


def _gpus(readings: Readings, hello: Hello) -> Iterator[str]:
    if hello.no_smi:
        yield f"nothing of GPUs: {hello.no_smi}"
        return
    if readings.gone is not None:
        yield "nothing of GPUs from some moment on: the source of their readings has ended"
    if hello.no_nvml:
        yield f"no energy counters of GPUs: {hello.no_nvml}"
    for uuid, why in hello.no_counter.items():
        yield f"no energy counter on GPU {uuid}: {why}"
    for name, what in (("watts", "power as it is now"), ("reasons", "reasons for lower clocks")):
        if name not in hello.fields:
            yield f"no {what} of GPUs: this driver does not report it"
    for uuid, samples in readings.gpus.items():
        if all(each.watts is None and each.mean_watts is None for each in samples):
            yield f"no power of GPU {uuid}: it reports none"
        if all(each.sm_mhz is None for each in samples):
            yield f"no clock of GPU {uuid}: it reports none"
    if readings.snapshots and readings.snapshots[-1].apps is None:
        yield f"not the other processes on the GPUs: {_why_no_apps(hello)}"


def _why_no_apps(hello: Hello) -> str:
    if hello.virtual == "wsl":
        return "under WSL the driver does not report them"
    return hello.no_nvml or "the driver does not report them, or numbers processes differently from this system"


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
        yield "no peak memory of the server's control group: this kernel does not record it"


def _server(readings: Readings, hello: Hello) -> Iterator[str]:
    if readings.snapshots and hello.server.pid and readings.snapshots[-1].in_flight is None:
        yield "not whether other clients use the server: it does not report its requests"
