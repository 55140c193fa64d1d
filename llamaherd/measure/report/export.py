"""Export a report as HTML, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from llamaherd import __version__
from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.report.charts import draw_bars, draw_pane
from llamaherd.measure.report.page import Gathered, Page, Part, page
from llamaherd.measure.report.results import Figure, Measured, MeasuredCell
from llamaherd.measure.report.searches import FinishedSearch
from llamaherd.measure.report.tables import Table
from llamaherd.measure.tune.result import result_json
from llamaherd.resources import TEMPLATES
from llamaherd.text.terminal import shown

_COLUMNS = (
    *("rig", "instance", "label", "stack", "measured", "by", "id", "suite", "condition", "kind", "depth", "prompt"),
    *("generated", "concurrency", "cache", "context", "power_limit_watts"),
    *("metric", "unit", "value", "low", "high", "n", "of"),
)
_FORMULA = ("=", "+", "-", "@")
"""Characters that begin a formula in a spreadsheet."""


def to_csv(results: Sequence[Measured]) -> str:
    """Return CSV with a line for each value."""
    to = io.StringIO()
    writer = csv.DictWriter(to, _COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for each in results:
        for cell in each.cells:
            for row in _figures(cell):
                writer.writerow(
                    {key: _csv_value(value) for key, value in (_about(each) | _condition(cell) | row).items()}
                )
    return to.getvalue()


def _results_json(results: Sequence[Measured]) -> list[dict[str, Any]]:
    """Return JSON with an object for each result."""
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


def report_json(gathered: Gathered) -> dict[str, Any]:
    """Return all results and finished searches as JSON values."""
    searches = [_search_json(each) for each in gathered.searches]
    return {"results": _results_json(gathered.found), "searches": searches, "left_out": list(gathered.left_out)}


def _search_json(each: FinishedSearch) -> dict[str, Any]:
    """Return a finished search as JSON values."""
    head = each.head
    about = {"rig": head.rig, "instance": head.instance, "began": head.began, "ended": each.ended, "file": each.file}
    return about | result_json(each.end)


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
    fields = cell.condition.model_dump(mode="json")
    return {"condition": str(cell.condition)} | {key: fields[key] for key in _COLUMNS if key in fields}


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


def _csv_value(value: Any) -> Any:
    """Return a value that a spreadsheet does not read as a formula."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else "" if value is None else value


_MEANING = re.compile(r"([\\`*_{}\[\]<>#|~&!@])")
"""Characters with a meaning in Markdown: names in results are plain text and mention no user."""


def to_markdown(page: Page) -> str:
    """Return the page as Markdown, with tables instead of charts."""
    return "\n".join(_markdown_lines(page)).rstrip() + "\n"


def escaped(text: str) -> str:
    """Return a text on one line, with Markdown escaped."""
    return _MEANING.sub(r"\\\1", shown(" ".join(text.split())))


def _markdown_lines(page: Page) -> Iterator[str]:
    yield "# Measured speeds"
    yield ""
    yield f"{page.about}."
    yield ""
    yield from _markdown_list(page.notes)
    if page.leaderboard.rows:
        yield from ("## Leaderboard", "")
        yield from _markdown_table(page.leaderboard)
    for group in page.groups:
        yield from (f"## {escaped(group.title)}", "")
        if group.machine:
            yield from (escaped(", ".join(group.machine)), "")
        for part in group.parts:
            yield from _markdown_part(part)


def _markdown_part(part: Part) -> Iterator[str]:
    yield from (f"### {escaped(part.title)}", "")
    for name, value in part.facts:
        yield f"- {name}: {escaped(value)}"
    yield ""
    yield from _markdown_list([f"**doubt**: {escaped(each)}" for each in part.doubts], ready=True)
    yield from _markdown_list(part.notes)
    if part.lines:
        yield from ("In the inventory:", "", *(f"    {shown(line)}" for line in part.lines.splitlines()), "")
    for table in part.rest:
        yield from _markdown_table(table)
    for chart in part.charts:
        if chart.table:
            yield from (escaped(chart.caption), "")
            yield from _markdown_table(chart.table)


def _markdown_list(every: Sequence[str], *, ready: bool = False) -> Iterator[str]:
    yield from (f"- {each if ready else escaped(each)}" for each in every)
    if every:
        yield ""


def _markdown_table(table: Table) -> Iterator[str]:
    yield from (f"*{escaped(table.caption)}*", "")
    yield f"| {' | '.join(map(escaped, table.headings))} |"
    yield f"| --- |{' ---: |' * (len(table.headings) - 1)}"
    for row in table.rows:
        yield f"| {' | '.join(map(escaped, row))} |"
    yield ""


_MOST_BYTES = 1_950_000
"""The bytes of a page beyond which later instances have only tables."""


def to_html(page: Page) -> str:
    """Return the page as HTML. Texts of results are escaped."""
    template = html_environment("report").get_template("page.html.j2")
    bare = template.render(page=page, drawn=frozenset(), version=__version__)
    every = [part for group in page.groups for part in group.parts]
    return template.render(page=page, drawn=_drawn(every, _MOST_BYTES - _size(bare)), version=__version__)


def _drawn(every: Sequence[Part], room: int) -> frozenset[str]:
    """Return the anchors of the first parts, whose charts fit into the page."""
    template = html_environment("report").get_template("part.html.j2")
    found, left = set[str](), room
    for part in every:
        if not part.charts:
            continue
        left -= _size(template.render(part=part, charts=part.charts)) - _size(template.render(part=part, charts=()))
        if left < 0:
            break
        found.add(part.anchor)
    return frozenset(found)


def _size(text: str) -> int:
    return len(text.encode())


@cache
def html_environment(folder: str) -> Environment:
    """Return the environment for page templates in a folder, with shared pieces and style. Values are escaped."""
    made = Environment(
        loader=FileSystemLoader([TEMPLATES / folder, TEMPLATES / "report"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
        finalize=_printable,
    )
    made.globals |= {"draw": draw_pane, "draw_bars": draw_bars}
    return made


def _printable(value: object) -> object:
    """Remove control characters from texts, which HTML does not allow. Rendered markup stays unchanged."""
    return shown(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


Form = Literal["html", "markdown", "csv"]
_FORMS: dict[str, Form] = {"html": "html", "markdown": "markdown", "csv": "csv"}
_ENDINGS: dict[str, Form] = {".html": "html", ".htm": "html", ".md": "markdown", ".csv": "csv"}


def report_form(output: Path | None, asked: str | None) -> Form | None:
    """Return the format: the chosen one, or that of the file's name; None to print to the terminal."""
    if asked is not None:
        return _FORMS[asked]
    if output is None:
        return None
    if output.suffix.lower() not in _ENDINGS:
        raise UserError(f"{output} has no known format", "choose a file name with .html, .md or .csv")
    return _ENDINGS[output.suffix.lower()]


def render_report(gathered: Gathered, form: Form) -> str:
    """Return the report as text."""
    if form == "html":
        return to_html(page(gathered))
    if form == "markdown":
        return to_markdown(page(gathered))
    return to_csv(gathered.found)
