"""`herd compare`: compare two measurements, or measure both servers now until their differences are conclusive."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import click

from llamaherd.cli.common import (
    FAILED,
    UNUSABLE,
    confirm_or_exit,
    echo,
    exit_on_error,
    inventory_option,
    json_option,
    lock_wait_option,
    measuring_or_exit,
    print_findings,
    read_or_exit,
    report,
    yes_option,
)
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.cli.rigs import roles_or_exit
from llamaherd.cli.run_screen import TRIAL_ROLES, install_for_trial
from llamaherd.cli.targets import complete_results
from llamaherd.deploy.origin import origin
from llamaherd.diagnostics.findings import UserError
from llamaherd.fleet.drain import drained
from llamaherd.host.remote import Remote
from llamaherd.inventory.exact_edits import parse_setting
from llamaherd.measure.results.comparison import Comparison, compare_results
from llamaherd.measure.results.comparison_table import comparison_json, print_comparison
from llamaherd.measure.results.lookup import named_result
from llamaherd.measure.results.store import results_folder
from llamaherd.measure.trials.pair import (
    TRIAL_CELLS,
    Ended,
    JournalPair,
    Pair,
    begin_results,
    changed_instance,
    missing_for_trial,
    plan_pair,
    run_blocks,
    to_install,
    trial_conditions,
)
from llamaherd.measure.trials.trial import Trial, locked_host, read_keys
from llamaherd.pipeline.inspection import inspect_host
from llamaherd.pipeline.load import inventory_path, plans
from llamaherd.store.show import console
from llamaherd.text.numbers import parse_duration, show_seconds, utc_stamp

_LEAST, _MOST = 30, 6 * 3600


def parse_budget(_context: click.Context, _parameter: click.Parameter, word: str | None) -> int | None:
    """Return the seconds of `90s`, `20m` or `1h`; None without the option."""
    if word is None:
        return None
    with suppress(ValueError):
        seconds = parse_duration(word)
        if _LEAST <= seconds <= _MOST:
            return seconds
    raise click.BadParameter("write a time from 30s to 6h, such as 20m")


def parse_cells(_context: click.Context, _parameter: click.Parameter, word: str) -> tuple[str, ...]:
    """Return the workloads of `code,prefill`."""
    names = tuple(each.strip() for each in word.split(","))
    if unknown := [each for each in names if each not in TRIAL_CELLS]:
        raise click.BadParameter(f"there is no `{unknown[0]}`; there are {', '.join(TRIAL_CELLS)}")
    return names


@dataclass(frozen=True)
class CompareOptions:
    """The options of `herd compare`: two results `a` and `b`, or with `running` two servers to measure."""

    inventory: Path | None
    a: str
    b: str | None
    running: bool
    settings: tuple[str, ...]
    budget: int
    cells: tuple[str, ...]
    beside: bool
    yes: bool
    lock_wait: int
    as_json: bool

    @property
    def path(self) -> Path:
        """The path of the inventory."""
        return inventory_path(self.inventory)


@click.command()
@click.argument("a", shell_complete=complete_results)
@click.argument("b", required=False, shell_complete=complete_results)
@click.option("--run", "running", is_flag=True, help="Measure both now: RIG/INSTANCE, and another one or --with.")
@click.option("--with", "settings", metavar="KEY=VALUE", multiple=True, help="A setting of B that differs, as in YAML.")
@click.option(
    "--budget", metavar="TIME", default="20m", show_default=True, callback=parse_budget, help="The longest duration."
)
@click.option(
    "--cells",
    metavar="NAMES",
    default="code,prose,prefill",
    show_default=True,
    callback=parse_cells,
    help="The workloads; also copy-edit, extract and reasoning.",
)
@click.option("--beside", is_flag=True, help="Do not stop the current server, if there is memory for both.")
@yes_option("Do not prompt.")
@lock_wait_option
@inventory_option
@json_option
@click.pass_obj
def compare(inventory: Path | None, /, **options: Any) -> None:
    """Compare two measurements, with a verdict on each speed.

    The differences in configuration come first, then how much faster B is.

    A and B are files: results of llamaherd, of llama-bench (-o json), of llama-sweep-bench (--output-format jsonl), of
    llama-benchy (--format json), or pages with a table of t/s. FILE:2 is the second result of a file that has several.
    RIG/INSTANCE is the newest result in `results/`, RIG/INSTANCE:2 the one before it.

    With --run, both servers are measured now, in blocks, until each verdict is conclusive or the budget is spent. A is
    an instance as declared. B is the same instance with other settings, or another instance of its rig. Each runs as a
    unit of its own, and restarts for each block. The declared server is stopped meanwhile. Its host starts it again,
    also if the run is interrupted. Gateways that have other servers of the model send it no new requests.

    An engine or a model that only B needs is installed first, and stays until `herd prune`.

    A verdict is slower, same or faster if the whole interval of the ratio supports it. Otherwise it is inconclusive,
    with the number of further restarts or runs that would decide it.

    Exit codes: 0 compared, whatever the verdict; 1 not measured, or no measurement under the same conditions in both;
    2 a file cannot be read.

    \b
    Examples:
      herd compare monday.json friday.json
      herd compare duo/chat:2 duo/chat --json
      herd compare --run duo/chat --with batch=1024
      herd compare --run duo/chat --with draft.mtp=2 --cells code --budget 10m
      herd compare --run duo/chat duo/coder --yes
      herd compare --run duo/chat --with engine=prebuilt
    """
    run = CompareOptions(inventory, **options)
    if run.running:
        _measure_both(run)
    elif run.b is None:
        raise click.UsageError("Missing argument 'B'.")
    elif run.settings or run.beside:
        raise click.UsageError("--with and --beside need --run.")
    else:
        results = results_folder(run.path)
        with exit_on_error(UNUSABLE):
            found = compare_results(named_result(run.a, results), named_result(run.b, results))
        _print_comparison(found, {}, run)


def _measure_both(run: CompareOptions) -> None:
    """Measure both servers and print the comparison. Print errors and end the program if that fails."""
    with exit_on_error(UNUSABLE):
        two = _plan_pair(run)
    with measuring_or_exit():
        missing = _to_install(two, run)
        _confirm(two, run, missing)
        if missing:
            _install(two, run)
        pair, ended = _measure(two, run)
    if ended == "spent":
        echo("the budget is spent, and some verdicts are inconclusive", err=True)
    ended_at = utc_stamp(datetime.now(UTC))
    a, b = (pair.journals[name].result.model_copy(update={"ended": ended_at}) for name in ("A", "B"))
    _print_comparison(compare_results(a, b), {"ended": ended}, run)


def _plan_pair(run: CompareOptions) -> Pair:
    settings = read_or_exit(lambda: [parse_setting(word) for word in run.settings])
    roles = roles_or_exit(run.inventory)
    two = read_or_exit(lambda: plan_pair(run.path, roles, run.a, run.b, settings, print_findings))
    if run.beside and any(each.instance.memory is None or each.instance.memory.doubts for each in (two.a, two.b)):
        raise UserError("it is uncertain whether both servers fit into memory", "leave out `--beside`")
    return two


def _to_install(two: Pair, run: CompareOptions) -> tuple[str, ...]:
    """Return what B needs and the host lacks, such as another engine. Raise UserError if more is missing."""
    state = inspect_host(Remote(two.connect), two.needed, roles_or_exit(run.inventory))
    missing = to_install(two, state)
    # An installation prints lines of its own.
    if missing and not run.as_json:
        return missing
    if missing:
        help_ = "run it once without `--json`, which installs it"
        raise UserError(f"the host has no {', no '.join(missing)}, which {two.b.title} needs", help_)
    if lack := missing_for_trial(two, state):
        raise UserError(lack, "run `herd up` to install it")
    return ()


def _install(two: Pair, run: CompareOptions) -> None:
    """Install what B needs on the host. Raise UserError."""
    settings = [parse_setting(word) for word in run.settings]
    edit = changed_instance(two.rig, two.b.instance.name, settings)
    roles = roles_or_exit(run.inventory)
    part = plans(run.path, roles, (two.rig,), deploying=True, only=TRIAL_ROLES, edit=edit)
    install_for_trial(part, run.path, run.lock_wait)
    if _to_install(two, run):
        raise UserError("the host still lacks what B needs", "run it again")


def _confirm(two: Pair, run: CompareOptions, missing: Sequence[str]) -> None:
    """Print what is installed and measured and how long that takes, and ask on a terminal."""
    echo(f"A is {two.a.title}, B is {two.b.title}", err=True)
    if missing:
        echo(f"installs {', '.join(missing)}, which B needs; no server changes", err=True)
    limit = f"for at most {show_seconds(run.budget)} and the running block"
    echo(f"{', '.join(run.cells)}: in blocks until each verdict is conclusive, {limit}", err=True)
    names = " and ".join(each.service for each in two.declared)
    does = "keeps running" if run.beside else "is stopped meanwhile, and starts again whatever ends this"
    echo(f"{names} {does}", err=True)
    confirm_or_exit(run.yes, "nothing was measured")


def _measure(two: Pair, run: CompareOptions) -> tuple[JournalPair, Ended]:
    user, servers = origin(run.path).author, (two.a, two.b)
    stops = () if run.beside else two.declared
    drain = partial(drained, run.path, two.plan_a, stops, report)
    conditions = trial_conditions(run.cells, two.context)
    with locked_host(two.rig, two.connect, user, report, run.lock_wait):
        results = begin_results(two, conditions, token_hex(6), datetime.now(UTC))
        with closing(JournalPair(results_folder(run.path), *results)) as pair:
            if pair.resumed:
                report("resuming the previous measurement")
            keys = read_keys(servers)
            trial = Trial(two.rig, two.connect, servers, stops, run.budget, user, report, drain, keys)
            ended = run_blocks(trial, pair, conditions)
            for file in pair.finish(utc_stamp(datetime.now(UTC))):
                report(f"saved to {file}")
    return pair, ended


def _print_comparison(found: Comparison, more: Mapping[str, str], run: CompareOptions) -> None:
    """Print a comparison. End the program with 1 if nothing was measured under the same conditions in both."""
    if run.as_json:
        print_envelope(Envelope(bool(found.rows), data={**more, **comparison_json(found)}))
    else:
        print_comparison(found, console())
    if not found.rows:
        sys.exit(FAILED)
