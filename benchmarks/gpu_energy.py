"""The energy of a machine's first GPU by its own counter, for benchmarks that have no meter on a host."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager

from llamaherd.measure.results.result import GpuTelemetry, Telemetry
from llamaherd.measure.trials.trial import Variant


class Counter:
    """NVML's counter of the first GPU, in millijoules since its driver was loaded."""

    def __init__(self) -> None:
        self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self._device = ctypes.c_void_p()
        self._checked(self._nvml.nvmlInit_v2())
        self._checked(self._nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._device)))
        self._first = 0.0

    def begin(self) -> float:
        """The time; energy is counted from now on."""
        self._first = self._joules()
        return time.monotonic()

    def end(self, begin: float, /) -> Telemetry | None:
        """What was taken from then until now."""
        taken = GpuTelemetry(gpu=0, counted_joules=self._joules() - self._first)
        return Telemetry(seconds=time.monotonic() - begin, gpus=(taken,))

    def rest(self, seconds: float, /) -> Telemetry | None:
        """What is taken while nothing is asked."""
        began = self.begin()
        time.sleep(seconds)
        return self.end(began)

    def _joules(self) -> float:
        millijoules = ctypes.c_ulonglong()
        self._checked(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._device, ctypes.byref(millijoules)))
        return millijoules.value / 1000

    def _checked(self, code: int) -> None:
        if code:
            raise OSError(f"NVML answers with {code}")


@contextmanager
def counted(_variant: Variant) -> Iterator[Counter]:
    """Count the energy while a candidate runs."""
    yield Counter()
