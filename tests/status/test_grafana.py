"""Dashboards as Grafana reads them: by the fields of its own schema, which tests/data has by name.

They are those of @grafana/schema 13.2.3 (raw/dashboard/x/types.gen.d.ts) and, for a query, of the Dataquery that
grafana-foundation-sdk 10.1 has for Prometheus. No Grafana is run.
"""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import pytest

from llamaherd.fleet.dashboards import DASHBOARDS, Dashboard, dashboard_json
from tests.support.rigs import ROOT

FIELDS = json.loads((ROOT / "tests/data/grafana_fields_13.2.3.json").read_text(encoding="utf-8"))
EACH = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=[each.uid for each in DASHBOARDS])


def fits(value: dict[str, Any], kind: str) -> None:
    """Nothing that Grafana does not know, and all that it must have."""
    known = FIELDS[kind]
    assert set(known["required"]) <= value.keys() <= {*known["required"], *known["optional"]}, kind


def panels(dashboard: Dashboard) -> list[dict[str, Any]]:
    """Its panels and headings."""
    found: list[dict[str, Any]] = json.loads(dashboard_json(dashboard))["panels"]
    return found


@EACH
def test_grafana_knows_every_field(dashboard: Dashboard) -> None:
    value = json.loads(dashboard_json(dashboard))
    fits(value, "Dashboard")
    for variable in value["templating"]["list"]:
        fits(variable, "VariableModel")
    for panel in value["panels"]:
        fits(panel, "RowPanel" if panel["type"] == "row" else "Panel")
        fits(panel["gridPos"], "GridPos")
        for target in panel.get("targets", []):
            fits(target, "Dataquery")
        for changed in panel.get("transformations", []):
            fits(changed, "DataTransformerConfig")
        if config := panel.get("fieldConfig"):
            fits(config, "FieldConfigSource")
            fits(config["defaults"], "FieldConfig")


@EACH
def test_a_field_that_grafana_does_not_know_is_found(dashboard: Dashboard) -> None:
    value = json.loads(dashboard_json(dashboard))
    with pytest.raises(AssertionError):
        fits({**value, "pannels": []}, "Dashboard")


@EACH
def test_panels_lie_beside_each_other(dashboard: Dashboard) -> None:
    cells: list[set[tuple[int, int]]] = []
    for panel in panels(dashboard):
        place = panel["gridPos"]
        columns = range(place["x"], place["x"] + place["w"])
        assert columns.stop <= 24
        cells.append({(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])})
    assert not [pair for pair in combinations(cells, 2) if pair[0] & pair[1]]


@EACH
def test_each_panel_has_a_number_and_asks_whom_was_chosen(dashboard: Dashboard) -> None:
    value = json.loads(dashboard_json(dashboard))
    numbers = [panel["id"] for panel in value["panels"]]
    assert numbers == list(range(1, len(numbers) + 1))
    names = {variable["name"] for variable in value["templating"]["list"]}
    assert "datasource" in names
    for panel in value["panels"]:
        for target in panel.get("targets", []):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        letters = [target["refId"] for target in panel.get("targets", [])]
        assert len(set(letters)) == len(letters)


def test_dashboards_are_told_apart() -> None:
    assert len({each.uid for each in DASHBOARDS}) == len(DASHBOARDS)
    assert all(len(each.uid) <= 40 for each in DASHBOARDS), "Grafana takes no longer one"
