"""What Grafana shows of a fleet and of one rig: values, by the figures that docs/monitoring.md names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["timeseries", "stat", "table"]

_OF_RIG = 'rig="$rig"'
_OF_SERVER = f'{_OF_RIG},instance=~"$instance"'
_DISK = f'{_OF_RIG},fstype!="tmpfs"'
_ANSWERING = 'sum(up{job="server",group=""} or max by (rig, group) (up{job="server",group!=""}))'
"""A group answers for the one of its models that is loaded."""
_MODELS = 'proxy=~"m_.+"'


@dataclass(frozen=True)
class Query:
    """What is asked of Prometheus, and how each line of the answer is called: `{{label}}` stands for its value."""

    expr: str
    legend: str = "{{instance}}"


@dataclass(frozen=True)
class Panel:
    """A chart, a number or a table; `unit` is Grafana's name of it, and `width` is of 24. `help` says what it is."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: Kind = "timeseries"
    width: int = 8
    help: str = ""


@dataclass(frozen=True)
class Row:
    """Panels under one heading, from left to right."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Variable:
    """What is chosen above a dashboard: values of a label, by Grafana's `label_values`. `many`: several, or all."""

    name: str
    label: str
    query: str
    many: bool = False


@dataclass(frozen=True)
class Dashboard:
    """A dashboard; Grafana knows it by `uid`, so that the next version takes its place."""

    uid: str
    title: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()


def _one(title: str, expr: str, unit: str = "short", legend: str = "{{instance}}", help_: str = "") -> Panel:
    """A chart of one query."""
    return Panel(title, (Query(expr, legend),), unit, help=help_)


def _number(title: str, expr: str, unit: str = "short") -> Panel:
    return Panel(title, (Query(expr, title),), unit, "stat", 4)


def _alerts(labels: str = "") -> Panel:
    """What is wrong now."""
    query = Query(f'ALERTS{{alertstate="firing"{labels}}}')
    return Panel("What is wrong", (query,), kind="table", width=24, help="Alerts that fire now.")


FLEET = Dashboard(
    "llamaherd-fleet",
    "llamaherd: the fleet",
    (
        Row(
            "Now",
            (
                _number("Rigs that answer", 'sum(up{job="host"})'),
                _number("Servers that answer", _ANSWERING),
                _number("Requests that are answered", "sum(llm:requests:processing)"),
                _number("Requests that wait", "sum(llm:requests:waiting)"),
                _number("GPUs take", "sum(llamaherd_gpu_power_watts)", "watt"),
                _number("Alerts", 'count(ALERTS{alertstate="firing"}) or vector(0)'),
                _alerts(),
            ),
        ),
        Row(
            "Speed",
            (
                _one("Tokens a second, one request", "llm:decode_tokens_per_second:rate5m"),
                _one(
                    "Beside what was measured",
                    "llm:decode_tokens_per_second:rate5m"
                    " / on(instance) group_left() llm:decode_tokens_per_second:measured",
                    "percentunit",
                    help_="Of the slowest condition in the newest result of herd bench. Below 70 % somebody is told.",
                ),
                _one("Prompt tokens a second", "llm:prefill_tokens_per_second:rate5m"),
            ),
        ),
        Row(
            "Who asks",
            (
                _one("Requests that are answered", "llm:requests:processing"),
                _one("Requests that wait for a slot", "llm:requests:waiting"),
                _one("Drafted tokens that are taken", "llm:drafts_accepted:ratio30m", "percentunit"),
                _one("Streams by the gateway", f"haproxy_server_current_sessions{{{_MODELS}}}", legend="{{server}}"),
                _one("Gateway's queue", f"haproxy_backend_current_queue{{{_MODELS}}}", legend="{{proxy}}"),
                _one(
                    "Told to come back, a minute",
                    '60 * rate(haproxy_frontend_requests_denied_total{proxy="gateway"}[$__rate_interval])',
                    legend="{{rig}}",
                    help_="Answers 429: the queue is full, or somebody asks too much at once.",
                ),
            ),
        ),
        Row(
            "Machines",
            (
                _one("GPUs take", "sum by (rig) (llamaherd_gpu_power_watts)", "watt", "{{rig}}"),
                _one("Hottest GPU", "max by (rig) (llamaherd_gpu_temperature_celsius)", "celsius", "{{rig}}"),
                _one(
                    "Memory of GPUs in use",
                    "sum by (rig) (llamaherd_gpu_memory_used_bytes) / sum by (rig) (llamaherd_gpu_memory_total_bytes)",
                    "percentunit",
                    "{{rig}}",
                ),
                _one(
                    "RAM in use",
                    "1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes",
                    "percentunit",
                    "{{rig}}",
                ),
                _one(
                    "Fullest disk",
                    'max by (rig) (1 - node_filesystem_avail_bytes{fstype!="tmpfs"} / node_filesystem_size_bytes)',
                    "percentunit",
                    "{{rig}}",
                ),
                Panel(
                    "Not as declared",
                    (
                        Query("llamaherd:drift:changes", "{{rig}}: drift"),
                        Query("llamaherd:inventory:changes", "{{rig}}: the inventory has moved"),
                    ),
                    help="Changes that herd up would make, by the last herd diff --tell.",
                ),
            ),
        ),
    ),
)

RIG = Dashboard(
    "llamaherd-rig",
    "llamaherd: a rig",
    (
        Row("Now", (_alerts(f",{_OF_RIG}"),)),
        Row(
            "Servers",
            (
                Panel(
                    "Tokens a second, one request",
                    (
                        Query(f"llm:decode_tokens_per_second:rate5m{{{_OF_SERVER}}}"),
                        Query(f"llm:decode_tokens_per_second:measured{{{_OF_SERVER}}}", "{{instance}}: measured"),
                        Query(f"llm:decode_tokens_per_second:floor{{{_OF_SERVER}}}", "{{instance}}: too slow below"),
                    ),
                    width=16,
                ),
                _one("Prompt tokens a second", f"llm:prefill_tokens_per_second:rate5m{{{_OF_SERVER}}}"),
                _one("Requests that are answered", f"llm:requests:processing{{{_OF_SERVER}}}"),
                _one("Requests that wait for a slot", f"llm:requests:waiting{{{_OF_SERVER}}}"),
                _one("Drafted tokens that are taken", f"llm:drafts_accepted:ratio30m{{{_OF_SERVER}}}", "percentunit"),
            ),
        ),
        Row(
            "GPUs",
            (
                Panel(
                    "Memory",
                    (
                        Query(f"llamaherd_gpu_memory_used_bytes{{{_OF_RIG}}}", "GPU {{index}}"),
                        Query(f"llamaherd_gpu_memory_total_bytes{{{_OF_RIG}}}", "GPU {{index}}: there is"),
                    ),
                    "bytes",
                ),
                Panel(
                    "Power",
                    (
                        Query(f"llamaherd_gpu_power_watts{{{_OF_RIG}}}", "GPU {{index}}"),
                        Query(f"llamaherd_gpu_power_limit_watts{{{_OF_RIG}}}", "GPU {{index}}: its limit"),
                    ),
                    "watt",
                ),
                _one("Temperature", f"llamaherd_gpu_temperature_celsius{{{_OF_RIG}}}", "celsius", "GPU {{index}}"),
                _one("At work", f"llamaherd_gpu_utilization_ratio{{{_OF_RIG}}}", "percentunit", "GPU {{index}}"),
                _one("Clock", f"llamaherd_gpu_clock_hertz{{{_OF_RIG}}}", "hertz", "GPU {{index}}"),
                _one("Slowed down", f"llamaherd_gpu_throttled{{{_OF_RIG}}}", legend="GPU {{index}}: {{why}}"),
            ),
        ),
        Row(
            "Host",
            (
                Panel(
                    "RAM",
                    (
                        Query(
                            f"node_memory_MemTotal_bytes{{{_OF_RIG}}} - node_memory_MemAvailable_bytes{{{_OF_RIG}}}",
                            "in use",
                        ),
                        Query(f"node_memory_MemTotal_bytes{{{_OF_RIG}}}", "there is"),
                    ),
                    "bytes",
                ),
                _one("Load", f"node_load1{{{_OF_RIG}}}", legend="of a minute"),
                _one("Disks have left", f"node_filesystem_avail_bytes{{{_DISK}}}", "bytes", "{{mountpoint}}"),
                _one(
                    "Network takes in",
                    f'rate(node_network_receive_bytes_total{{{_OF_RIG},device!="lo"}}[$__rate_interval])',
                    "Bps",
                    "{{device}}",
                ),
                _one(
                    "Our units run",
                    f'node_systemd_unit_state{{{_OF_RIG},state="active"}}',
                    legend="{{name}}",
                    help_="1 where systemd calls it active.",
                ),
                _one(
                    "Not as declared",
                    f"llamaherd:drift:changes{{{_OF_RIG}}}",
                    legend="drift",
                    help_="Changes that herd up would make since somebody has changed the host.",
                ),
            ),
        ),
    ),
    (
        Variable("rig", "Rig", 'label_values(up{job="host"}, rig)'),
        Variable("instance", "Server", f'label_values(up{{job="server",{_OF_RIG}}}, instance)', many=True),
    ),
)

DASHBOARDS = (FLEET, RIG)
