"""What Prometheus and Alertmanager read: text, written last. It names files of keys, and holds no key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote, urlsplit

from llamaherd.inventory.schema import Secret
from llamaherd.inventory.schema.fleet_file import Alerts
from llamaherd.layout import (
    ALERTMANAGER_PORT,
    EXPORTER_PORT,
    GATEWAY_FIGURES_PORT,
    MONITORING,
    MONITORING_USER,
    PROMETHEUS_PORT,
)
from llamaherd.plan import MonitoredHost, MonitoredServer, TextFile, digest
from llamaherd.render import render
from llamaherd.text.quoting import Written
from roles.monitoring.rules import (
    RECORDINGS,
    Alert,
    Recording,
    alerts_of,
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
    rig: str, hosts: Sequence[MonitoredHost], servers: Sequence[MonitoredServer], asked: TextFile, *, drift: bool
) -> tuple[TextFile, str]:
    """Return the rules, and a hash of all that Prometheus reads: a rule contains it, and its API returns it."""
    # `drift`: there are alerts about that, too.
    recordings = (
        *RECORDINGS,
        *loaded_recordings(servers),
        *speed_recordings(servers),
        *gpu_recordings(hosts),
        *(drift_recordings(hosts) if drift else ()),
    )
    alerts = alerts_of(servers)
    spec = digest(_rules(rig, "", recordings, alerts), asked.text)
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
        said = f"tpl=1&t={quote(_TITLE, safe='')}&m={quote(_MESSAGE, safe='')}"
        yield "ntfy", f"{alerts.ntfy.url}{between}{said}", alerts.ntfy.key
    if alerts.webhook:
        yield "webhook", alerts.webhook.url, alerts.webhook.key


def key_files(keys: Mapping[str, str]) -> Iterator[TextFile]:
    """Yield keys by the names of their files, each in a file of its own."""
    for name, key in sorted(keys.items()):
        yield own(f"keys/{name}", key)
