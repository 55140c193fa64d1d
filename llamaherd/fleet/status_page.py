"""Render the state of the fleet as one HTML page without scripts or requests. Pure."""

from __future__ import annotations

from llamaherd import __version__
from llamaherd.fleet.snapshot import FleetSnapshot
from llamaherd.fleet.status_text import status_summary, status_tables
from llamaherd.measure.report.export import html_environment


def to_html(now: FleetSnapshot) -> str:
    """Return the whole page. Texts from hosts are escaped, and never markup."""
    template = html_environment("status").get_template("page.html.j2")
    return template.render(now=now, about=status_summary(now), tables=status_tables(now), version=__version__)
