"""Monitoring: known rigs, addresses, free ports, and receivers of alerts."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from llamaherd.checks.context import FleetContext
from llamaherd.checks.store import is_own_host
from llamaherd.diagnostics.findings import Finding, Rule, nearest
from llamaherd.inventory.schema import Rig
from llamaherd.layout import ALERTMANAGER_PORT, EXPORTER_PORT, GATEWAY_FIGURES_PORT, PROMETHEUS_PORT

UNKNOWN_MONITORED_RIG = Rule(
    "LH320",
    "Monitoring names a rig that is not in the inventory.",
    why="`monitoring.on` and `monitoring.rigs` name rigs of the same folder. The monitoring rig is monitored, too.",
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:2:7: error LH320: `on` names rig `atic`, which is not in this fleet
      help: did you mean `attic`?
    """,
    language="console",
    fix="correct the name: it is the value of `rig:` in that rig's file.",
)


def check_monitored_rigs(subject: FleetContext) -> Iterator[Finding]:
    """Report rigs that are not in the fleet."""
    for declared in subject.monitoring:
        named = [(("on",), declared.on), *((("rigs", index), name) for index, name in enumerate(declared.rigs))]
        for path, name in named:
            if name not in subject.names:
                message = f"`{path[0]}` names rig `{name}`, which is not in this fleet"
                place = subject.document.value(("monitoring", *path))
                yield UNKNOWN_MONITORED_RIG.at(place, message, nearest(name, subject.names))


NAMELESS_WATCHER = Rule(
    "LH321",
    "Rigs have no IP address of the monitoring rig.",
    why="""
    The monitoring rig queries the others over the network. They accept its IP address alone, to keep the figures of a
    machine private. A host name is not an address, and may have another one tomorrow.
    """,
    example="""
    $ herd check
    fleet/fleet.yaml:2:7: error LH321: rig `attic` monitors others, and its address `attic.lan` is no IP address
      help: give it `store: {share: {address: 192.168.1.20}}`, or monitor it alone: `rigs: [attic]`
    """,
    language="console",
    fix="give the monitoring rig `store: {share: {address: …}}` with the IP address that it has in the LAN.",
)


def check_monitor_address(subject: FleetContext) -> Iterator[Finding]:
    """Report a rig that monitors others and has no IP address for them."""
    for declared in subject.monitoring:
        rig = subject.rigs.get(declared.on)
        others = [name for name in (declared.rigs or subject.names) if name != declared.on]
        if rig is None or not others:
            continue
        address = rig.address
        if is_own_host(address) or not _is_ip(address):
            message = f"rig `{rig.rig}` monitors others, and its address `{address}` is no IP address"
            help_ = f"give it `store: {{share: {{address: 192.168.1.20}}}}`, or monitor it alone: `rigs: [{rig.rig}]`"
            yield NAMELESS_WATCHER.at(subject.document.value(("monitoring", "on")), message, help_)


def _is_ip(address: str) -> bool:
    try:
        return bool(ip_address(address))
    except ValueError:
        return False


MONITORING_PORT = Rule(
    "LH322",
    "A server, the gateway, or its page has a port of the monitoring.",
    why="Prometheus, Alertmanager, the exporter of a host's figures, and a gateway's have ports of their own there.",
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:2:7: error LH322: port 9090 of rig `attic` is Prometheus', and instance `coder` has it
      help: choose another port for it, such as 8080
    """,
    language="console",
    fix="choose another port than 8405, 9090, 9093 and 9100 for it.",
)


def check_monitoring_ports(subject: FleetContext) -> Iterator[Finding]:
    """Report ports that both the monitoring and something else use."""
    for declared in subject.monitoring:
        for name in dict.fromkeys((declared.on, *(declared.rigs or subject.names))):
            rig = subject.rigs.get(name)
            if rig is None:
                continue
            ours = {EXPORTER_PORT: "the exporter's"}
            if name == declared.on:
                ours |= {PROMETHEUS_PORT: "Prometheus'", ALERTMANAGER_PORT: "Alertmanager's"}
            if any(name in gateway.on for gateway in subject.gateways):
                ours[GATEWAY_FIGURES_PORT] = "for the gateway's figures"
            for what, port in _taken(subject, rig):
                if port in ours:
                    message = f"port {port} of rig `{name}` is {ours[port]}, and {what} has it"
                    place = subject.document.value(("monitoring", "on"))
                    yield MONITORING_PORT.at(place, message, "choose another port for it, such as 8080")


def _taken(subject: FleetContext, rig: Rig) -> Iterator[tuple[str, int]]:
    """Yield what uses which port of a rig."""
    yield from ((f"instance `{name}`", instance.port) for name, instance in rig.instances.items())
    yield from (("the gateway", gateway.port) for gateway in subject.gateways if rig.rig in gateway.on)
    pages = ((gateway.on[0], gateway.chat) for gateway in subject.gateways)
    yield from (("the chat page", page.port) for on, page in pages if page and on == rig.rig)


NOBODY_TOLD = Rule(
    "LH323",
    "Alerts have no receiver.",
    why="Alerts fire in Prometheus and reach no person: `monitoring.alerts` names no receiver.",
    example="""
    $ herd check
    fleet/fleet.yaml:1:1: warning LH323: alerts have no receiver: `monitoring.alerts` names none
      help: add one, such as `alerts: {ntfy: {url: https://ntfy.sh/a-name-that-nobody-guesses}}`
    """,
    language="console",
    fix="add `mail`, `ntfy` or `webhook` to `monitoring.alerts`.",
    severity="warning",
)


def check_alert_receivers(subject: FleetContext) -> Iterator[Finding]:
    """Report alerts without a receiver."""
    for declared in subject.monitoring:
        alerts = declared.alerts
        if not (alerts.mail or alerts.ntfy or alerts.webhook):
            message = "alerts have no receiver: `monitoring.alerts` names none"
            help_ = "add one, such as `alerts: {ntfy: {url: https://ntfy.sh/a-name-that-nobody-guesses}}`"
            yield NOBODY_TOLD.at(subject.document.key(("monitoring",)), message, help_)
