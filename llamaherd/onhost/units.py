"""Units of systemd as an inspection finds them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from llamaherd.layout import UNITS
from llamaherd.onhost.clients import query_systemctl
from llamaherd.onhost.system import System


@dataclass(frozen=True)
class ServiceState:
    """A unit of a service, as systemd reports it, and the hash of its text by which the process runs."""

    active: str
    enabled: str
    needs_reload: bool
    spec: str


def show_units(units: Iterable[str], properties: Iterable[str], system: System) -> dict[str, dict[str, str]]:
    """Return properties of units by name, from one call. Raise UnknownStateError where systemd does not respond.

    A unit that systemd does not know has `LoadState=not-found`, if that is requested.
    """
    names = [*units]
    if not names:
        return {}
    shown = query_systemctl(system, "show", "-p", ",".join(["Id", *properties]), *names).out
    found: dict[str, dict[str, str]] = {}
    for block in shown.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in values:
            found[values["Id"]] = values
    return found


def find_services(units: Iterable[str], system: System) -> dict[str, ServiceState]:
    """Return the state of those units that have a file of llamaherd's."""
    there = [unit for unit in units if (found := system.entry(f"{UNITS}/{unit}")) and found.kind == "file"]
    shown = show_units(there, ("ActiveState", "UnitFileState", "NeedDaemonReload", "MainPID"), system)
    return {
        unit: ServiceState(
            active=shown.get(unit, {}).get("ActiveState", ""),
            enabled=shown.get(unit, {}).get("UnitFileState", ""),
            needs_reload=shown.get(unit, {}).get("NeedDaemonReload") == "yes",
            spec=spec_of(shown.get(unit, {}).get("MainPID", "0"), system),
        )
        for unit in there
    }


def spec_of(pid: str, system: System) -> str:
    """Return the spec that a process was started with; empty where it has none."""
    variables = (system.read(f"/proc/{pid}/environ") or "").split("\0") if pid.isdigit() and pid != "0" else []
    return next((each.partition("=")[2] for each in variables if each.startswith("LLAMAHERD_SPEC=")), "")


def runs_unchanged(unit: str, package: str, configuration: str, system: System) -> bool:
    """Return whether a distribution's own unit runs, or will, with the configuration that its package brought.

    `configuration` is the beginning of the paths of its files.
    """
    shown = show_units([unit], ("ActiveState", "UnitFileState"), system).get(unit, {})
    if shown.get("UnitFileState") not in ("enabled", "enabled-runtime") and shown.get("ActiveState") != "active":
        return False
    return f" {configuration}" not in system.run(["dpkg", "--verify", package]).out
