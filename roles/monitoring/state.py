"""Monitoring's part of a host's state: our units, what Prometheus has read, and the distribution's own units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from llamaherd.host.state import HostState, StatePart
from llamaherd.layout import ALERTMANAGER_UNIT, EXPORTER_UNIT, FIGURES_TIMER, PROMETHEUS_PORT, PROMETHEUS_UNIT
from llamaherd.plan import Plan
from llamaherd.render import render
from llamaherd.role.service import ServiceState

DISTRIBUTIONS = {
    EXPORTER_UNIT: "prometheus-node-exporter",
    PROMETHEUS_UNIT: "prometheus",
    ALERTMANAGER_UNIT: "prometheus-alertmanager",
}
"""The package that each service of ours runs a program of, which is also what the distribution's own unit is called."""

UNITS_OF_OURS = (FIGURES_TIMER, *DISTRIBUTIONS)


@dataclass
class MonitoringState(StatePart):
    """All of it. `idle`: packages whose own unit runs as it came, and watches nothing that is declared."""

    units: dict[str, ServiceState] = field(default_factory=dict)
    read: str = ""
    idle: set[str] = field(default_factory=set)


def inspect(plan: Plan) -> str:
    """Ask for it, also where nothing is declared any more."""
    made = plan.monitoring
    if made is None:
        return ""
    planned = [unit.path.rpartition("/")[2] for unit in made.units]
    return render(
        "monitoring/inspect.sh.j2",
        units=list(UNITS_OF_OURS),
        watcher=made.watcher is not None,
        prometheus=PROMETHEUS_PORT,
        packages=[DISTRIBUTIONS[name] for name in planned],
    )


def parse(state: HostState, kind: str, fields: Sequence[str]) -> bool:
    """Take in one line of the answer; returns whether it was about that."""
    match kind, fields:
        case "monitoring", ["unit", name, active, enabled, needs_reload, spec] if name in UNITS_OF_OURS:
            MonitoringState.within(state).units[name] = ServiceState(active, enabled, needs_reload == "yes", spec)
        case "monitoring", ["read", spec]:
            MonitoringState.within(state).read = spec
        case "monitoring", ["idle", package] if package in DISTRIBUTIONS.values():
            MonitoringState.within(state).idle.add(package)
        case _:
            return False
    return True
