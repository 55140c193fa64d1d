"""`herd report`: show all measurements on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import inventory_option, json_option
from llamaherd.cli.targets import complete_results


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
def report(inventory: Path | None, /, **options: Any) -> None:
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
    if options["card"] and (options["form"] or options["as_json"] or options["charts"]):
        raise click.UsageError("--card has one form: leave out --markdown, --csv, --charts and --json")
    if options["dark"] and not (options["card"] or options["charts"]):
        raise click.UsageError("--dark is for --card and --charts: a page is light or dark as its reader's system is")
    from llamaherd.cli.report_output import ReportOptions, run_report  # late: the help needs none of it

    run_report(ReportOptions(inventory, **options))
