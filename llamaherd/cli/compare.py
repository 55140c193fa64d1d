"""`herd compare`: compare two measurements, or measure both servers now until their differences are conclusive."""

from __future__ import annotations

import json
import sys
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import (
    FAILED,
    UNUSABLE,
    fail,
    inventory_option,
    json_option,
    lock_wait_option,
    measuring_or_exit,
    roles_of,
    say,
    show,
    usable_or_exit,
)
from llamaherd.diagnostics.findings import UserError
from llamaherd.text.numbers import utc_stamp

if TYPE_CHECKING:
    from llamaherd.measure.trials.blocks import Ended
    from llamaherd.measure.trials.pair import JournalPair, Pair


_LEAST, _MOST = 30, 6 * 3600


@dataclass(frozen=True)
class ComparisonOptions:
    """What was asked for beside the two names."""

    settings: tuple[str, ...]
    cells: tuple[str, ...]
    budget: int
    beside: bool
    yes: bool
    lock_wait: int
    as_json: bool


def parse_budget(_context: click.Context, _parameter: click.Parameter, word: str) -> int:
    """Seconds of `90s`, `20m`, `1h`."""
    from llamaherd.text.numbers import parse_duration

    with suppress(ValueError):
        seconds = parse_duration(word)
        if _LEAST <= seconds <= _MOST:
            return seconds
    raise click.BadParameter("write a time from 30s to 6h, such as 20m")


def parse_cells(_context: click.Context, _parameter: click.Parameter, word: str) -> tuple[str, ...]:
    """The cells of `code,prefill`."""
    from llamaherd.measure.trials.blocks import TRIAL_CELLS

    names = tuple(each.strip() for each in word.split(","))
    if unknown := [each for each in names if each not in TRIAL_CELLS]:
        raise click.BadParameter(f"there is no `{unknown[0]}`; there are {', '.join(TRIAL_CELLS)}")
    return names


def run_comparison(inventory: Path | None, a: str, b: str | None, wanted: ComparisonOptions) -> None:
    """Measure both, and print what is known. Ends the program where it cannot."""
    from llamaherd.pipeline.load import inventory_path

    path = inventory_path(inventory)
    try:
        two = _two(path, inventory, a, b, wanted)
    except UserError as error:
        fail(error, UNUSABLE)
    with measuring_or_exit():
        _require_there(two, inventory)
        _ask_first(two, wanted)
        pair, ended = _measured(path, two, wanted)
    _show(pair, ended, wanted)


def _two(path: Path, inventory: Path | None, a: str, b: str | None, wanted: ComparisonOptions) -> Pair:
    from llamaherd.inventory.settings import parse_setting
    from llamaherd.measure.trials.pair import plan_pair

    settings = usable_or_exit(lambda: [parse_setting(word) for word in wanted.settings])
    roles = roles_of(inventory)
    two = usable_or_exit(lambda: plan_pair(path, roles, a, b, settings, show))
    if wanted.beside and any(each.instance.memory is None or each.instance.memory.doubts for each in (two.a, two.b)):
        raise UserError("it is not certain what both take of the host", "leave out `--beside`")
    return two


def _require_there(two: Pair, inventory: Path | None) -> None:
    from llamaherd.host.remote import Remote
    from llamaherd.measure.trials.pair import missing_for_trial
    from llamaherd.pipeline.inspection import inspect_host

    state = inspect_host(Remote(two.connect), two.needed, roles_of(inventory))
    if lack := missing_for_trial(two, state):
        raise UserError(lack, "`herd up` brings what the inventory declares")


def _ask_first(two: Pair, wanted: ComparisonOptions) -> None:
    """Say what will be done, and what it costs; and ask, where somebody is there to answer."""
    from llamaherd.text.numbers import show_seconds

    say(f"A is {two.a.title}, B is {two.b.title}", err=True)
    say(
        f"{', '.join(wanted.cells)}: in blocks until each has a verdict, for {show_seconds(wanted.budget)} at most, "
        "and the block that it ends in",
        err=True,
    )
    names = " and ".join(each.service for each in two.declared)
    does = "serves on" if wanted.beside else "is stopped meanwhile, and comes back whatever ends this"
    say(f"{names} {does}", err=True)
    if not wanted.yes and sys.stdin.isatty() and sys.stderr.isatty() and not click.confirm("Go on?", err=True):
        say("nothing was measured", err=True)
        sys.exit(FAILED)


def _measured(path: Path, two: Pair, wanted: ComparisonOptions) -> tuple[JournalPair, Ended]:
    from llamaherd.deploy.origin import origin
    from llamaherd.fleet.drain import drained
    from llamaherd.measure.results.store import results_folder
    from llamaherd.measure.trials.blocks import run_blocks, trial_conditions
    from llamaherd.measure.trials.pair import JournalPair, begin_results
    from llamaherd.measure.trials.trial import Trial, locked_host, read_keys

    who, servers = origin(path).who, (two.a, two.b)
    stops = () if wanted.beside else two.declared
    drain = partial(drained, path, two.plan_a, stops, _report)
    asked = trial_conditions(wanted.cells, two.context)
    with locked_host(two.rig, two.connect, who, _report, wanted.lock_wait):
        results = begin_results(two, asked, token_hex(6), datetime.now(UTC))
        with closing(JournalPair(results_folder(path), *results)) as pair:
            if pair.resumed:
                _report("going on with what was measured before")
            keys = read_keys(servers)
            trial = Trial(two.rig, two.connect, servers, stops, wanted.budget, who, _report, drain, keys)
            ended = run_blocks(trial, pair, asked)
            for file in pair.finish(utc_stamp(datetime.now(UTC))):
                _report(f"kept in {file}")
    return pair, ended


def _report(line: str) -> None:
    say(line, err=True)


def _show(pair: JournalPair, ended: Ended, wanted: ComparisonOptions) -> None:
    from llamaherd.measure.results.comparison import compare_results
    from llamaherd.measure.results.comparison_table import comparison_json, print_comparison
    from llamaherd.store.show import console

    if ended == "spent":
        say("the budget is spent, and not everything is known", err=True)
    ended_at = utc_stamp(datetime.now(UTC))
    a, b = (pair.journals[name].result.model_copy(update={"ended": ended_at}) for name in ("A", "B"))
    found = compare_results(a, b)
    if wanted.as_json:
        click.echo(json.dumps({"ended": ended, **comparison_json(found)}))
    else:
        print_comparison(found, console())
    if not found.rows:
        sys.exit(FAILED)


@click.command()
@click.argument("a")
@click.argument("b", required=False)
@click.option("--run", "running", is_flag=True, help="Measure both now: RIG/INSTANCE, and another one or --with.")
@click.option("--with", "settings", metavar="KEY=VALUE", multiple=True, help="What is otherwise about B, as in YAML.")
@click.option(
    "--budget",
    metavar="TIME",
    default="20m",
    show_default=True,
    callback=parse_budget,
    help="The longest that it takes.",
)
@click.option(
    "--cells",
    metavar="NAMES",
    default="code,prose,prefill",
    show_default=True,
    callback=parse_cells,
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
        run_comparison(inventory, a, b, ComparisonOptions(settings, cells, budget, beside, yes, lock_wait, as_json))
        return
    if settings or beside or b is None:
        raise click.UsageError("Missing argument 'B'." if b is None else "--with and --beside go with --run.")
    from llamaherd.measure.results.comparison import compare_results
    from llamaherd.measure.results.comparison_table import comparison_json, print_comparison
    from llamaherd.measure.results.lookup import named_result
    from llamaherd.measure.results.store import results_folder
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
