"""Plan monitoring: the watched hosts and servers, their addresses, the programs, and their configuration."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from urllib.parse import quote, urlsplit

from llamaherd.engines import DIALECTS
from llamaherd.inventory.schema import Rig, Secret
from llamaherd.inventory.schema.fleet_file import Alerts, Gateway, Monitoring
from llamaherd.layout import (
    ALERTMANAGER_PORT,
    ALERTMANAGER_UNIT,
    EXPORTER_PORT,
    EXPORTER_UNIT,
    EXPORTER_USER,
    FIGURES_DATA,
    FIGURES_FILE,
    FIGURES_PROGRAM,
    FIGURES_TIMER,
    FIGURES_UNIT,
    GATEWAY_CERTIFICATE,
    GATEWAY_FIGURES_PORT,
    MONITORING,
    MONITORING_DATA,
    MONITORING_USER,
    PROMETHEUS_PORT,
    PROMETHEUS_UNIT,
    UNITS,
)
from llamaherd.plan import (
    AlertKey,
    ExporterPlan,
    FiguresPlan,
    LimitedGpu,
    MonitoredHost,
    MonitoredServer,
    MonitoringPlan,
    TextFile,
    WatcherPlan,
    digest,
)
from llamaherd.plan.devices import declared_power
from llamaherd.plan.instance import Endpoint
from llamaherd.render import render
from llamaherd.role.changes import unit_file
from llamaherd.role.role import Planning, PlanPart
from llamaherd.text.quoting import Written
from roles.monitoring.rules import (
    RECORDINGS,
    Alert,
    Recording,
    alerts_of,
    asleep_recordings,
    drift_recordings,
    gpu_recordings,
    loaded_recordings,
    speed_recordings,
)

PROMETHEUS, RULES, ALERTMANAGER = "prometheus.yml", "rules.yml", "alertmanager.yml"
_TITLE = "{{ .status }}: {{ .groupLabels.alertname }}"
_MESSAGE = "{{ range .alerts }}{{ .annotations.summary }}. {{ .annotations.help }}.\n{{ end }}"
"""Templates of ntfy's own (since 2.10), which makes a message of Alertmanager's JSON by them."""


def own(name: str, text: str) -> TextFile:
    """Return a file that only Prometheus and Alertmanager can read."""
    return TextFile(path=str(MONITORING / name), text=text, mode="0600", owner=MONITORING_USER)


def prometheus(rig: str, hosts: Sequence[MonitoredHost], servers: Sequence[MonitoredServer]) -> TextFile:
    """Return the targets, their interval, and their keys."""
    text = render(
        "monitoring/prometheus.yml.j2",
        rig=rig,
        prometheus=f"127.0.0.1:{PROMETHEUS_PORT}",
        alertmanager=f"127.0.0.1:{ALERTMANAGER_PORT}",
        exporter_port=EXPORTER_PORT,
        gateway_port=GATEWAY_FIGURES_PORT,
        gateways=[host for host in hosts if host.gateway],
        hosts=hosts,
        servers=servers,
    )
    return own(PROMETHEUS, text)


def rules(
    rig: str, hosts: Sequence[MonitoredHost], servers: Sequence[MonitoredServer], config: TextFile, *, drift: bool
) -> tuple[TextFile, str]:
    """Return the rules, and a hash of all that Prometheus reads: a rule contains it, and its API returns it."""
    # `drift`: there are alerts about that, too.
    recordings = (
        *RECORDINGS,
        *loaded_recordings(servers),
        *speed_recordings(servers),
        *gpu_recordings(hosts),
        *(drift_recordings(hosts) if drift else ()),
        *asleep_recordings(hosts, servers),
    )
    alerts = alerts_of(servers, wakes=any(host.wakes for host in hosts))
    spec = digest(_rules(rig, "", recordings, alerts), config.text)
    return own(RULES, _rules(rig, spec, recordings, alerts)), spec


def _rules(rig: str, spec: str, recordings: Sequence[Recording], alerts: Sequence[Alert]) -> Written:
    made = [{"record": each.record, "expr": each.expr, "labels": dict(each.labels)} for each in recordings]
    return render("monitoring/rules.yml.j2", rig=rig, spec=spec, recordings=made, alerts=alerts)


def alertmanager(rig: str, alerts: Alerts) -> TextFile:
    """Return the receivers of alerts, and their interval."""
    text = render(
        "monitoring/alertmanager.yml.j2", rig=rig, repeat=alerts.repeat, mail=alerts.mail, hooks=list(_hooks(alerts))
    )
    return own(ALERTMANAGER, text)


def _hooks(alerts: Alerts) -> Iterator[tuple[str, str, Secret | None]]:
    if alerts.ntfy:
        between = "&" if urlsplit(alerts.ntfy.url).query else "?"
        output = f"tpl=1&t={quote(_TITLE, safe='')}&m={quote(_MESSAGE, safe='')}"
        yield "ntfy", f"{alerts.ntfy.url}{between}{output}", alerts.ntfy.key
    if alerts.webhook:
        yield "webhook", alerts.webhook.url, alerts.webhook.key


def key_files(keys: Mapping[str, str]) -> Iterator[TextFile]:
    """Yield keys by the names of their files, each in a file of its own."""
    for name, key in sorted(keys.items()):
        yield own(f"keys/{name}", key)


EXPORTER_PACKAGES = ("dbus", "prometheus-node-exporter")
"""The exporter queries units over the system bus."""
WATCHER_PACKAGES = ("prometheus", "prometheus-alertmanager")
_LOOPBACK = "127.0.0.1"


def plan(planning: Planning) -> PlanPart:
    """Return the watcher, on the rig that is declared for it, and the exporters, on the watched rigs."""
    fleet, rig = planning.fleet, planning.rig
    if fleet is None or not fleet.knows_monitoring:
        return PlanPart()
    made = MonitoringPlan()
    if fleet.monitoring:
        made = plan_monitoring(
            fleet.monitoring, rig.rig, {**planning.rigs, rig.rig: rig}, fleet.gateway, planning.measured
        )
    packages = (*EXPORTER_PACKAGES * bool(made.exporter), *WATCHER_PACKAGES * bool(made.watcher))
    return PlanPart(packages=frozenset(packages), fields={"monitoring": made})


def plan_monitoring(
    declared: Monitoring,
    here: str,
    rigs: Mapping[str, Rig],
    gateway: Gateway | None = None,
    measured: Mapping[str, float] = MappingProxyType({}),
) -> MonitoringPlan:
    """Return one rig's part of monitoring. `measured` are tokens a second, by `RIG.INSTANCE`."""
    watched = {name: rig for name, rig in sorted(rigs.items()) if declared.watches(name)}
    gateways = frozenset(gateway.on if gateway else ())
    secure = gateway is not None and gateway.tls is not None and here in gateways
    exporter = _exporter(declared, here, rigs, secure=secure) if here in watched else None
    watcher = _watcher(declared, watched, gateways, measured) if here == declared.on else None
    return MonitoringPlan(exporter=exporter, watcher=watcher)


def address_of(rig: Rig, here: str) -> str:
    """Return a rig's address for the watcher: the loopback on its own host, else the rig's address."""
    return _LOOPBACK if rig.rig == here else rig.address


def _exporter(declared: Monitoring, here: str, rigs: Mapping[str, Rig], *, secure: bool) -> ExporterPlan:
    """Return the exporter: on the watching rig for its own host alone; elsewhere that rig's address has access."""
    alone = here == declared.on
    asker = None if alone or declared.on not in rigs else rigs[declared.on].address
    listen = _LOOPBACK if alone else ""
    figures, has_drift = _figures(rigs[here], secure=secure), alone and declared.drift
    text = render(
        "monitoring/exporter.service.j2",
        rig=here,
        user=EXPORTER_USER,
        listen=f"{listen}:{EXPORTER_PORT}",
        asker=asker,
        figures=FIGURES_DATA if figures or has_drift else None,
    )
    unit = unit_file(EXPORTER_UNIT, text, "")
    return ExporterPlan(listen=listen or "0.0.0.0", asker=asker, unit=unit, figures=figures, told=has_drift)


def _figures(rig: Rig, *, secure: bool) -> FiguresPlan | None:
    """Return the timer of further metrics, if there are GPUs, servers that may be paused, or a certificate."""
    gpus = rig.gpus is not None
    if not gpus and not secure and not rig.instances:
        return None
    certificate = GATEWAY_CERTIFICATE if secure else None
    values = {"rig": rig.rig, "program": FIGURES_PROGRAM, "data": FIGURES_DATA, "file": FIGURES_FILE}
    service = render("monitoring/figures.service.j2", gpus=gpus, certificate=certificate, **values)
    return FiguresPlan(
        program=TextFile(path=str(FIGURES_PROGRAM), text=render("monitoring/figures.py"), mode="0755"),
        service=TextFile(path=str(UNITS / FIGURES_UNIT), text=service),
        timer=TextFile(path=str(UNITS / FIGURES_TIMER), text=render("monitoring/figures.timer.j2", rig=rig.rig)),
    )


def _watcher(
    declared: Monitoring, watched: Mapping[str, Rig], gateways: Collection[str], measured: Mapping[str, float]
) -> WatcherPlan:
    here, alerts = declared.on, declared.alerts
    hosts = tuple(_host(rig, here, gateway=rig.rig in gateways) for rig in watched.values())
    servers = tuple(each for rig in watched.values() for each in _servers(rig, here, measured))
    config, alerting = prometheus(here, hosts, servers), alertmanager(here, alerts)
    rules_file, spec = rules(here, hosts, servers, config, drift=declared.drift)
    return WatcherPlan(
        hosts=hosts,
        servers=servers,
        keys=tuple(AlertKey(way=way, key=key) for way, key in sorted(alerts.keys.items())),
        spec=spec,
        files=(config, rules_file, alerting),
        units=_units(here, declared.retention, alerting),
    )


def _host(rig: Rig, here: str, *, gateway: bool) -> MonitoredHost:
    """Return the declared values of a host."""
    # GPUs of WSL are Windows' to hold.
    held = () if rig.host.wsl else declared_power(rig)
    limits = (LimitedGpu(label=_label(gpu.at), value=gpu.at, limit=gpu.limit) for gpu in held if gpu.limit is not None)
    gpus = len(rig.gpus.cards) if rig.gpus else 0
    return MonitoredHost(
        rig=rig.rig,
        address=address_of(rig, here),
        gateway=gateway,
        gpus=gpus,
        limits=tuple(limits),
        wakes=rig.wake is not None,
    )


def _label(at: str) -> str:
    """Return the label that identifies a GPU in metrics."""
    return "gpu" if at.startswith("GPU-") else "pci" if ":" in at else "index"


def _servers(rig: Rig, here: str, measured: Mapping[str, float]) -> Iterator[MonitoredServer]:
    """Yield servers that the watcher can query: those of another rig only if they listen for other machines."""
    for name, each in sorted(rig.instances.items()):
        if each.loopback and rig.rig != here:
            continue
        kind = rig.engines[each.engine].kind
        endpoint = Endpoint(listen=each.listen, port=each.port, models=(each.model,), streams=each.parallel)
        yield MonitoredServer(
            name=f"{rig.rig}.{name}",
            rig=rig.rig,
            address=endpoint.local_address if rig.rig == here else address_of(rig, here),
            port=each.port,
            path=endpoint.metrics_path,
            model=each.model,
            engine=kind,
            key=each.api_key,
            decode=each.expect.decode if each.expect else None,
            measured=measured.get(f"{rig.rig}.{name}"),
            waits=DIALECTS[kind].traits.health_waits,
            group=f"{rig.rig}.{each.group}" if each.group else None,
        )


def _units(rig: str, retention: int, alerting: TextFile) -> tuple[TextFile, TextFile]:
    """Return the units."""
    # Alertmanager reads its configuration when it starts, which takes no time: its unit hangs on that, too.
    prometheus_text = render(
        "monitoring/prometheus.service.j2",
        rig=rig,
        user=MONITORING_USER,
        folder=MONITORING,
        data=MONITORING_DATA,
        days=retention,
        listen=f"{_LOOPBACK}:{PROMETHEUS_PORT}",
    )
    alertmanager_text = render(
        "monitoring/alertmanager.service.j2",
        rig=rig,
        user=MONITORING_USER,
        folder=MONITORING,
        data=MONITORING_DATA,
        listen=f"{_LOOPBACK}:{ALERTMANAGER_PORT}",
    )
    return unit_file(PROMETHEUS_UNIT, prometheus_text, ""), unit_file(
        ALERTMANAGER_UNIT, alertmanager_text, alerting.text
    )
