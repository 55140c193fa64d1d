"""What can stand in the way of what watches: a port that is somebody else's."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.state import HostState
from llamaherd.layout import ALERTMANAGER_PORT, ALERTMANAGER_UNIT, EXPORTER_PORT, EXPORTER_UNIT, PROMETHEUS_PORT
from llamaherd.plan import Plan
from llamaherd.role.facts import Row
from llamaherd.role.ports import taken
from llamaherd.role.refusal import Refusal
from roles.monitoring.onhost import DISTRIBUTIONS
from roles.monitoring.state import MonitoringState

_PORTS = {EXPORTER_UNIT: EXPORTER_PORT, ALERTMANAGER_UNIT: ALERTMANAGER_PORT}


def refusals(plan: Plan, state: HostState) -> Iterator[Refusal]:
    """A port that is taken by what is neither ours nor the distribution's as it came."""
    seen = MonitoringState.of(state)
    for unit in plan.monitoring.units if plan.monitoring else ():
        name = unit.path.rpartition("/")[2]
        port, package = _PORTS.get(name, PROMETHEUS_PORT), DISTRIBUTIONS[name]
        ours = name in seen.units and seen.units[name].active == "active"
        if taken(port, plan, state) and not ours and package not in seen.idle:
            yield Refusal(
                f"port {port} of {package} is taken by something else",
                f"see by what with `ss -ltnp 'sport = :{port}'`; the distribution's own, where somebody has changed "
                f"it, ends by `systemctl disable --now {package}`",
                "monitoring",
            )


def facts(plan: Plan, state: HostState) -> Iterator[Row]:
    """Which units run."""
    if plan.monitoring and plan.monitoring.units:
        running = [name for name, unit in MonitoringState.of(state).units.items() if unit.active == "active"]
        wanted = [unit.path.rpartition("/")[2] for unit in plan.monitoring.units]
        yield Row("monitoring", f"{len(running)} units run", f"{len(wanted)} units")
