"""Addresses on the PCI bus, as texts: nvidia-smi, lspci and the kernel write them differently."""

from __future__ import annotations

import re


def address(pci: str) -> tuple[int, ...]:
    """A PCI address as numbers that sort as the bus does; the domain is 0 where none is written."""
    *domain, bus, rest = pci.split(":")
    device, function = rest.split(".")
    return (int(domain[0], 16) if domain else 0, int(bus, 16), int(device, 16), int(function))


def is_address(text: str) -> bool:
    """Whether it is a PCI address."""
    return re.fullmatch(r"([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]", text) is not None


def short_address(pci: str) -> str:
    """A PCI address as lspci writes it, `0000:01:00.0`: nvidia-smi has eight digits of the domain."""
    domain, bus, device, function = address(pci)
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"
