"""The run of `herd report`: render the report, a card or charts, or print the page on the terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console

from llamaherd.cli.common import FAILED, UNUSABLE, counted, echo, exit_on_error, write_output
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.measure.report.charts import DARK, LIGHT, Bars, Table
from llamaherd.measure.report.export import (
    card_form,
    card_of,
    card_result,
    chart_files,
    render_report,
    report_form,
    report_json,
    require_drawing,
)
from llamaherd.measure.report.page import Page, Part, gather_results, page
from llamaherd.measure.results.store import results_folder
from llamaherd.measure.tune.result import optuna_shares
from llamaherd.pipeline.load import inventory_path
from llamaherd.store.show import console
from llamaherd.text.tables import make_table, print_table
from llamaherd.text.terminal import printable


@dataclass(frozen=True)
class ReportOptions:
    """The options of `herd report`."""

    inventory: Path | None
    what: tuple[str, ...]
    output: Path | None
    form: str | None
    card: bool
    charts: Path | None
    dark: bool
    as_json: bool


def run_report(run: ReportOptions) -> None:
    """Write or print what was measured. End the program with its exit code."""
    with exit_on_error(UNUSABLE):
        image = card_form(run.output) if run.card else None
        if run.card or run.charts:
            require_drawing()
        scheme = DARK if run.dark else LIGHT
        chosen = None if run.card else report_form(run.output, run.form)
        gathered = gather_results(run.what, results_folder(inventory_path(run.inventory)), optuna_shares)
        if image and run.output:
            from llamaherd.measure.report.drawing import draw_card  # late: it imports matplotlib

            write_output(run.output, draw_card(card_of(card_result(gathered.found)), image, scheme))
        elif run.output and chosen:
            write_output(run.output, render_report(gathered, chosen))
        elif chosen and not run.as_json:
            click.echo(render_report(gathered, chosen), nl=False)
        elif not (run.as_json or run.charts):
            print_page(page(gathered), console())
        if run.charts:
            run.charts.mkdir(parents=True, exist_ok=True)
            count = 0
            for name, data in chart_files(page(gathered), scheme):
                write_output(run.charts / name, data)
                count += 1
            echo(f"{counted(count, 'file')} written to {run.charts}", err=True)
    if run.as_json:
        print_envelope(Envelope(not gathered.left_out, data=report_json(gathered)))
    for text in gathered.left_out:
        echo(f"left out: {text}", err=True)
    if gathered.left_out:
        sys.exit(FAILED)


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
