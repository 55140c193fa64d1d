"""`herd compare --run`: both servers measured in blocks, until it is known how they differ."""

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
    measuring_or_exit,
    roles_of,
    say,
    show,
    usable_or_exit,
)
from llamaherd.diagnostics.findings import UserError
from llamaherd.text.units import utc_stamp

if TYPE_CHECKING:
    from llamaherd.bench.arms.blocks import BlockDone, Ended
    from llamaherd.bench.arms.planned import Two
    from llamaherd.bench.arms.results import Pair
    from llamaherd.bench.arms.units import ArmName
    from llamaherd.bench.results.result import Condition

_LEAST, _MOST = 30, 6 * 3600


@dataclass(frozen=True)
class Wanted:
    """What was asked for beside the two names."""

    settings: tuple[str, ...]
    cells: tuple[str, ...]
    budget: int
    beside: bool
    yes: bool
    lock_wait: int
    as_json: bool


def budget_of(_context: click.Context, _parameter: click.Parameter, word: str) -> int:
    """Seconds of `90s`, `20m`, `1h`."""
    from llamaherd.text.units import parse_duration

    with suppress(ValueError):
        seconds = parse_duration(word)
        if _LEAST <= seconds <= _MOST:
            return seconds
    raise click.BadParameter("write a time from 30s to 6h, such as 20m")


def cells_of(_context: click.Context, _parameter: click.Parameter, word: str) -> tuple[str, ...]:
    """The cells of `code,prefill`."""
    from llamaherd.bench.arms.cells import CELLS

    names = tuple(each.strip() for each in word.split(","))
    if unknown := [each for each in names if each not in CELLS]:
        raise click.BadParameter(f"there is no `{unknown[0]}`; there are {', '.join(CELLS)}")
    return names


def run_comparison(inventory: Path | None, a: str, b: str | None, wanted: Wanted) -> None:
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


def _two(path: Path, inventory: Path | None, a: str, b: str | None, wanted: Wanted) -> Two:
    from llamaherd.bench.arms.planned import two_arms
    from llamaherd.inventory.settings import parse_setting

    settings = usable_or_exit(lambda: [parse_setting(word) for word in wanted.settings])
    roles = roles_of(inventory)
    two = usable_or_exit(lambda: two_arms(path, roles, a, b, settings, show))
    if wanted.beside and any(each.instance.memory is None or each.instance.memory.doubts for each in (two.a, two.b)):
        raise UserError("it is not certain what both take of the host", "leave out `--beside`")
    return two


def _require_there(two: Two, inventory: Path | None) -> None:
    from llamaherd.bench.arms.planned import not_there
    from llamaherd.host.remote import Remote
    from llamaherd.pipeline.inspect import inspect_host

    state = inspect_host(Remote(two.rig.connect), two.asked, roles_of(inventory))
    if lack := not_there(two, state):
        raise UserError(lack, "`herd up` brings what the inventory declares")


def _ask_first(two: Two, wanted: Wanted) -> None:
    """Say what will be done, and what it costs; and ask, where somebody is there to answer."""
    from llamaherd.text.units import show_seconds

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


def _measured(path: Path, two: Two, wanted: Wanted) -> tuple[Pair, Ended]:
    from llamaherd.bench.arms.cells import conditions
    from llamaherd.deploy.origin import origin
    from llamaherd.host.turn import Turn

    asked = conditions(wanted.cells, two.context)
    who = origin(path).who
    turn = Turn(two.rig.rig, two.rig.connect, who)
    turn.take(lambda line: say(line, err=True), wanted.lock_wait)
    try:
        pair = _pair(path, two, asked)
        with closing(pair):
            ended = _blocks(path, two, wanted, pair, asked, who)
            _finish(pair)
    finally:
        turn.give_back()
    return pair, ended


def _pair(path: Path, two: Two, asked: Sequence[Condition]) -> Pair:
    """Journals of a second each: their names tell when they began. The newer one is that of what is declared."""
    from llamaherd.bench.arms.results import Pair, arm_result
    from llamaherd.bench.results.store import results_folder

    now, session = datetime.now(UTC), token_hex(6)
    pair = Pair(
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


def _blocks(path: Path, two: Two, wanted: Wanted, pair: Pair, asked: Sequence[Condition], who: str) -> Ended:
    from llamaherd.bench.arms.blocks import Blocks
    from llamaherd.bench.arms.host import ArmsHost
    from llamaherd.bench.arms.units import arms_input
    from llamaherd.gateway.aside import measured_aside

    stops = () if wanted.beside else two.declared
    given = arms_input((two.a, two.b), stops, wanted.budget, who)
    arms = (two.a, two.b)
    aside = measured_aside(path, two.plan_a, stops, lambda line: say(line, err=True))
    host = ArmsHost(two.rig.connect, given, {each.name: each for each in arms}, _keys(two), pair.session, aside)
    try:
        with host:
            return Blocks(host, pair.journals, asked, pair.session, wanted.budget, _tell_block).measured()
    finally:
        if stops:
            _tell_back(two, host.back)


def _keys(two: Two) -> dict[ArmName, str | None]:
    """What each asks its clients for. Raises UserError where it cannot be read."""
    from llamaherd.inventory.keys import UnreadableKeyError, read_key

    secrets = {each.name: each.instance.endpoint.key for each in (two.a, two.b)}
    try:
        return {name: read_key(secret) if secret else None for name, secret in secrets.items()}
    except UnreadableKeyError as error:
        raise UserError(str(error), "put the key there, or name its place in the inventory") from None


def _tell_back(two: Two, seconds: float | None) -> None:
    names = " and ".join(each.service for each in two.declared)
    if seconds is None:
        say(f"the host brings {names} back by itself; `herd verify {two.rig.rig}` says whether it has", err=True)
    else:
        say(f"{names} is as before, after {seconds:.1f} s", err=True)


def _tell_block(done: BlockDone) -> None:
    from llamaherd.text.units import show_seconds

    known = "all is known" if not done.left else f"{done.left} not known yet"
    say(f"block {done.number + 1}, {' then '.join(done.order)}: {show_seconds(done.seconds)}; {known}", err=True)


def _finish(pair: Pair) -> None:
    for path in pair.finish(utc_stamp(datetime.now(UTC))):
        say(f"kept in {path}", err=True)


def _show(pair: Pair, ended: Ended, wanted: Wanted) -> None:
    from llamaherd.bench.comparing.compare import compare
    from llamaherd.bench.comparing.show import as_json, print_comparison
    from llamaherd.store.show import console

    if ended == "spent":
        say("the budget is spent, and not everything is known", err=True)
    ended_at = utc_stamp(datetime.now(UTC))
    a, b = (pair.journals[name].result.model_copy(update={"ended": ended_at}) for name in ("A", "B"))
    found = compare(a, b)
    if wanted.as_json:
        click.echo(json.dumps({"ended": ended, **as_json(found)}))
    else:
        print_comparison(found, console())
    if not found.rows:
        sys.exit(FAILED)
