"""The page as Markdown, for a README or an issue: tables and sentences. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from llamaherd.report.page import Page, Part
from llamaherd.report.tables import Table
from llamaherd.text.terminal import shown

_MEANING = re.compile(r"([\\`*_{}\[\]<>#|~&!@])")
"""What Markdown could take for more than a letter: names of others are text, and mention nobody."""


def to_markdown(page: Page) -> str:
    """The whole page but for its charts, whose values stand in tables."""
    return "\n".join(_lines(page)).rstrip() + "\n"


def escaped(text: str) -> str:
    """A text on one line that means itself."""
    return _MEANING.sub(r"\\\1", shown(" ".join(text.split())))


def _lines(page: Page) -> Iterator[str]:
    yield "# Measured speeds"
    yield ""
    yield f"{page.about}."
    yield ""
    yield from _sentences(page.notes)
    if page.leaderboard.rows:
        yield from ("## Leaderboard", "")
        yield from _table(page.leaderboard)
    for group in page.groups:
        yield from (f"## {escaped(group.title)}", "")
        if group.machine:
            yield from (escaped(", ".join(group.machine)), "")
        for part in group.parts:
            yield from _part(part)


def _part(part: Part) -> Iterator[str]:
    yield from (f"### {escaped(part.title)}", "")
    for name, value in part.facts:
        yield f"- {name}: {escaped(value)}"
    yield ""
    yield from _sentences([f"**doubt**: {escaped(each)}" for each in part.doubts], ready=True)
    yield from _sentences(part.notes)
    if part.lines:
        yield from ("In the inventory:", "", *(f"    {shown(line)}" for line in part.lines.splitlines()), "")
    for table in part.rest:
        yield from _table(table)
    for chart in part.charts:
        if chart.table:
            yield from (escaped(chart.caption), "")
            yield from _table(chart.table)


def _sentences(every: Sequence[str], *, ready: bool = False) -> Iterator[str]:
    yield from (f"- {each if ready else escaped(each)}" for each in every)
    if every:
        yield ""


def _table(table: Table) -> Iterator[str]:
    yield from (f"*{escaped(table.caption)}*", "")
    yield f"| {' | '.join(map(escaped, table.headings))} |"
    yield f"| --- |{' ---: |' * (len(table.headings) - 1)}"
    for row in table.rows:
        yield f"| {' | '.join(map(escaped, row))} |"
    yield ""
