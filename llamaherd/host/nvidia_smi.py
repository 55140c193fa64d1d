"""What nvidia-smi says of GPUs, a line each, as `--format=csv,noheader,nounits` prints it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from llamaherd.text.numbers import whole
from llamaherd.text.pci import is_address

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
"""What is asked; the name comes last, since nobody promises that none has a comma."""


class Placed(Protocol):
    """A GPU that is known by its UUID and its PCI address."""

    @property
    def uuid(self) -> str:
        """As nvidia-smi writes it."""

    @property
    def pci(self) -> str:
        """The same."""


P = TypeVar("P", bound=Placed)


@dataclass(frozen=True)
class GpuState:
    """A GPU: watts, MHz, and percent, None for what it does not tell.

    `persistent`: it stays loaded when nothing uses it. `fan` is told by GPUs with fans that can be set, and may exceed
    100.
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


def gpu(line: str) -> GpuState:
    """One line. Raises ValueError where it is none."""
    fields = line.split(", ", len(FIELDS) - 1)
    if len(fields) != len(FIELDS):
        raise ValueError(f"not {len(FIELDS)} fields of a GPU: {line!r}")
    uuid, pci, persistence, *numbers, name = fields
    if not is_address(pci):
        raise ValueError(f"not a PCI address: {pci!r}")
    limit, default, least, most, clock, fan = map(number, numbers)
    persistent = {"Enabled": True, "Disabled": False}.get(persistence)
    return GpuState(uuid, pci, persistent, limit, default, least, most, clock, fan, name)


def find_gpu(at: str, gpus: Iterable[P]) -> P | None:
    """The GPU that a plan means: by its UUID, its PCI address, or its number in the order of addresses."""
    in_order = sorted(gpus, key=lambda gpu: gpu.pci.upper())
    if (place := whole(at)) is not None:
        return in_order[place] if place < len(in_order) else None
    return next((gpu for gpu in in_order if at.upper() in (gpu.uuid.upper(), gpu.pci.upper())), None)


def number(text: str) -> float | None:
    """A figure; None for `[N/A]`, `[Not Supported]`, `[Unknown Error]` and whatever else stands for a missing one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
