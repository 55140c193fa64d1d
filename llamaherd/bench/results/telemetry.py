"""What a server took while it was measured, as a result keeps it: energy, power, heat, clocks, memory.

GPUs are named by their number among those of the provenance, so that none can be told by a result for others.
"""

from __future__ import annotations

from llamaherd.bench.results.provenance import Count, NotNegative, Recorded


class Slowed(Recorded):
    """The share of readings at which a GPU's clock was held down for this reason."""

    reason: str
    share: NotNegative


class GpuTelemetry(Recorded):
    """One GPU over a time. Joules are by its own counter of energy, and by its power; `sm_mhz` is the median clock."""

    gpu: Count
    counted_joules: NotNegative | None = None
    integrated_joules: NotNegative | None = None
    watts: NotNegative | None = None
    peak_watts: NotNegative | None = None
    celsius_begin: float | None = None
    celsius_end: float | None = None
    celsius_most: float | None = None
    sm_mhz: NotNegative | None = None
    slowed: tuple[Slowed, ...] = ()

    @property
    def joules(self) -> float | None:
        """By the counter, where there is one."""
        return self.integrated_joules if self.counted_joules is None else self.counted_joules


class Telemetry(Recorded):
    """A time. `joules` of the processor and its memory are by RAPL; `others` and `meter` are processors that were used.

    `doubts` are sentences: what speaks against taking it as it is.
    """

    seconds: NotNegative
    gpus: tuple[GpuTelemetry, ...] = ()
    processor_joules: NotNegative | None = None
    processor_celsius: float | None = None
    processor_mhz: NotNegative | None = None
    processors: NotNegative | None = None
    others: NotNegative | None = None
    meter: NotNegative | None = None
    faults: Count | None = None
    read_bytes: Count | None = None
    doubts: tuple[str, ...] = ()

    @property
    def joules(self) -> float | None:
        """Of all GPUs; None where there is none, or one of them does not tell."""
        known = [gpu.joules for gpu in self.gpus if gpu.joules is not None]
        return sum(known) if known and len(known) == len(self.gpus) else None

    @property
    def watts(self) -> float | None:
        """Of all GPUs, on average."""
        joules = self.joules
        return None if joules is None or not self.seconds else joules / self.seconds


class Peak(Recorded):
    """The most that the server held at a time: of a GPU's memory, or without one of RAM; beside what was planned."""

    gpu: Count | None = None
    held_bytes: Count | None = None
    planned_bytes: Count | None = None
