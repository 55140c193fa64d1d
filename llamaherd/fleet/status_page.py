"""Render the state of the fleet as one HTML page without scripts or requests. Pure."""

from __future__ import annotations

from math import ceil

from llamaherd import __version__
from llamaherd.fleet.snapshot import FleetSnapshot
from llamaherd.fleet.status_text import status_summary, status_tables
from llamaherd.measure.report.export import html_environment

FASTEST_RELOAD = 5
"""The fewest seconds between two reloads of a page: a reload loses what a reader has selected."""


def to_html(now: FleetSnapshot, every: float | None = None, *, ended: bool = False) -> str:
    """Return the whole page. Texts from hosts are escaped, and never markup.

    `every`: the seconds after which the file is written again, so the page reloads itself. `ended`: it was, until now.
    """
    reload = None if every is None or ended else max(FASTEST_RELOAD, ceil(every))
    template = html_environment("status").get_template("page.html.j2")
    about, tables = status_summary(now), status_tables(now)
    return template.render(now=now, about=about, tables=tables, version=__version__, reload=reload, ended=ended)
