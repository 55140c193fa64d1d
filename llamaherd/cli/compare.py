"""`herd compare`: two measurements beside each other."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from llamaherd.cli.common import FAILED, UNUSABLE, fail, inventory_option, json_option, lock_wait_option
from llamaherd.cli.compare_run import Wanted, budget_of, cells_of, run_comparison
from llamaherd.diagnostics.findings import UserError


@click.command()
@click.argument("a")
@click.argument("b", required=False)
@click.option("--run", "running", is_flag=True, help="Measure both now: RIG/INSTANCE, and another one or --with.")
@click.option("--with", "settings", metavar="KEY=VALUE", multiple=True, help="What is otherwise about B, as in YAML.")
@click.option(
    "--budget", metavar="TIME", default="20m", show_default=True, callback=budget_of, help="The longest that it takes."
)
@click.option(
    "--cells",
    metavar="NAMES",
    default="code,prose,prefill",
    show_default=True,
    callback=cells_of,
    help="What is measured: also copy-edit, extract and reasoning.",
)
@click.option("--beside", is_flag=True, help="Do not stop what serves, where there is room beside it.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask first.")
@lock_wait_option
@inventory_option
@json_option
@click.pass_context
def compare(
    context: click.Context,
    a: str,
    b: str | None,
    running: bool,
    settings: tuple[str, ...],
    budget: int,
    cells: tuple[str, ...],
    beside: bool,
    yes: bool,
    lock_wait: int,
    as_json: bool,
) -> None:
    """Compare two measurements, with a verdict on each speed.

    What is different about them comes first, then how much faster B is.

    A and B are files: results of llamaherd, of llama-bench (-o json), of llama-sweep-bench (--output-format jsonl), of
    llama-benchy (--format json), or pages with a table of t/s. FILE:2 is the second result of a file that has several.
    RIG/INSTANCE is the newest result beside the inventory, RIG/INSTANCE:2 the one before it.

    With --run, both are measured now, in blocks, until each verdict is known or the budget is spent. A is an instance
    as it is declared, B the same with other keys, or another instance of its rig. Each is a unit of its own, started
    anew in each block. The declared server is stopped meanwhile, and its host brings it back whatever ends the run;
    gateways that have others for it send it nothing new.

    A verdict is slower, same or faster where the whole interval of the ratio says so; else it is not known yet, and
    about how many more starts or runs would tell. Exit codes: 0 compared, whatever the verdict; 1 it could not be
    measured, or nothing was measured in both under the same conditions; 2 something cannot be read.

    \b
    Examples:
      herd compare monday.json friday.json
      herd compare duo/chat:2 duo/chat --json
      herd compare --run duo/chat --with batch=1024
      herd compare --run duo/chat --with draft.mtp=2 --cells code --budget 10m
      herd compare --run duo/chat duo/coder --yes
    """
    inventory: Path | None = context.obj
    if running:
        run_comparison(inventory, a, b, Wanted(settings, cells, budget, beside, yes, lock_wait, as_json))
        return
    if settings or beside or b is None:
        raise click.UsageError("Missing argument 'B'." if b is None else "--with and --beside go with --run.")
    from llamaherd.bench.comparing.compare import compare as compare_results
    from llamaherd.bench.comparing.show import as_json as comparison_json
    from llamaherd.bench.comparing.show import print_comparison
    from llamaherd.bench.results.naming import named_result
    from llamaherd.bench.results.store import results_folder
    from llamaherd.pipeline.load import inventory_path
    from llamaherd.store.show import console

    results = results_folder(inventory_path(inventory))
    try:
        found = compare_results(named_result(a, results), named_result(b, results))
    except UserError as error:
        fail(error, UNUSABLE)
    if as_json:
        click.echo(json.dumps(comparison_json(found)))
    else:
        print_comparison(found, console())
    if not found.rows:
        sys.exit(FAILED)
