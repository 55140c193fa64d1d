"""Names and forms of pictures, and the charts of a report as files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from llamaherd.diagnostics.findings import UserError
from llamaherd.installation import install_command
from llamaherd.measure.report.charts import Chart, ImageForm, Scheme
from llamaherd.measure.report.export import can_draw
from llamaherd.measure.report.page import Page

MOST_CHARTS = 200
"""The most charts that are written as files."""
_FORMS: Mapping[str, ImageForm] = {".png": "png", ".svg": "svg"}
_MOST_NAME = 100


def card_form(output: Path | None) -> ImageForm:
    """Return the form of a picture, by the name of its file. Raise UserError for any other name."""
    form = _FORMS.get(output.suffix.lower()) if output else None
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
