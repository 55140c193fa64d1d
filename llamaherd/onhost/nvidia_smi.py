"""GPUs as nvidia-smi lists them, a line each, as `--format=csv,noheader,nounits` prints it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

FIELDS = (
    "uuid",
    "pci.bus_id",
    "persistence_mode",
    "power.limit",
    "power.default_limit",
    "power.min_limit",
    "power.max_limit",
    "clocks.current.graphics",
    "fan.speed",
    "name",
)
"""The fields of a query; the name is last, since it may contain a comma."""
_ADDRESS = re.compile(r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")


@dataclass(frozen=True)
class GpuState:
    """A GPU: watts, MHz, and percent, None for what it does not report.

    `persistent`: it stays loaded when nothing uses it. `fan` is of GPUs with fans that can be set, and may exceed 100.
    """

    uuid: str
    pci: str
    persistent: bool | None
    limit: float | None
    default: float | None
    least: float | None
    most: float | None
    clock: float | None
    fan: float | None
    name: str


def parse_gpu(line: str) -> GpuState:
    """Return the GPU of a line. Raise ValueError where it is not a line of a GPU."""
    fields = line.split(", ", len(FIELDS) - 1)
    if len(fields) != len(FIELDS):
        raise ValueError(f"not {len(FIELDS)} fields of a GPU: {line!r}")
    uuid, pci, persistence, *numbers, name = fields
    if not _ADDRESS.fullmatch(pci):
        raise ValueError(f"not a PCI address: {pci!r}")
    limit, default, least, most, clock, fan = map(parse_number, numbers)
    persistent = {"Enabled": True, "Disabled": False}.get(persistence)
    return GpuState(uuid, pci, persistent, limit, default, least, most, clock, fan, name)


def parse_number(text: str) -> float | None:
    """Return a figure; None for `[N/A]`, `[Not Supported]`, `[Unknown Error]` and whatever stands for a missing one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
