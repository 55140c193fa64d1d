"""What watches: restarted where a unit is another, reloaded where Prometheus must read something else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from llamaherd.host.state import HostState
from llamaherd.layout import ALERTMANAGER_UNIT, EXPORTER_UNIT, FIGURES_TIMER, PROMETHEUS_UNIT
from llamaherd.plan import ExporterPlan, FiguresPlan, Plan, TextFile, WatcherPlan
from llamaherd.role.changes import Action, Change, RunVerb, difference, differences, reads_otherwise, written_files
from roles.monitoring.config import key_files
from roles.monitoring.keys import read_keys
from roles.monitoring.onhost import DISTRIBUTIONS, UNITS_OF_OURS, ExporterInput, RemoveInput, WatcherInput
from roles.monitoring.plan import unit_spec
from roles.monitoring.state import MonitoringState


def exporter_changes(plan: Plan, state: HostState) -> list[Change]:
    """Make the exporter run as planned."""
    exporter = plan.monitoring.exporter if plan.monitoring else None
    return list(_exporter(exporter, state)) if exporter else []


def _exporter(exporter: ExporterPlan, state: HostState) -> Iterator[Change]:
    seen = MonitoringState.of(state)
    restart = _restart(exporter.unit, seen)
    figures = exporter.figures
    unsettled = [*_unsettled(exporter.unit, seen, state), *(_of_figures(figures, seen, state) if figures else ())]
    if restart or unsettled:
        given = ExporterInput(
            files=written_files([exporter.unit, *(figures.files if figures else ())]),
            restart=bool(restart),
            timer=figures is not None,
            data=exporter.told,
            idle=_idle([exporter.unit], seen),
        )
        how = RunVerb("monitoring.apply_exporter", given, "starting what tells figures of this host")
        action, why = _action([exporter.unit], bool(restart), seen), _once(restart, unsettled)
        yield Change(action, "exporter", EXPORTER_UNIT.removesuffix(".service"), why, how)


def watcher_changes(plan: Plan, state: HostState) -> list[Change]:
    """Make Prometheus and Alertmanager run as planned. Raises UserError where a key cannot be read."""
    watcher = plan.monitoring.watcher if plan.monitoring else None
    return changes_with(watcher, state, read_keys(watcher)) if watcher else []


def changes_with(watcher: WatcherPlan, state: HostState, keys: Mapping[str, str]) -> list[Change]:
    """The same with these keys, by the names of their files."""
    seen = MonitoringState.of(state)
    secret = list(key_files(keys))
    private = [*watcher.files, *secret]
    prometheus, alertmanager = watcher.units
    begin, tell = _restart(prometheus, seen), _restart(alertmanager, seen)
    read = [] if begin else _reload(watcher, seen, state)
    unsettled = [why for unit in watcher.units for why in _unsettled(unit, seen, state)]
    reasons = _once(begin, tell, read, differences(private, state), unsettled)
    if not reasons:
        return []
    given = WatcherInput(
        files=written_files(private),
        keys=tuple(file.path for file in secret),
        units=written_files(watcher.units),
        restart=tuple(unit for unit, why in ((PROMETHEUS_UNIT, begin), (ALERTMANAGER_UNIT, tell)) if why),
        reload=bool(read),
        spec=watcher.spec,
        idle=_idle(watcher.units, seen),
    )
    action = _action(watcher.units, bool(begin or tell), seen)
    says = "starting what watches the fleet" if begin or tell else "telling Prometheus what to watch"
    how = RunVerb("monitoring.apply", given, says)
    return [Change(action, "monitoring", PROMETHEUS_UNIT.removesuffix(".service"), reasons, how)]


def leftovers(plan: Plan, state: HostState) -> Iterator[Change]:
    """Take away what is not to be here any more. What Prometheus remembers stays."""
    if plan.monitoring is None:
        return
    wanted = {file.path.rpartition("/")[2] for file in plan.monitoring.brought}
    there = MonitoringState.of(state).units
    gone = [name for name in UNITS_OF_OURS if name in there and name not in wanted]
    if gone:
        why = ("it is not to be on this rig any more",)
        how = RunVerb("monitoring.remove", RemoveInput(tuple(gone)), "ending what watches")
        yield Change("remove", "monitoring", ", ".join(gone), why, how)


def _restart(unit: TextFile, seen: MonitoringState) -> list[str]:
    """Why a process must be started anew."""
    name, wanted = unit.path.rpartition("/")[2], unit_spec(unit)
    have = seen.units.get(name)
    if have is None:
        return [f"there is no {name}"]
    if have.active != "active":
        return [f"{name} is {have.active}"]
    return [] if have.spec == wanted else [f"{name} runs by spec {have.spec or 'of nothing'}, not {wanted}"]


def _reload(watcher: WatcherPlan, seen: MonitoringState, state: HostState) -> list[str]:
    """Why Prometheus must read anew. Alertmanager is restarted for that, by its unit."""
    why = [f"{file.path} has another text" for file in watcher.files[:2] if reads_otherwise(file, state)]
    if seen.read != watcher.spec:
        why.append(f"Prometheus has read {seen.read or 'nothing that it tells'}, not {watcher.spec}")
    return why


def _unsettled(unit: TextFile, seen: MonitoringState, state: HostState) -> list[str]:
    """What else of a unit is not as it must be."""
    name = unit.path.rpartition("/")[2]
    have, package = seen.units.get(name), DISTRIBUTIONS[name]
    why = [f"the distribution's own {package}.service runs beside it"] if package in seen.idle else []
    why += filter(None, [difference(unit, state)])
    if have and have.enabled != "enabled":
        why.append(f"{name} is {have.enabled or 'not enabled'}")
    if have and have.needs_reload:
        why.append(f"systemd has not read {name} anew")
    return why


def _of_figures(figures: FiguresPlan, seen: MonitoringState, state: HostState) -> list[str]:
    """Why what writes further figures is not as it must be. It begins anew each time, so that nothing old runs."""
    why = [*differences(figures.files, state)]
    have = seen.units.get(FIGURES_TIMER)
    if have is None or have.active != "active":
        why.append(f"{FIGURES_TIMER} is {have.active if have else 'not there'}")
    elif have.enabled != "enabled" or have.needs_reload:
        why.append(f"{FIGURES_TIMER} is {have.enabled or 'not enabled'}, or not as systemd has read it")
    return why


def _idle(units: Sequence[TextFile], seen: MonitoringState) -> tuple[str, ...]:
    """Return units of the distribution that are to end."""
    packages = (DISTRIBUTIONS[unit.path.rpartition("/")[2]] for unit in units)
    return tuple(f"{package}.service" for package in packages if package in seen.idle)


def _action(units: Sequence[TextFile], restart: bool, seen: MonitoringState) -> Action:
    if any(unit.path.rpartition("/")[2] not in seen.units for unit in units):
        return "create"
    return "restart" if restart else "update"


def _once(*reasons: Sequence[str]) -> tuple[str, ...]:
    return (*dict.fromkeys(why for each in reasons for why in each),)
