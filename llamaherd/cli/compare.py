"""`herd compare`: two measurements beside each other."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from llamaherd.cli.common import UNUSABLE, inventory_option, json_option, say
from llamaherd.diagnostics.findings import UserError


@click.command()
@click.argument("a")
@click.argument("b")
@inventory_option
@json_option
@click.pass_obj
def compare(inventory: Path | None, a: str, b: str, as_json: bool) -> None:
    """Compare two measurements: what is different about them, then how much faster B is, with a verdict each.

    A and B are files: results of llamaherd, of llama-bench (-o json), of llama-sweep-bench (--output-format jsonl), of
    llama-benchy (--format json), or pages with a table of t/s. FILE:2 is the second result of a file that has several.
    RIG/INSTANCE is the newest result beside the inventory, RIG/INSTANCE:2 the one before it.

    A verdict is slower, same or faster where the whole interval of the ratio says so; else it is not known yet, and
    about how many more starts or runs would tell. Exit codes: 0 compared, whatever the verdict; 2 something cannot be
    read.

    \b
    Examples:
      herd compare monday.json friday.json
      herd compare duo/chat:2 duo/chat --json
    """
    from llamaherd.bench.compare import compare as compare_results
    from llamaherd.bench.naming import named_result
    from llamaherd.bench.show import as_json as comparison_json
    from llamaherd.bench.show import print_comparison
    from llamaherd.bench.store import results_folder
    from llamaherd.pipeline.load import inventory_path
    from llamaherd.store.show import console

    results = results_folder(inventory_path(inventory))
    try:
        found = compare_results(named_result(a, results), named_result(b, results))
    except UserError as error:
        say(str(error), err=True)
        sys.exit(UNUSABLE)
    if as_json:
        click.echo(json.dumps(comparison_json(found)))
    else:
        print_comparison(found, console())
