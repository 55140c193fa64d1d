"""`herd report`: show all measurements on one page."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from llamaherd.cli.common import (
    FAILED,
    UNUSABLE,
    counted,
    echo,
    fail,
    inventory_option,
    json_option,
    write_file,
    write_output,
)
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.cli.targets import complete_results
from llamaherd.diagnostics.findings import UserError
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


@click.command()
@click.argument("what", metavar="[RIG[/INSTANCE] | FILE]...", nargs=-1, shell_complete=complete_results)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report to this file: .html, .md or .csv; a card: .png or .svg.",
)
@click.option("--card", is_flag=True, help="Draw one instance's newest result as a picture to post.")
@click.option(
    "--charts",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write each chart as PNG and as SVG into this folder.",
)
@click.option("--dark", is_flag=True, help="Draw a card or charts in light colours on dark paper.")
@click.option("--markdown", "form", flag_value="markdown", help="Print Markdown.")
@click.option("--csv", "form", flag_value="csv", help="Print CSV, one line for each value.")
@inventory_option
@json_option
@click.pass_obj
def report(
    inventory: Path | None,
    what: tuple[str, ...],
    output: Path | None,
    form: str | None,
    card: bool,
    charts: Path | None,
    dark: bool,
    as_json: bool,
) -> None:
    """Show all measurements on one page.

    The report contains a leaderboard, each instance, charts, and notes on uncertain results. It covers all results and
    finished searches in `results/`, or the rigs, instances and files that you name. It also reads the files of other
    programs that `herd compare` reads. Without -o it is printed. An .html page is a single file without scripts that
    loads nothing from the network.

    With --card, it is a picture of 1200 by 630 pixels: hardware, model, engine, the speeds with their intervals, and a
    curve. Pictures and the charts of a page need the extra `llamaherd[report]`. An SVG is light or dark as its
    reader's system is.

    Exit codes: 0 done; 1 done, but without a file that cannot be read; 2 nothing can be read.

    \b
    Examples:
      herd report
      herd report duo -o report.html
      herd report duo/chat results.json page.md --markdown
      herd report --card duo/chat -o card.png
      herd report duo/chat --charts charts --dark
    """
    if card and (form or as_json or charts):
        raise click.UsageError("--card has one form: leave out --markdown, --csv, --charts and --json")
    if dark and not (card or charts):
        raise click.UsageError("--dark is for --card and --charts: a page is light or dark as its reader's system is")
    try:
        image = card_form(output) if card else None
        if card or charts:
            require_drawing()
        scheme = DARK if dark else LIGHT
        chosen = None if card else report_form(output, form)
        gathered = gather_results(what, results_folder(inventory_path(inventory)), optuna_shares)
        if image and output:
            from llamaherd.measure.report.drawing import draw_card  # late: it imports matplotlib

            write_file(output, draw_card(card_of(card_result(gathered.found)), image, scheme))
        elif output and chosen:
            write_output(output, render_report(gathered, chosen))
        elif chosen and not as_json:
            click.echo(render_report(gathered, chosen), nl=False)
        elif not (as_json or charts):
            print_page(page(gathered), console())
        if charts:
            charts.mkdir(parents=True, exist_ok=True)
            count = 0
            for name, data in chart_files(page(gathered), scheme):
                write_file(charts / name, data)
                count += 1
            echo(f"{counted(count, 'file')} written to {charts}", err=True)
    except UserError as error:
        fail(error, UNUSABLE)
    if as_json:
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
