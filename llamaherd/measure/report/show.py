"""Print a report on a terminal: tables, with bars next to the speeds."""

from __future__ import annotations

from rich.console import Console

from llamaherd.measure.report.charts import Bars
from llamaherd.measure.report.page import Page, Part
from llamaherd.measure.report.tables import Table
from llamaherd.text.tables import make_table, print_table
from llamaherd.text.terminal import printable

_BAR = 30
"""The columns of the longest bar."""
_EIGHTHS = " ▏▎▍▌▋▊▉"


def print_page(page: Page, to: Console) -> None:
    """Print the leaderboard with its bars, then each instance."""
    to.print(f"[bold]{printable(page.title)}[/]")
    to.print(page.about)
    for note in page.notes:
        to.print(f"[yellow]note[/]: {printable(note)}")
    if page.leaderboard.rows:
        _print_table(page.leaderboard, to)
    plain = not to.encoding.lower().startswith("utf")
    for chart in page.charts:
        for each in chart.bars:
            _print_bars(each, to, plain=plain)
    for group in page.groups:
        machine = f": {printable(', '.join(group.machine))}" if group.machine else ""
        to.print(f"\n[bold]{printable(group.title)}[/]{machine}")
        for part in group.parts:
            _print_part(part, to)


def _print_part(part: Part, to: Console) -> None:
    to.print(f"\n[bold]{printable(part.title)}[/]")
    for name, value in part.facts:
        to.print(f"  {name}: {printable(value)}")
    for doubt in part.doubts:
        to.print(f"  [yellow]doubt[/]: {printable(doubt)}")
    for note in part.notes:
        to.print(f"  note: {printable(note)}")
    for table in part.tables:
        _print_table(table, to)
    if part.lines:
        to.print("in the inventory:")
    for line in part.lines.splitlines():
        indent = len(line) - len(line.lstrip())
        to.print(f"  {' ' * indent}{printable(line)}", highlight=False)
    for chart in part.charts:
        if chart.title == "Over time" and chart.table:
            _print_table(chart.table, to)


def _print_table(table: Table, to: Console) -> None:
    made = make_table(*map(printable, table.headings))
    for at, row in enumerate(table.rows):
        made.add_row(*map(printable, row), style="dim" if at in table.grey else None)
    print_table(made, to)


def _print_bars(chart: Bars, to: Console, *, plain: bool) -> None:
    most = max(each.value for each in chart.bars)
    made = make_table(printable(chart.title), chart.unit, "")
    for each in chart.bars:
        line = bar(each.value / most, plain=plain)
        made.add_row(printable(each.name), printable(each.text), line, style="dim" if each.grey else None)
    print_table(made, to)


def bar(share: float, *, plain: bool = False) -> str:
    """Return a bar of eighths of a character, or of whole characters if the encoding has no others."""
    eighths = round(share * _BAR * 8)
    if plain:
        return "#" * max(1, round(eighths / 8))
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "") or _EIGHTHS[1]
