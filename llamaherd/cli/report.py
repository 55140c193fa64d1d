"""`herd report`: what measurements say together."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from llamaherd.cli.common import FAILED, UNUSABLE, fail, inventory_option, json_option, say
from llamaherd.diagnostics.findings import UserError


@click.command()
@click.argument("what", metavar="[RIG[/INSTANCE] | FILE]...", nargs=-1)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file to write it to: .html, .md or .csv.",
)
@click.option("--markdown", "form", flag_value="markdown", help="As Markdown.")
@click.option("--csv", "form", flag_value="csv", help="As CSV: a line for each figure.")
@inventory_option
@json_option
@click.pass_obj
def report(inventory: Path | None, what: tuple[str, ...], output: Path | None, form: str | None, as_json: bool) -> None:
    """Show what measurements say together.

    That is a leaderboard, each instance, charts, and what is doubtful. It is of all results and finished searches
    beside the inventory, or of those that are named: a rig, an instance, a file. Files may be those of other programs,
    as for `herd compare`. Without -o it is shown here. An .html page is a single file that runs no script and fetches
    nothing.

    Exit codes: 0 written; 1 written, but a file could not be read and is left out; 2 nothing can be read.

    \b
    Examples:
      herd report
      herd report duo -o report.html
      herd report duo/chat results.json page.md --markdown
    """
    from llamaherd.measure.report.export import render_report, report_form, write_text
    from llamaherd.measure.report.page import page
    from llamaherd.measure.report.sources import gather_results
    from llamaherd.measure.results.store import results_folder
    from llamaherd.measure.tune.result import optuna_shares
    from llamaherd.pipeline.load import inventory_path

    try:
        chosen = report_form(output, "json" if as_json else form)
        gathered = gather_results(what, results_folder(inventory_path(inventory)), optuna_shares)
        if chosen is None:
            from llamaherd.measure.report.show import print_page
            from llamaherd.store.show import console

            print_page(page(gathered), console())
        elif output is None:
            click.echo(render_report(gathered, chosen), nl=False)
        else:
            write_text(output, render_report(gathered, chosen))
    except UserError as error:
        fail(error, UNUSABLE)
    for text in gathered.left_out:
        say(f"left out: {text}", err=True)
    if gathered.left_out:
        sys.exit(FAILED)
