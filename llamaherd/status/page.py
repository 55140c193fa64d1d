"""What the fleet does now, as one page of HTML that runs no script and fetches nothing. Pure."""

from __future__ import annotations

from llamaherd import __version__
from llamaherd.report.html import html_environment
from llamaherd.status.now import StatusNow
from llamaherd.status.tables import about, tables


def to_html(now: StatusNow) -> str:
    """The whole page. Whatever a host says is text in it, and never markup."""
    template = html_environment("status").get_template("page.html.j2")
    return template.render(now=now, about=about(now), tables=tables(now), version=__version__)
