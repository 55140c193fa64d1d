"""A service that roles run on a host: its unit as systemd tells of it, why it is not as planned, and its check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from llamaherd.host.answers import pairs
from llamaherd.onhost.units import ServiceState
from llamaherd.role.report import Check


class Unit(Protocol):
    """What systemd tells of every unit."""

    @property
    def enabled(self) -> str:
        """Whether a boot starts it, in systemd's word."""
        ...

    @property
    def needs_reload(self) -> bool:
        """Whether its file is another than systemd has read."""
        ...


def restart_reasons(unit: ServiceState | None, wanted: str) -> list[str]:
    """Say why its process must be started anew, to run by the spec that is wanted."""
    if unit is None:
        return ["there is no such unit"]
    if unit.active != "active":
        return [f"it is {unit.active}"]
    return [] if unit.spec == wanted else [f"spec {unit.spec or 'of nothing'} runs, not {wanted}"]


def unsettled(unit: Unit | None) -> Iterator[str]:
    """Say what else of a unit is not as it must be."""
    if unit and unit.enabled != "enabled":
        yield f"it is {unit.enabled or 'not enabled'}"
    if unit and unit.needs_reload:
        yield "systemd has not read its file anew"


def service_check(name: str, answer: str, unit: str = "") -> Check:
    """Check that a service runs, and will after a boot, by what `systemctl show` answered. People are told `unit`."""
    said = pairs(answer)
    active, boot = said.get("ActiveState", "not there"), said.get("UnitFileState") or "not there"
    return Check(name, (active, boot) == ("active", "enabled"), f"{unit} is {active}, {boot}".lstrip())
