"""Amounts that no machine of this kind has: a unit too many or too few."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule
from llamaherd.text.units import show_mib

LEAST_RAM, MOST_RAM = 1 << 30, 16 << 40
"""Bytes: what a system needs, and what no board in a home takes."""
MOST_CLOCK = 4000
"""MHz, above any GPU's (NVIDIA's specifications: 3,105 on an RTX 5090 at most)."""


IMPOSSIBLE = Rule(
    "LH284",
    "No such machine has this amount.",
    why="""
    It is less than 1 GiB of RAM, or more than 16 TiB, or a clock above 4,000 MHz. Or more of a GPU is reserved
    than it has: this leaves servers nothing, and is an error. Mostly a unit is wrong.
    """,
    example="""
    gpus:
      cards:
        big: {clocks: {max: 18000MHz}}
    """,
    way_out="write the amount with its unit.",
    sometimes=("warning",),
)


def amounts(subject: RigContext) -> Iterator[Finding]:
    """RAM, clocks and reserved memory that cannot be."""
    ram = subject.rig.host.ram
    if not LEAST_RAM <= ram <= MOST_RAM:
        place = subject.document.value(("host", "ram"))
        message = f"{show_mib(ram)} of RAM are {'less than a system needs' if ram < LEAST_RAM else 'no home has'}"
        yield IMPOSSIBLE.at(place, message, "write what `free -g` shows, as in `ram: 64GB`", "warning")
    for name, card in (subject.rig.gpus.cards if subject.rig.gpus else {}).items():
        where = ("gpus", "cards", name)
        if card.reserved and card.memory_bytes and card.reserved >= card.memory_bytes:
            message = f"of GPU `{name}`, {show_mib(card.reserved)} are reserved of {show_mib(card.memory_bytes)}"
            help_ = "write what something else holds of it, as `nvidia-smi` shows without servers"
            yield IMPOSSIBLE.at(subject.document.value((*where, "reserved")), message, help_)
        if card.clocks and card.clocks.max > MOST_CLOCK:
            message = f"GPU `{name}` does not run at {card.clocks.max} MHz"
            help_ = "write a clock that it has, as in `clocks: {max: 1800MHz}`"
            yield IMPOSSIBLE.at(subject.document.value((*where, "clocks", "max")), message, help_, "warning")
