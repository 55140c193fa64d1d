"""Grafana dashboards of the fleet and of one rig: their panels as values, and as Grafana's JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, Literal

PanelKind = Literal["timeseries", "stat", "table"]

_OF_RIG = 'rig="$rig"'
_OF_SERVER = f'{_OF_RIG},instance=~"$instance"'
_DISK = f'{_OF_RIG},fstype!="tmpfs"'
_ANSWERING = 'sum(up{job="server",group=""} or max by (rig, group) (up{job="server",group!=""}))'
"""A group responds if the server of its loaded model does."""
_MODELS = 'proxy=~"m_.+"'


@dataclass(frozen=True)
class Query:
    """A query of Prometheus, and the legend of each of its series: `{{label}}` stands for the label's value."""

    expr: str
    legend: str = "{{instance}}"


@dataclass(frozen=True)
class Panel:
    """A chart, a number or a table; `unit` is Grafana's name of it, and `width` is of 24. `help` explains it."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: PanelKind = "timeseries"
    width: int = 8
    help: str = ""


@dataclass(frozen=True)
class PanelRow:
    """Panels under one heading, from left to right."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Variable:
    """A selection above a dashboard: values of a label, by Grafana's `label_values`. `many`: several, or all."""

    name: str
    label: str
    query: str
    many: bool = False


@dataclass(frozen=True)
class Dashboard:
    """A dashboard; Grafana identifies it by `uid`, so that the next version takes its place."""

    uid: str
    title: str
    rows: tuple[PanelRow, ...]
    variables: tuple[Variable, ...] = ()


def _chart(title: str, expr: str, unit: str = "short", legend: str = "{{instance}}", help_: str = "") -> Panel:
    """Return a chart of one query."""
    return Panel(title, (Query(expr, legend),), unit, help=help_)


def _number(title: str, expr: str, unit: str = "short") -> Panel:
    return Panel(title, (Query(expr, title),), unit, "stat", 4)


def _alerts(labels: str = "") -> Panel:
    """Return the table of firing alerts."""
    query = Query(f'ALERTS{{alertstate="firing"{labels}}}')
    return Panel("Firing alerts", (query,), kind="table", width=24, help="Alerts that fire now.")


FLEET = Dashboard(
    "llamaherd-fleet",
    "llamaherd: the fleet",
    (
        PanelRow(
            "Now",
            (
                _number("Rigs that respond", 'sum(up{job="host"})'),
                _number("Servers that respond", _ANSWERING),
                _number("Running requests", "sum(llm:requests:processing)"),
                _number("Waiting requests", "sum(llm:requests:waiting)"),
                _number("GPUs take", "sum(llamaherd_gpu_power_watts)", "watt"),
                _number("Alerts", 'count(ALERTS{alertstate="firing"}) or vector(0)'),
                _alerts(),
            ),
        ),
        PanelRow(
            "Speed",
            (
                _chart("Tokens a second, one request", "llm:decode_tokens_per_second:rate5m"),
                _chart(
                    "Compared with the measured speed",
                    "llm:decode_tokens_per_second:rate5m"
                    " / on(instance) group_left() llm:decode_tokens_per_second:measured",
                    "percentunit",
                    help_="Of the slowest condition in the newest result of herd bench. Below 70 % an alert fires.",
                ),
                _chart("Prompt tokens a second", "llm:prefill_tokens_per_second:rate5m"),
            ),
        ),
        PanelRow(
            "Who asks",
            (
                _chart("Running requests", "llm:requests:processing"),
                _chart("Requests waiting for a slot", "llm:requests:waiting"),
                _chart("Accepted draft tokens", "llm:drafts_accepted:ratio30m", "percentunit"),
                _chart("Streams by the gateway", f"haproxy_server_current_sessions{{{_MODELS}}}", legend="{{server}}"),
                _chart("Gateway's queue", f"haproxy_backend_current_queue{{{_MODELS}}}", legend="{{proxy}}"),
                _chart(
                    "Rejected with 429, a minute",
                    '60 * rate(haproxy_frontend_requests_denied_total{proxy="gateway"}[$__rate_interval])',
                    legend="{{rig}}",
                    help_="Responses with status 429: the queue is full, or a user sends too many requests at once.",
                ),
            ),
        ),
        PanelRow(
            "Machines",
            (
                _chart("GPUs take", "sum by (rig) (llamaherd_gpu_power_watts)", "watt", "{{rig}}"),
                _chart("Hottest GPU", "max by (rig) (llamaherd_gpu_temperature_celsius)", "celsius", "{{rig}}"),
                _chart(
                    "Memory of GPUs in use",
                    "sum by (rig) (llamaherd_gpu_memory_used_bytes) / sum by (rig) (llamaherd_gpu_memory_total_bytes)",
                    "percentunit",
                    "{{rig}}",
                ),
                _chart(
                    "RAM in use",
                    "1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes",
                    "percentunit",
                    "{{rig}}",
                ),
                _chart(
                    "Fullest disk",
                    'max by (rig) (1 - node_filesystem_avail_bytes{fstype!="tmpfs"} / node_filesystem_size_bytes)',
                    "percentunit",
                    "{{rig}}",
                ),
                Panel(
                    "Out of sync",
                    (
                        Query("llamaherd:drift:changes", "{{rig}}: drift"),
                        Query("llamaherd:inventory:changes", "{{rig}}: the inventory has moved"),
                    ),
                    help="Changes that herd up would make, by the last `herd diff --tell`.",
                ),
            ),
        ),
    ),
)

RIG = Dashboard(
    "llamaherd-rig",
    "llamaherd: a rig",
    (
        PanelRow("Now", (_alerts(f",{_OF_RIG}"),)),
        PanelRow(
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
                _chart("Prompt tokens a second", f"llm:prefill_tokens_per_second:rate5m{{{_OF_SERVER}}}"),
                _chart("Running requests", f"llm:requests:processing{{{_OF_SERVER}}}"),
                _chart("Requests waiting for a slot", f"llm:requests:waiting{{{_OF_SERVER}}}"),
                _chart("Accepted draft tokens", f"llm:drafts_accepted:ratio30m{{{_OF_SERVER}}}", "percentunit"),
            ),
        ),
        PanelRow(
            "GPUs",
            (
                Panel(
                    "Memory",
                    (
                        Query(f"llamaherd_gpu_memory_used_bytes{{{_OF_RIG}}}", "GPU {{index}}"),
                        Query(f"llamaherd_gpu_memory_total_bytes{{{_OF_RIG}}}", "GPU {{index}}: total"),
                    ),
                    "bytes",
                ),
                Panel(
                    "Power",
                    (
                        Query(f"llamaherd_gpu_power_watts{{{_OF_RIG}}}", "GPU {{index}}"),
                        Query(f"llamaherd_gpu_power_limit_watts{{{_OF_RIG}}}", "GPU {{index}}: limit"),
                    ),
                    "watt",
                ),
                _chart("Temperature", f"llamaherd_gpu_temperature_celsius{{{_OF_RIG}}}", "celsius", "GPU {{index}}"),
                _chart("At work", f"llamaherd_gpu_utilization_ratio{{{_OF_RIG}}}", "percentunit", "GPU {{index}}"),
                _chart("Clock", f"llamaherd_gpu_clock_hertz{{{_OF_RIG}}}", "hertz", "GPU {{index}}"),
                _chart("Slowed down", f"llamaherd_gpu_throttled{{{_OF_RIG}}}", legend="GPU {{index}}: {{why}}"),
            ),
        ),
        PanelRow(
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
                _chart("Load", f"node_load1{{{_OF_RIG}}}", legend="of a minute"),
                _chart("Free disk space", f"node_filesystem_avail_bytes{{{_DISK}}}", "bytes", "{{mountpoint}}"),
                _chart(
                    "Network input",
                    f'rate(node_network_receive_bytes_total{{{_OF_RIG},device!="lo"}}[$__rate_interval])',
                    "Bps",
                    "{{device}}",
                ),
                _chart(
                    "Running units",
                    f'node_systemd_unit_state{{{_OF_RIG},state="active"}}',
                    legend="{{name}}",
                    help_="1 where systemd reports it as active.",
                ),
                _chart(
                    "Out of sync",
                    f"llamaherd:drift:changes{{{_OF_RIG}}}",
                    legend="drift",
                    help_="Changes that herd up would make because the host was changed by hand.",
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


SCHEMA = 39
"""The form of a dashboard that is written, by Grafana's count. It reads older ones, but no newer ones."""

_WIDTH, _HEIGHT, _NUMBERS = 24, 8, 4
"""The columns of Grafana's grid, and the lines of a panel and of a number."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
"""The Prometheus that is selected above."""
_HIDDEN = ("Time", "Value", "__name__", "alertstate", "job", "exported_rig")
"""Columns of a table of alerts without information."""


def dashboard_json(dashboard: Dashboard) -> str:
    """Return the text of a dashboard's file."""
    value = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["llamaherd"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_datasource(), *map(_variable_json, dashboard.variables)]},
        "annotations": {"list": []},
        "links": [],
        "panels": list(_panels_json(dashboard)),
    }
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _datasource() -> dict[str, Any]:
    return {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus"}


def _variable_json(variable: Variable) -> dict[str, Any]:
    return {
        "type": "query",
        "name": variable.name,
        "label": variable.label,
        "datasource": _SOURCE,
        "query": {"qryType": 1, "query": variable.query, "refId": f"{variable.name}-values"},
        "refresh": 2,  # the refresh rate of the time range
        "sort": 1,
        "multi": variable.many,
        "includeAll": variable.many,
        **({"current": {"text": ["All"], "value": ["$__all"]}} if variable.many else {}),
    }


def _panels_json(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    """Yield all panels in their places, numbered."""
    number = top = 0
    for row in dashboard.rows:
        number += 1
        place = {"x": 0, "y": top, "w": _WIDTH, "h": 1}
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "gridPos": place, "panels": []}
        top += 1
        left = line = 0
        for panel in row.panels:
            if left + panel.width > _WIDTH:
                left, top = 0, top + line
            number, line = number + 1, _NUMBERS if panel.kind == "stat" else _HEIGHT
            yield _panel_json(panel, number, {"x": left, "y": top, "w": panel.width, "h": line})
            left += panel.width
        top += line


def _panel_json(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    lettered = zip(ascii_uppercase, panel.queries, strict=False)
    made: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": [_query_json(query, letter, panel) for letter, query in lettered],
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": {},
    }
    match panel.kind:
        case "timeseries":
            made["fieldConfig"]["defaults"] |= {"min": 0, "custom": {"fillOpacity": 10, "spanNulls": False}}
            legend = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
            made["options"] = {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
        case "stat":
            reduced = {"calcs": ["lastNotNull"], "fields": "", "values": False}
            made["options"] = {"reduceOptions": reduced, "colorMode": "none", "graphMode": "area"}
        case "table":
            organized = {"excludeByName": dict.fromkeys(_HIDDEN, True), "indexByName": {}, "renameByName": {}}
            made["transformations"] = [{"id": "organize", "options": organized}]
            made["options"] = {"showHeader": True}
    return made


def _query_json(query: Query, letter: str, panel: Panel) -> dict[str, Any]:
    """Return a query in Grafana's format; a number and a table show the current value."""
    now = panel.kind == "table"
    form = {"format": "table", "instant": True, "range": False} if now else {"format": "time_series", "range": True}
    return {"refId": letter, "datasource": _SOURCE, "expr": query.expr, "legendFormat": query.legend, **form}
