"""Dashboards as Grafana's JSON, which it takes by hand or from a folder. Pure.

Names are those of Grafana's schema of a dashboard, version 1; a newer Grafana makes its own form of it as it reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from string import ascii_uppercase
from typing import Any

from llamaherd.status.dashboards import Dashboard, Panel, Query, Variable

SCHEMA = 39
"""The form of a dashboard that is written, by Grafana's count. It takes older ones, but none that it does not know."""

_WIDTH, _HEIGHT, _NUMBERS = 24, 8, 4
"""Of Grafana's grid: its columns, and the lines of a panel and of a number."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
"""Whichever Prometheus is chosen above."""
_HIDDEN = ("Time", "Value", "__name__", "alertstate", "job", "exported_rig")
"""Columns of a table of alerts that say nothing."""


def to_json(dashboard: Dashboard) -> str:
    """The text of its file."""
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
        "templating": {"list": [_datasource(), *map(_variable, dashboard.variables)]},
        "annotations": {"list": []},
        "links": [],
        "panels": list(_panels(dashboard)),
    }
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _datasource() -> dict[str, Any]:
    return {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus"}


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "type": "query",
        "name": variable.name,
        "label": variable.label,
        "datasource": _SOURCE,
        "query": {"qryType": 1, "query": variable.query, "refId": f"{variable.name}-values"},
        "refresh": 2,  # as often as the time that is shown is another
        "sort": 1,
        "multi": variable.many,
        "includeAll": variable.many,
        **({"current": {"text": ["All"], "value": ["$__all"]}} if variable.many else {}),
    }


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    """All panels in their places, numbered."""
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
            yield _panel(panel, number, {"x": left, "y": top, "w": panel.width, "h": line})
            left += panel.width
        top += line


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    lettered = zip(ascii_uppercase, panel.queries, strict=False)
    made: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": [_target(query, letter, panel) for letter, query in lettered],
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


def _target(query: Query, letter: str, panel: Panel) -> dict[str, Any]:
    """A number and a table are of now."""
    now = panel.kind == "table"
    form = {"format": "table", "instant": True, "range": False} if now else {"format": "time_series", "range": True}
    return {"refId": letter, "datasource": _SOURCE, "expr": query.expr, "legendFormat": query.legend, **form}
