"""All figures as rows: for spreadsheets, and for other programs. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from llamaherd.report.measured import Figure, Measured, MeasuredCell
from llamaherd.report.searches import Searched
from llamaherd.tune.written import ending_json

_COLUMNS = (
    *("rig", "instance", "label", "stack", "measured", "by", "id", "suite", "condition", "kind", "depth", "prompt"),
    *("generated", "concurrency", "cache", "context", "power_limit_watts"),
    *("metric", "unit", "value", "low", "high", "n", "of"),
)
_FORMULA = ("=", "+", "-", "@")
"""What begins a formula for a spreadsheet."""


def to_csv(results: Sequence[Measured]) -> str:
    """A line for each figure."""
    to = io.StringIO()
    writer = csv.DictWriter(to, _COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for each in results:
        for cell in each.cells:
            for row in _figures(cell):
                writer.writerow({key: _told(value) for key, value in (_about(each) | _condition(cell) | row).items()})
    return to.getvalue()


def to_json(results: Sequence[Measured]) -> list[dict[str, Any]]:
    """An object for each result."""
    return [
        {
            **_about(each),
            "machine": list(each.machine),
            "doubts": list(each.doubts),
            "notes": list(each.notes),
            "cells": [
                {
                    "condition": cell.condition.model_dump(mode="json"),
                    "figures": list(_figures(cell)),
                }
                for cell in each.cells
            ],
        }
        for each in results
    ]


def search_json(each: Searched) -> dict[str, Any]:
    """A search that has come to its end."""
    head = each.head
    about = {"rig": head.rig, "instance": head.instance, "began": head.began, "ended": each.ended, "file": each.file}
    return about | ending_json(each.end)


def _about(each: Measured) -> dict[str, Any]:
    return {
        "rig": each.rig,
        "instance": each.instance,
        "label": each.label,
        "stack": each.stack,
        "measured": each.began if each.dated else "",
        "by": each.source,
        "id": each.id,
        "suite": each.suite,
    }


def _condition(cell: MeasuredCell) -> dict[str, Any]:
    told = cell.condition.model_dump(mode="json")
    return {"condition": str(cell.condition)} | {key: told[key] for key in _COLUMNS if key in told}


def _figures(cell: MeasuredCell) -> Iterator[dict[str, Any]]:
    for each in cell.figures:
        yield _figure(each)
    if cell.total:
        low, high = cell.total.low, cell.total.high
        yield {"metric": "together", "unit": "t/s", "value": cell.total.value, "low": low, "high": high}
    alone = (("accepted", "", cell.acceptance), ("power", "W", cell.watts), ("energy", "J/token", cell.joules))
    for metric, unit, value in alone:
        if value is not None:
            yield {"metric": metric, "unit": unit, "value": value}


def _figure(each: Figure) -> dict[str, Any]:
    low, high = each.ends or (None, None)
    of = {"n": each.estimate.n, "of": each.estimate.unit}
    return {"metric": each.metric.name, "unit": each.metric.unit, "value": each.value, "low": low, "high": high} | of


def _told(value: Any) -> Any:
    """A value of which no spreadsheet makes a formula."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else "" if value is None else value
