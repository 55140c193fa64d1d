"""Export a report as HTML, Markdown, CSV or JSON, its charts as pictures, and one result as a card to post."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from llamaherd import __version__
from llamaherd.diagnostics.findings import UserError
from llamaherd.installation import install_command
from llamaherd.measure.report.charts import (
    DARK,
    LIGHT,
    Bar,
    Bars,
    Card,
    CardFigure,
    Chart,
    ImageForm,
    Pane,
    Scheme,
    Table,
    plus_minus,
    rounded,
    short,
    tokens,
)
from llamaherd.measure.report.curves import speed_over_context
from llamaherd.measure.report.page import Gathered, Page, Part, figure_of, kinds_of, page, representative
from llamaherd.measure.report.results import Figure, Measured, MeasuredCell
from llamaherd.measure.report.searches import FinishedSearch
from llamaherd.measure.results.metrics import DECODE, FIRST_TOKEN, PREFILL, Metric
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
    yield f"# {escaped(page.title)}"
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
MOST_PANES, _FEWEST_PANES = 120, 6
"""The most panes of a page, which are drawn in 4 s, and the fewest of an instance that has charts at all."""


def to_html(page: Page) -> str:
    """Return the page as HTML. Texts of results are escaped."""
    able = can_draw()
    if not able and (page.charts or any(part.charts for part in page.parts)):
        note = "charts are not drawn, only their tables: the extra `llamaherd[report]` draws them"
        page = replace(page, notes=(*page.notes, note))
    template = html_environment("report").get_template("page.html.j2")
    bare = template.render(page=page, drawn={}, able=able, version=__version__)
    drawn = _drawn(page, _MOST_BYTES - _size(bare)) if able else {}
    return template.render(page=page, drawn=drawn, able=able, version=__version__)


def _drawn(page: Page, room: int) -> dict[str, tuple[str, ...]]:
    """Return the panes of drawn charts as SVG, by the names of the charts, within bounds of bytes and panes.

    Each part may have the same number of panes, and no less than its first chart has.
    """
    from llamaherd.measure.report.drawing import page_svg  # late: it imports matplotlib

    def draw(chart: Chart, name: str) -> tuple[str, ...]:
        every: list[Pane | Bars] = [*chart.panes, *chart.bars]
        return tuple(page_svg(each, f"{name}-{at}") for at, each in enumerate(every, start=1))

    drawn = {f"leaderboard-{at}": draw(chart, f"leaderboard-{at}") for at, chart in enumerate(page.charts, start=1)}
    room -= sum(_size(each) for panes in drawn.values() for each in panes)
    template = html_environment("report").get_template("part.html.j2")
    parts = [part for part in page.parts if part.charts]
    left = MOST_PANES
    for part in parts:
        chosen = list(_chosen(part, max(_FEWEST_PANES, MOST_PANES // len(parts))))
        left -= sum(len(chart.panes) for _, chart in chosen)
        if left < 0:
            break
        made = {name: draw(chart, name) for name, chart in chosen}
        bare = _size(template.render(part=part, charts=(), drawn={}, able=True))
        room -= _size(template.render(part=part, charts=part.charts, drawn=made, able=True)) - bare
        if room < 0:
            break
        drawn |= made
    return drawn


def _chosen(part: Part, most: int) -> Iterator[tuple[str, Chart]]:
    """Yield the first charts of a part, with their names, that have no more panes together."""
    for name, chart in zip(part.chart_names, part.charts, strict=True):
        if len(chart.panes) <= most:
            most -= len(chart.panes)
            yield name, chart


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


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
    made.globals |= {"light": LIGHT, "dark": DARK}
    return made


def _printable(value: object) -> object:
    """Remove control characters from texts, which HTML does not allow. Rendered markup stays unchanged."""
    return shown(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


Form = Literal["html", "markdown", "csv"]
_FORMS: dict[str, Form] = {"html": "html", "markdown": "markdown", "csv": "csv"}
_ENDINGS: dict[str, Form] = {".html": "html", ".htm": "html", ".md": "markdown", ".csv": "csv"}


def report_form(output: Path | None, chosen: str | None) -> Form | None:
    """Return the format: the chosen one, or that of the file's name; None to print to the terminal."""
    if chosen is not None:
        return _FORMS[chosen]
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


MOST_CHARTS = 200
"""The most charts that are written as files."""
_IMAGES: Mapping[str, ImageForm] = {".png": "png", ".svg": "svg"}
_MOST_NAME = 100


def card_form(output: Path | None) -> ImageForm:
    """Return the form of a picture, by the name of its file. Raise UserError for any other name."""
    form = _IMAGES.get(output.suffix.lower()) if output else None
    if form is None:
        what = f"{output} is no picture's name" if output else "a card is written to a file"
        raise UserError(what, "name a file with .png or .svg, such as `-o card.png`")
    return form


def require_drawing() -> None:
    """Raise UserError if matplotlib is not installed."""
    if not can_draw():
        fix = f"run `{install_command('report')}`"
        raise UserError("pictures are drawn by matplotlib, which is not installed", fix)


def chart_files(page: Page, scheme: Scheme) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the picture of each chart, as PNG and as SVG. Raise UserError without charts, or too many."""
    from llamaherd.measure.report.drawing import chart_image  # late: it imports matplotlib

    charts = list(_named(page))
    if not charts:
        raise UserError("there is no chart to draw", "measure with `herd bench --depth`, or several times")
    if len(charts) > MOST_CHARTS:
        raise UserError(f"there are {len(charts)} charts, more than {MOST_CHARTS}", "name a rig or an instance")
    for name, heading, chart in charts:
        yield f"{name}.png", chart_image(chart, heading, "png", scheme)
        yield f"{name}.svg", chart_image(chart, heading, "svg", scheme)


def _named(page: Page) -> Iterator[tuple[str, str, Chart]]:
    """Yield each chart with the name of its file and its heading. Names are unique."""
    every = [("all", page.title, chart) for chart in page.charts]
    for group in page.groups:
        for part in group.parts:
            every += [(part.name, f"{group.title}, {part.title}", chart) for chart in part.charts]
    taken: dict[str, int] = {}
    for place, heading, chart in every:
        name = re.sub(r"[^a-z0-9]+", "-", f"{place} {chart.title}".lower()).strip("-")[:_MOST_NAME]
        taken[name] = taken.get(name, 0) + 1
        yield name if taken[name] == 1 else f"{name}-{taken[name]}", heading, chart


def card_of(each: Measured) -> Card:
    """Return the card of a result. Raise UserError if it has no speed."""
    figures = tuple(_card_figures(each))
    if not figures:
        raise UserError(f"{each.label} has no measured speed to show", "measure it with `herd bench`")
    curve = speed_over_context(each)
    return Card(
        title=each.weights or each.stack or each.label,
        hardware=" · ".join(each.machine),
        software=" · ".join(filter(None, [each.engine, *each.serving])),
        figures=figures,
        curve=curve,
        bars=() if curve else tuple(_bars(each)),
        doubt=_doubt(each, curve),
        origin=" · ".join(filter(None, [_measured(each), each.id and f"result {each.id}"])),
    )


def card_result(found: Sequence[Measured]) -> Measured:
    """Return the result that a card shows: the newest complete one. Raise UserError if there are several instances."""
    names = sorted({each.label for each in found})
    if len(names) > 1:
        listed = ", ".join(names[:5])
        raise UserError("a card shows one instance", f"name one of {listed}, such as `herd report --card {names[0]}`")
    if not found:
        raise UserError("there is no result to show on a card", "measure an instance with `herd bench`")
    return max(found, key=lambda each: each.order)


def _card_figures(each: Measured) -> Iterator[CardFigure]:
    kinds = kinds_of([each])
    shown: tuple[tuple[str, Metric, str | None], ...] = (
        ("decode", DECODE, kinds[0] if kinds else None),
        ("prefill", PREFILL, None),
        ("first token", FIRST_TOKEN, None),
    )
    for name, metric, kind in shown:
        cell = representative(each.cells, metric, kind)
        found = cell.figure(metric) if cell else None
        if cell and found:
            yield CardFigure(name, f"{rounded(found.value)} {metric.unit}", _error(found), _card_condition(cell))


def _card_condition(cell: MeasuredCell) -> str:
    """Return the condition that matters for a speed: depth, prompt, or kind of text."""
    condition = cell.condition
    if condition.depth:
        return f"after {tokens(condition.depth)} tokens"
    return f"prompt of {tokens(condition.prompt)} tokens" if condition.prompt else str(condition.kind)


def _error(found: Figure) -> str:
    """Return half of the 95 % interval, or why there is none."""
    if found.ends is None:
        return f"{found.estimate.counted}: error unknown"
    half = (found.ends[1] - found.ends[0]) / 2
    return f"± {short(half)}" if half < found.value / 2 else "± over 50 %"


def _bars(each: Measured) -> Iterator[Bar]:
    for kind in kinds_of([each]):
        if found := figure_of(each.cells, DECODE, kind):
            low, high = found.ends or (None, None)
            yield Bar(kind, found.value, low, high, plus_minus(found))


def _doubt(each: Measured, curve: Pane | None) -> str:
    """Return the first doubt in a sentence, and how many more there are."""
    doubts = [*each.doubts, *each.notes]
    intervals = "± is a 95 % interval"
    if curve and any(point.low is None for point in curve.series[0].points):
        intervals += "; the curve has one run for each point, so its error is unknown"
    if not doubts:
        return f"{intervals}."
    more = f" ({len(doubts) - 1} more in the report)" if len(doubts) > 1 else ""
    return f"{intervals}. Doubt: {doubts[0]}{more}."


def _measured(each: Measured) -> str:
    by = "herd bench" if not each.less else each.source
    return f"measured {each.day} by {by}" if each.day else f"measured by {by}"
