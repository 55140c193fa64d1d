"""What the meter tells of times that we know by our own clock: of each request, of rest, and of all of it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from llamaherd.bench.meter.meter import Meter
from llamaherd.bench.meter.series import Window
from llamaherd.bench.meter.taken import telemetry
from llamaherd.bench.meter.use import Use, use
from llamaherd.bench.results.result import Run
from llamaherd.bench.results.telemetry import Telemetry

_SETTLE, _POLL = 0.6, 0.01
"""Seconds that readings after a request are waited for, and between two looks whether they are there."""


class Watch:
    """The GPUs of a server and its host. Times are ours, of the clock that never goes back."""

    def __init__(self, meter: Meter, uuids: Sequence[str]) -> None:
        self.uuids = tuple(uuids)
        self._meter = meter

    def rest(self, seconds: float) -> Telemetry | None:
        """What is taken while nothing is asked."""
        begin = self.begin()
        time.sleep(seconds)
        return self.end(begin)

    def begin(self) -> float:
        """The time; counters are read now."""
        self._meter.mark("begin")
        return time.monotonic()

    def end(self, begin: float) -> Telemetry | None:
        """What was taken from then until now; None where the host's clock is not known."""
        end = time.monotonic()
        self._meter.mark("end")
        self._settle(end)
        used = self.use(begin, end)
        return telemetry(used, self.uuids) if used else None

    def use(self, begin: float, end: float) -> Use | None:
        """All that is known of a time."""
        clocks = self._meter.clocks
        if clocks is None:
            return None
        return use(self._meter.readings, Window(clocks.on_host(begin), clocks.on_host(end)), self.uuids)

    def use_since(self, begin: float) -> Use | None:
        """All that is known from a time on, up to the last reading of the host: it is read once a second."""
        clocks, readings = self._meter.clocks, self._meter.readings
        if clocks is None or not readings.figures or readings.figures[-1].t <= clocks.on_host(begin):
            return None
        return use(readings, Window(clocks.on_host(begin), readings.figures[-1].t), self.uuids)

    @property
    def server_is_there(self) -> bool:
        """Whether the process that was there in the beginning still is, by the last reading."""
        readings = self._meter.readings
        return bool(readings.figures and readings.figures[-1].server)

    def _settle(self, end: float) -> None:
        """Wait for the first readings after a time: they come five times a second."""
        clocks, readings = self._meter.clocks, self._meter.readings
        if clocks is None:
            return
        there, until = clocks.on_host(end), time.monotonic() + _SETTLE
        while time.monotonic() < until and self._meter.error is None:
            last = [samples[-1].at for uuid, samples in readings.gpus.items() if uuid in self.uuids]
            last += [readings.counters[-1].t] if readings.counters else []
            if all(at >= there for at in last):
                return
            time.sleep(_POLL)


def with_telemetry(run: Run, took: Telemetry | None) -> Run:
    """A run with what it took: of all GPUs, and without one of the processor."""
    if took is None:
        return run
    joules = took.joules if took.gpus else took.processor_joules
    heat = [gpu.celsius_most for gpu in took.gpus if gpu.celsius_most is not None]
    clocks = [gpu.sm_mhz for gpu in took.gpus if gpu.sm_mhz is not None]
    return run.model_copy(
        update={
            "joules": joules,
            "watts": round(joules / took.seconds, 2) if joules is not None and took.seconds else None,
            "celsius": max(heat, default=took.processor_celsius),
            "sm_mhz": min(clocks, default=None),
        }
    )
