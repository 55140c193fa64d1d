"""`RIG.INSTANCE`, by which a fleet's file names a server. Both names may have dots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llamaherd.inventory.schema import Rig


def split_served(named: str, rigs: Mapping[str, Rig]) -> tuple[str, str] | None:
    """The rig and the instance that are named; None where there is no such one."""
    return next((pair for pair in _pairs(named) if pair[0] in rigs and pair[1] in rigs[pair[0]].instances), None)


def rig_of(named: str, names: Iterator[str] | list[str]) -> str | None:
    """The rig that is named, whatever it serves; None where there is no such one."""
    known = set(names)
    return next((rig for rig, _ in _pairs(named) if rig in known), None)


def _pairs(named: str) -> Iterator[tuple[str, str]]:
    parts = named.split(".")
    for at in range(1, len(parts)):
        yield ".".join(parts[:at]), ".".join(parts[at:])
