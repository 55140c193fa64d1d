"""`herd compare`: compare two measurements, or measure both servers now until their differences are conclusive."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
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
    from llamaherd.measure.results.result import Condition
    from llamaherd.measure.trials.blocks import BlockDone, Ended
    from llamaherd.measure.trials.pair import JournalPair, PlannedPair
    from llamaherd.measure.trials.units import ArmName


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


def _two(path: Path, inventory: Path | None, a: str, b: str | None, wanted: ComparisonOptions) -> PlannedPair:
    from llamaherd.inventory.settings import parse_setting
    from llamaherd.measure.trials.pair import plan_pair

    settings = usable_or_exit(lambda: [parse_setting(word) for word in wanted.settings])
    roles = roles_of(inventory)
    two = usable_or_exit(lambda: plan_pair(path, roles, a, b, settings, show))
    if wanted.beside and any(each.instance.memory is None or each.instance.memory.doubts for each in (two.a, two.b)):
        raise UserError("it is not certain what both take of the host", "leave out `--beside`")
    return two


def _require_there(two: PlannedPair, inventory: Path | None) -> None:
    from llamaherd.host.remote import Remote
    from llamaherd.measure.trials.pair import missing_for_trial
    from llamaherd.pipeline.inspection import inspect_host

    state = inspect_host(Remote(two.rig.connect), two.asked, roles_of(inventory))
    if lack := missing_for_trial(two, state):
        raise UserError(lack, "`herd up` brings what the inventory declares")


def _ask_first(two: PlannedPair, wanted: ComparisonOptions) -> None:
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


def _measured(path: Path, two: PlannedPair, wanted: ComparisonOptions) -> tuple[JournalPair, Ended]:
    from llamaherd.deploy.origin import origin
    from llamaherd.host.host_lock import HostLock
    from llamaherd.measure.trials.blocks import trial_conditions

    asked = trial_conditions(wanted.cells, two.context)
    who = origin(path).who
    turn = HostLock(two.rig.rig, two.rig.connect, who)
    turn.take(lambda line: say(line, err=True), wanted.lock_wait)
    try:
        pair = _pair(path, two, asked)
        with closing(pair):
            ended = _blocks(path, two, wanted, pair, asked, who)
            _finish(pair)
    finally:
        turn.give_back()
    return pair, ended


def _pair(path: Path, two: PlannedPair, asked: Sequence[Condition]) -> JournalPair:
    """Journals of a second each: their names tell when they began. The newer one is that of what is declared."""
    from llamaherd.measure.results.store import results_folder
    from llamaherd.measure.trials.pair import JournalPair, arm_result

    now, session = datetime.now(UTC), token_hex(6)
    pair = JournalPair(
        results_folder(path),
        arm_result(two.rig.rig, two.plan_a, two.a, tuple(asked), session=session, began=utc_stamp(now), declared=True),
        arm_result(
            two.rig.rig,
            two.plan_b,
            two.b,
            tuple(asked),
            session=session,
            began=utc_stamp(now - timedelta(seconds=1)),
            declared=not two.changed,
        ),
    )
    if pair.resumed:
        say("going on with what was measured before", err=True)
    return pair


def _blocks(
    path: Path, two: PlannedPair, wanted: ComparisonOptions, pair: JournalPair, asked: Sequence[Condition], who: str
) -> Ended:
    from llamaherd.fleet.drain import drained
    from llamaherd.measure.trials.blocks import Blocks
    from llamaherd.measure.trials.host import ArmsHost
    from llamaherd.measure.trials.units import arms_input

    stops = () if wanted.beside else two.declared
    given = arms_input((two.a, two.b), stops, wanted.budget, who)
    arms = (two.a, two.b)
    aside = drained(path, two.plan_a, stops, lambda line: say(line, err=True))
    host = ArmsHost(two.rig.connect, given, {each.name: each for each in arms}, _keys(two), pair.session, aside)
    try:
        with host:
            return Blocks(host, pair.journals, asked, pair.session, wanted.budget, _tell_block).measured()
    finally:
        if stops:
            _tell_back(two, host.back)


def _keys(two: PlannedPair) -> dict[ArmName, str | None]:
    """What each asks its clients for. Raises UserError where it cannot be read."""
    from llamaherd.inventory.api_keys import UnreadableKeyError, read_key

    secrets = {each.name: each.instance.endpoint.key for each in (two.a, two.b)}
    try:
        return {name: read_key(secret) if secret else None for name, secret in secrets.items()}
    except UnreadableKeyError as error:
        raise UserError(str(error), "put the key there, or name its place in the inventory") from None


def _tell_back(two: PlannedPair, seconds: float | None) -> None:
    names = " and ".join(each.service for each in two.declared)
    if seconds is None:
        say(f"the host brings {names} back by itself; `herd verify {two.rig.rig}` says whether it has", err=True)
    else:
        say(f"{names} is as before, after {seconds:.1f} s", err=True)


def _tell_block(done: BlockDone) -> None:
    from llamaherd.text.numbers import show_seconds

    known = "all is known" if not done.left else f"{done.left} not known yet"
    say(f"block {done.number + 1}, {' then '.join(done.order)}: {show_seconds(done.seconds)}; {known}", err=True)


def _finish(pair: JournalPair) -> None:
    for path in pair.finish(utc_stamp(datetime.now(UTC))):
        say(f"kept in {path}", err=True)


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
