"""Which GPU of a host a plan means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from llamaherd.text.numbers import whole


class Placed(Protocol):
    """A GPU that is known by its UUID and its PCI address."""

    @property
    def uuid(self) -> str:
        """As nvidia-smi writes it."""

    @property
    def pci(self) -> str:
        """The same."""


P = TypeVar("P", bound=Placed)


def find_gpu(at: str, gpus: Iterable[P]) -> P | None:
    """The GPU that a plan means: by its UUID, its PCI address, or its number in the order of addresses."""
    in_order = sorted(gpus, key=lambda gpu: gpu.pci.upper())
    if (place := whole(at)) is not None:
        return in_order[place] if place < len(in_order) else None
    return next((gpu for gpu in in_order if at.upper() in (gpu.uuid.upper(), gpu.pci.upper())), None)
