"""Monitoring: exporters on hosts, and on one host the distribution's Prometheus and Alertmanager."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.responses import ProbeOutputs
from llamaherd.host.state import HostState, StatePart
from llamaherd.inventory.api_keys import UnreadableKeyError, read_key
from llamaherd.inventory.schema import Instance, Rig, Secret
from llamaherd.inventory.schema.fleet_file import FleetFile
from llamaherd.layout import (
    ALERTMANAGER_PORT,
    ALERTMANAGER_UNIT,
    EXPORTER_PORT,
    EXPORTER_UNIT,
    FIGURES_TIMER,
    MONITORING,
    MONITORING_USER,
    PROMETHEUS_PORT,
    PROMETHEUS_UNIT,
)
from llamaherd.onhost.verification import Probe
from llamaherd.plan import Estimate, FiguresPlan, MonitoringPlan, Plan, TextFile, WatcherPlan
from llamaherd.role.changes import (
    Action,
    Change,
    RunVerb,
    file_difference,
    file_differences,
    text_differs,
    unit_spec,
    written_files,
)
from llamaherd.role.preflight import PreflightRow, Refusal, is_port_taken
from llamaherd.role.report import Check, private_files_check, service_check, service_probe
from llamaherd.role.role import Inspection, Judging, Role, Task, Verified
from roles.monitoring.onhost import (
    DISTRIBUTIONS,
    UNITS_OF_OURS,
    ExporterInput,
    Found,
    InspectInput,
    RemoveInput,
    WatcherInput,
)
from roles.monitoring.plan import key_files, plan
from roles.monitoring.rules import down_expression

if TYPE_CHECKING:
    from llamaherd.measure.results.result import Result


_CURL = ("curl", "-q", "-s", "--noproxy", "*", "--max-time", "10")


_PORTS = {EXPORTER_UNIT: EXPORTER_PORT, ALERTMANAGER_UNIT: ALERTMANAGER_PORT}


@dataclass(frozen=True)
class MonitoringState(Found, StatePart):
    """Units, what Prometheus has read, and the distribution's own units."""


def inspection_input(plan: Plan) -> InspectInput | None:
    """Return what to inspect, also where nothing is declared any more."""
    made = plan.monitoring
    if made is None:
        return None
    return InspectInput(made.watcher is not None, tuple(unit.name for unit in made.units))


def measured(folder: Path, rigs: Mapping[str, Rig], fleet: FleetFile) -> dict[str, float]:
    """Return tokens a second of each server by its newest result with enough runs, by `RIG.INSTANCE`."""
    if fleet.monitoring is None:
        return {}
    # Reading results takes modules that most fleets do without.
    from llamaherd.measure.results.comparison import slowest_decode
    from llamaherd.measure.results.store import last_result, results_folder

    results, speeds = results_folder(folder), {}
    for rig_name, rig in sorted(rigs.items()):
        for name, instance in sorted(rig.instances.items()) if fleet.monitoring.watches(rig_name) else ():
            # A result with too few runs takes no floor away, and makes none.
            found = last_result(results, rig_name, name, wanted=lambda each: slowest_decode(each) is not None)
            if found and _counts(found, instance, rig) and (speed := slowest_decode(found)):
                speeds[f"{rig_name}.{name}"] = speed
    return speeds


def _counts(found: Result, instance: Instance, rig: Rig) -> bool:
    """Return whether a result is undisturbed and of today's model and engine, so that it shows the server's speed."""
    known, engine = found.provenance, rig.engines.get(instance.engine)
    # Of an image that is not ours, a result knows the engine by its name in the inventory.
    same = engine is not None and known.engine.kind in (engine.kind, instance.engine)
    return same and known.model == instance.model and not found.method.anyway and not known.host.swapped_bytes


def refusals(plan: Plan, state: HostState) -> Iterator[Refusal]:
    """Yield a port in use by another program than ours or the distribution's original one."""
    found = MonitoringState.of(state)
    for unit in plan.monitoring.units if plan.monitoring else ():
        name = unit.name
        port, package = _PORTS.get(name, PROMETHEUS_PORT), DISTRIBUTIONS[name]
        ours = name in found.units and found.units[name].active == "active"
        if is_port_taken(port, plan, state) and not ours and package not in found.idle:
            yield Refusal(
                f"port {port} of {package} is taken by something else",
                f"`ss -ltnp 'sport = :{port}'` shows the program; if it is the distribution's {package}, run "
                f"`systemctl disable --now {package}`",
                "monitoring",
            )


def facts(plan: Plan, state: HostState) -> Iterator[PreflightRow]:
    """Yield which units run."""
    if plan.monitoring and plan.monitoring.units:
        running = [name for name, unit in MonitoringState.of(state).units.items() if unit.active == "active"]
        yield PreflightRow("monitoring", f"{len(running)} units run", f"{len(plan.monitoring.units)} units")


def key_places(watcher: WatcherPlan) -> Iterator[tuple[str, Secret, str]]:
    """Yield the name of each key's file on the host, its place on this machine, and its owner."""
    for server in watcher.servers:
        if server.key:
            yield server.name, server.key, f"server `{server.name}`"
    for each in watcher.keys:
        yield f"alerts-{each.way}", each.key, f"alerts by {each.way}"


def read_keys(watcher: WatcherPlan) -> dict[str, str]:
    """Return all keys by the names of their files. Raise UserError if one cannot be read."""
    keys = {}
    for name, secret, whose in key_places(watcher):
        try:
            keys[name] = read_key(secret)
        except UnreadableKeyError as error:
            raise UserError(f"the key of {whose}: {error}", "put the key there, or take it out of the YAML") from None
    return keys


def exporter_changes(plan: Plan, state: HostState) -> list[Change]:
    """Apply the planned exporter."""
    exporter = plan.monitoring.exporter if plan.monitoring else None
    if exporter is None:
        return []
    found, figures = MonitoringState.of(state), exporter.figures
    restart = _restart(exporter.unit, found)
    unsettled = [*_unsettled(exporter.unit, found, state), *(_of_figures(figures, found, state) if figures else ())]
    if not restart and not unsettled:
        return []
    given = ExporterInput(
        files=written_files([exporter.unit, *(figures.files if figures else ())]),
        restart=bool(restart),
        timer=figures is not None,
        data=exporter.told,
        idle=_idle([exporter.unit], found),
    )
    how = RunVerb("monitoring.apply_exporter", given, "starting the exporter of this host")
    action, why = _action([exporter.unit], bool(restart), found), _once(restart, unsettled)
    return [Change(action, "exporter", EXPORTER_UNIT.removesuffix(".service"), why, how)]


def watcher_changes(plan: Plan, state: HostState) -> list[Change]:
    """Apply the planned Prometheus and Alertmanager. Raise UserError where a key cannot be read."""
    watcher = plan.monitoring.watcher if plan.monitoring else None
    return changes_with(watcher, state, read_keys(watcher)) if watcher else []


def changes_with(watcher: WatcherPlan, state: HostState, keys: Mapping[str, str]) -> list[Change]:
    """Return the changes of the watching rig with these keys, by the names of their files."""
    found = MonitoringState.of(state)
    secret = list(key_files(keys))
    private = [*watcher.files, *secret]
    prometheus, alertmanager = watcher.units
    prometheus_restarts, alertmanager_restarts = _restart(prometheus, found), _restart(alertmanager, found)
    read = [] if prometheus_restarts else _reload(watcher, found, state)
    unsettled = [why for unit in watcher.units for why in _unsettled(unit, found, state)]
    reasons = _once(prometheus_restarts, alertmanager_restarts, read, file_differences(private, state), unsettled)
    if not reasons:
        return []
    given = WatcherInput(
        files=written_files(private),
        keys=tuple(file.path for file in secret),
        units=written_files(watcher.units),
        restart=tuple(
            unit
            for unit, why in ((PROMETHEUS_UNIT, prometheus_restarts), (ALERTMANAGER_UNIT, alertmanager_restarts))
            if why
        ),
        reload=bool(read),
        spec=watcher.spec,
        idle=_idle(watcher.units, found),
    )
    restarts = bool(prometheus_restarts or alertmanager_restarts)
    action = _action(watcher.units, restarts, found)
    progress = "starting what watches the fleet" if restarts else "telling Prometheus what to watch"
    how = RunVerb("monitoring.apply", given, progress)
    return [Change(action, "monitoring", PROMETHEUS_UNIT.removesuffix(".service"), reasons, how)]


def leftovers(plan: Plan, state: HostState) -> Iterator[Change]:
    """Take away what is not to be here any more. What Prometheus remembers stays."""
    if plan.monitoring is None:
        return
    planned = {file.name for file in plan.monitoring.brought}
    found = MonitoringState.of(state).units
    gone = [name for name in UNITS_OF_OURS if name in found and name not in planned]
    if gone:
        why = ("it is not to be on this rig any more",)
        how = RunVerb("monitoring.remove", RemoveInput(tuple(gone)), "ending what watches")
        yield Change("remove", "monitoring", ", ".join(gone), why, how)


def _restart(unit: TextFile, found: MonitoringState) -> list[str]:
    """Return why a process must restart."""
    name, planned = unit.name, unit_spec(unit)
    have = found.units.get(name)
    if have is None:
        return [f"there is no {name}"]
    if have.active != "active":
        return [f"{name} is {have.active}"]
    return [] if have.spec == planned else [f"{name} runs by spec {have.spec or 'of nothing'}, not {planned}"]


def _reload(watcher: WatcherPlan, found: MonitoringState, state: HostState) -> list[str]:
    """Return why Prometheus must reload. Alertmanager restarts for that, by its unit."""
    why = [f"{file.path} has another text" for file in watcher.files[:2] if text_differs(file, state)]
    if found.read != watcher.spec:
        why.append(f"Prometheus has read {found.read or 'no known configuration'}, not {watcher.spec}")
    return why


def _unsettled(unit: TextFile, found: MonitoringState, state: HostState) -> list[str]:
    """Return other problems of a unit."""
    name = unit.name
    have, package = found.units.get(name), DISTRIBUTIONS[name]
    why = [f"the distribution's own {package}.service also runs"] if package in found.idle else []
    why += filter(None, [file_difference(unit, state)])
    if have and have.enabled != "enabled":
        why.append(f"{name} is {have.enabled or 'not enabled'}")
    if have and have.needs_reload:
        why.append(f"systemd has not read {name} anew")
    return why


def _of_figures(figures: FiguresPlan, found: MonitoringState, state: HostState) -> list[str]:
    """Return why the timer of further metrics differs."""
    # It starts anew each time, so that nothing old runs.
    why = [*file_differences(figures.files, state)]
    have = found.units.get(FIGURES_TIMER)
    if have is None or have.active != "active":
        why.append(f"{FIGURES_TIMER} is {have.active if have else 'not there'}")
    elif have.enabled != "enabled" or have.needs_reload:
        why.append(f"{FIGURES_TIMER} is {have.enabled or 'not enabled'}, or not as systemd has read it")
    return why


def _idle(units: Sequence[TextFile], found: MonitoringState) -> tuple[str, ...]:
    """Return units of the distribution that are to end."""
    packages = (DISTRIBUTIONS[unit.name] for unit in units)
    return tuple(f"{package}.service" for package in packages if package in found.idle)


def _action(units: Sequence[TextFile], restart: bool, found: MonitoringState) -> Action:
    if any(unit.name not in found.units for unit in units):
        return "create"
    return "restart" if restart else "update"


def _once(*reasons: Sequence[str]) -> tuple[str, ...]:
    return (*dict.fromkeys(why for each in reasons for why in each),)


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield probes of units, of what programs respond, and of files."""
    made = plan.monitoring
    if made is None:
        return
    yield from (service_probe("monitoring unit", unit.name, of=unit.name) for unit in made.units)
    if made.exporter:
        yield Probe("monitoring exporter", "", (*_CURL, f"http://127.0.0.1:{EXPORTER_PORT}/metrics"))
    if made.watcher:
        prometheus = f"http://127.0.0.1:{PROMETHEUS_PORT}/api/v1"
        ready = f"http://127.0.0.1:{ALERTMANAGER_PORT}/-/ready"
        code = ("-o", "/dev/null", "-w", r"%{http_code}\n")
        files = ("find", str(MONITORING), "-maxdepth", "2", "-printf", r"%m %u %p\n")
        down = ("-G", "--data-urlencode", f"query={down_expression()}", f"{prometheus}/query")
        yield Probe("monitoring files", "", files)
        yield Probe("monitoring read", "", (*_CURL, f"{prometheus}/rules?type=record"))
        yield Probe("monitoring down", "", (*_CURL, *down))
        yield Probe("monitoring alertmanager", "", (*_CURL, *code, ready))


def judge(judging: Judging) -> Verified:
    """Return the checks of monitoring."""
    made = judging.plan.monitoring
    return Verified(checks=tuple(monitoring_checks(made, judging.outputs))) if made and made.units else Verified()


def monitoring_checks(made: MonitoringPlan, outputs: ProbeOutputs) -> Iterator[Check]:
    """Yield checks of the units, the metrics, the keys' access, and the response of all targets."""
    for unit in made.units:
        yield service_check(unit.name.removesuffix(".service"), outputs.get(("monitoring unit", unit.name), ""))
    if made.exporter:
        metrics = outputs.get(("monitoring exporter", ""), "")
        count = len(re.findall("^node_", metrics, re.MULTILINE))
        detail = f"{count} are exported" if count else "none are exported: `herd up`"
        yield Check("figures of the host", count > 0, detail)
        if made.exporter.figures:
            exported = "\nllamaherd_figures_seconds " in f"\n{metrics}"
            lacking = "none are exported: see `systemctl status llamaherd-figures` there"
            detail = "those of GPUs or a certificate are exported" if exported else lacking
            yield Check("further figures", exported, detail)
    if made.watcher:
        yield from _watcher(made.watcher, outputs)


def _watcher(watcher: WatcherPlan, outputs: ProbeOutputs) -> Iterator[Check]:
    owners = outputs.get(("monitoring files", ""), "")
    yield private_files_check("monitoring files", owners, (f"600 {MONITORING_USER}", "700 "), "keys")
    found = re.search('"spec":"([0-9a-f]*)"', outputs.get(("monitoring read", ""), ""))
    read = found[1] if found else ""
    detail = "has read what is planned" if read == watcher.spec else f"has read {read or 'nothing'}, not {watcher.spec}"
    yield Check("Prometheus", read == watcher.spec, detail)
    status = outputs.get(("monitoring alertmanager", ""), "").strip()
    yield Check("Alertmanager", status == "200", f"HTTP {status} from /-/ready" if status else "no response")
    down = {*re.findall('"instance":"([^"]*)"', outputs.get(("monitoring down", ""), ""))}
    # Another rig may be off, and a server may read a long prompt: an alert reports these.
    detail = f"no response from {', '.join(sorted(down))}" if down else "all targets respond"
    yield Check("what is watched", True, detail, doubt=bool(down))


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> Iterator[str]:
    """Yield the watched rigs, and the clients with access."""
    made = plan.monitoring
    if made is None or not made.units:
        return
    lines = []
    if made.exporter:
        client = f", for {made.exporter.asker} alone" if made.exporter.asker else ""
        lines.append(f"figures of this host on {made.exporter.listen}:{EXPORTER_PORT}{client}")
    if made.watcher:
        hosts, servers = made.watcher.hosts, made.watcher.servers
        lines.append(f"Prometheus watches hosts: {', '.join(each.rig for each in hosts)}")
        lines += [f"Prometheus watches {each.name} at {each.address}:{each.port}" for each in servers]
    for number, line in enumerate(lines):
        yield f"  {'monitoring' if number == 0 else '':10} {line}"


def tasks(plan: Plan) -> Iterator[Task]:
    """Yield tasks after servers, so that alerts about new servers do not fire. Each continues by itself."""
    if plan.monitoring and plan.monitoring.exporter:
        yield Task("figures of this host", lambda state, _: exporter_changes(plan, state), alone=True)
    if plan.monitoring and plan.monitoring.watcher:
        yield Task("what watches the fleet", lambda state, _: watcher_changes(plan, state), alone=True)


def _texts(plan: Plan) -> tuple[TextFile, ...]:
    return plan.monitoring.watcher.files if plan.monitoring and plan.monitoring.watcher else ()


def _files(plan: Plan) -> Iterator[str]:
    yield from (file.path for file in _texts(plan))
    if plan.monitoring and plan.monitoring.watcher:
        yield from (f"{MONITORING}/keys/{name}" for name, _, _ in key_places(plan.monitoring.watcher))


ROLE = Role(
    name="monitoring",
    summary="Prometheus reads metrics of hosts and servers, and Alertmanager sends alerts.",
    measured=measured,
    plan=plan,
    brings=lambda plan: plan.monitoring.brought if plan.monitoring else (),
    files=_files,
    texts=_texts,
    inspection=Inspection("monitoring.inspect", inspection_input, MonitoringState),
    refusals=refusals,
    facts=facts,
    leftovers=leftovers,
    tasks=tasks,
    probes=probes,
    judge=judge,
    describe=describe,
)
