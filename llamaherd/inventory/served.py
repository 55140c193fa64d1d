"""`RIG.INSTANCE`, by which a fleet's file names a server. Both names may have dots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llamaherd.inventory.schema import Rig


def split_served(named: str, rigs: Mapping[str, Rig]) -> tuple[str, str] | None:
    """The rig and the instance that are named; None where there is no such one."""
    return next((pair for pair in _pairs(named) if pair[0] in rigs and pair[1] in rigs[pair[0]].instances), None)


def server_named(named: str, rigs: Mapping[str, Rig]) -> str:
    """`RIG.SERVER` of what is named: an instance of a group answers by the group's server. As it is, where unknown."""
    found = split_served(named, rigs)
    return f"{found[0]}.{rigs[found[0]].server_of(found[1])}" if found else named


def rig_of(named: str, names: Iterator[str] | list[str]) -> str | None:
    """The rig that is named, whatever it serves; None where there is no such one."""
    known = set(names)
    return next((rig for rig, _ in _pairs(named) if rig in known), None)


def _pairs(named: str) -> Iterator[tuple[str, str]]:
    parts = named.split(".")
    for at in range(1, len(parts)):
        yield ".".join(parts[:at]), ".".join(parts[at:])
