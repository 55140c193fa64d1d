"""`herd up`: make the hosts as planned."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import (
    FAILED,
    complete_rigs,
    counted,
    inventory_option,
    lock_wait_option,
    only_option,
    outlooks_or_exit,
    rigs_argument,
    roles_of,
    say,
    show_changes,
    show_left,
    usable_plans,
)
from llamaherd.cli.diff import read_saved_or_exit, require_saved_or_exit
from llamaherd.diagnostics.findings import InventoryError, Place, nearest

if TYPE_CHECKING:
    from llamaherd.inventory.schema import Rig
    from llamaherd.pipeline.diff import SavedDiff
    from llamaherd.pipeline.preview import Preview
    from llamaherd.plan import Plan

DISTURBING = frozenset({"restart", "stop", "remove", "reboot"})
"""What is done to something that is there, and may be in use."""


@dataclass(frozen=True)
class Wish:
    """What is to be made as planned, and how: all rigs, or some; by a saved diff, where there is one, from its file.

    `only` names instances and roles: nothing else of the rigs is changed.
    """

    inventory: Path | None
    rigs: tuple[str, ...]
    only: tuple[str, ...]
    canary: str | None
    most: int | None
    yes: bool
    retry: bool
    lock_wait: int
    verbosity: int
    saved: tuple[Path, SavedDiff] | None = None


@dataclass(frozen=True)
class Begun:
    """The rigs that a run changes, each with its plan; and why some of them could not be asked just now, by name.

    `changing`: those on which a look has found something to do.
    """

    planned: Mapping[str, tuple[Rig, Plan]]
    unreached: Mapping[str, str] = field(default_factory=dict)
    changing: frozenset[str] = frozenset()


@click.command()
@rigs_argument
@only_option
@click.option("--canary", metavar="RIG", shell_complete=complete_rigs, help="Change this rig first, and alone.")
@click.option("--waves", "most", type=click.IntRange(1, 1000), metavar="N", help="Change at most N rigs at a time.")
@click.option(
    "--plan",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Do what `herd diff --save FILE` has shown, without asking, if it is still so.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask before something restarts, reboots or is removed.")
@click.option("--retry", is_flag=True, help="Try again what was tried and taken back.")
@lock_wait_option
@click.option("-v", "--verbose", count=True, help="Show facts (-v), commands (-vv) and their output (-vvv).")
@inventory_option
@click.pass_obj
def up(
    inventory: Path | None,
    rigs: tuple[str, ...],
    only: tuple[str, ...],
    canary: str | None,
    most: int | None,
    file: Path | None,
    yes: bool,
    retry: bool,
    lock_wait: int,
    verbose: int,
) -> None:
    """Make the hosts as planned.

    `pyinfra inventory.py deploy.py` does the same. What will change is shown first, as by `herd diff`. On a terminal it
    asks once before something that is there restarts, stops, reboots or is removed. A second run changes nothing. A run
    that is interrupted loses nothing: run it again.

    One run at a time changes a host; another is waited for. A server whose new state does not answer is put back to
    what served before. The same is not tried again, but with `--retry`.

    With `--only`, it is an instance, such as `chat`, or a role, such as `power`, that is made as planned. An instance
    comes with all that it needs. What belongs to others stays as it is, whatever the inventory says of it.

    With `--canary` or `--waves`, rigs come one after another: the next ones only when those before are as planned.
    Without either, all rigs are changed at once, but for those that `fleet.yaml` has back each other up.

    With `--plan`, the rigs of a saved diff are made as planned, if inventory and hosts are as they were then.

    \b
    Examples:
      herd up                          the whole fleet
      herd up duo six                  two rigs
      herd up --yes                    without being asked
      herd up duo --only chat          one instance, with its engine and models
      herd up --only power             one role, on all rigs
      herd up --canary six             that rig first, then all others
      herd up --canary six --waves 2   that rig, then two at a time
      herd up --plan monday.json       what `herd diff --save monday.json` has shown
    """
    _make_so(_wished(Wish(inventory, rigs, only, canary, most, yes, retry, lock_wait, verbose), file))


def _make_so(wish: Wish) -> None:
    """Change what is not as planned; ends the program with 1 where not all of it becomes so."""
    if wish.verbosity and not wish.saved:
        begun = Begun(
            usable_plans(wish.inventory, wish.rigs, deploying=True, sound=_known(wish), only=wish.only, making=True)
        )
    else:
        begun = _with_something_to_do(wish)
    if wish.canary and begun.planned and wish.canary not in begun.planned:
        say(f"{wish.canary} is the canary, and as planned: the others follow", err=True)
    if begun.planned and not _carry_out(wish, begun):
        say("not every host is as planned; the reason is above, and `herd up` goes on from there", err=True)
        sys.exit(FAILED)


def _wished(wish: Wish, file: Path | None) -> Wish:
    """The same with what lies in the file; raises UsageError, or ends the program, where that makes no sense."""
    if file and wish.rigs:
        raise click.UsageError(f"{file} says which rigs are changed; leave out {' '.join(wish.rigs)}, or --plan")
    if file and wish.only:
        raise click.UsageError(f"{file} says what is changed; leave out --only {wish.only[0]}, or --plan")
    if file and wish.retry:
        raise click.UsageError(f"{file} was saved without --retry; leave that out, or --plan")
    if file:
        saved = read_saved_or_exit(file)
        wish = replace(wish, rigs=saved.names, only=saved.only or (), saved=(file, saved))
    if wish.canary and wish.rigs and wish.canary not in wish.rigs:
        which, known = f"in {file}" if file else "that are named", nearest(wish.canary, wish.rigs)
        raise click.UsageError(f"--canary {wish.canary}: that is none of the rigs {which}; {known}")
    return wish


def _known(wish: Wish) -> Callable[[Mapping[str, Rig]], None]:
    """Refuses a canary that is no rig, before any host is asked. Raises InventoryError."""
    from llamaherd.pipeline.load import inventory_path
    from llamaherd.pipeline.rules import UNKNOWN_RIG

    def check(rigs: Mapping[str, Rig]) -> None:
        if wish.canary and wish.canary not in rigs:
            place, way_out = Place(inventory_path(wish.inventory)), nearest(wish.canary, rigs)
            having = f" that has {' or '.join(wish.only)}" if wish.only else ""
            raise InventoryError([UNKNOWN_RIG.at(place, f"--canary: there is no rig `{wish.canary}`{having}", way_out)])

    return check


def _with_something_to_do(wish: Wish) -> Begun:
    """The rigs that are not as planned; what they are is said. Ends the program where a saved diff holds no more."""
    from llamaherd.pipeline.history import query_causes

    planned, found = outlooks_or_exit(
        wish.inventory, wish.rigs, retry=wish.retry, sound=_known(wish), only=wish.only, making=True
    )
    if wish.saved:
        require_saved_or_exit(*wish.saved, planned, found)
    causes = query_causes(planned, found, roles_of(wish.inventory))
    for name, each in found.items():
        for note in each.notes:
            say(f"{name}: {note}", err=True)
        if each.as_planned:
            say(f"{name}: as planned, nothing to do")
        elif each.changes:
            show_changes(name, each, causes.get(name, ()))
        show_left(name, each)
    disturbing = [change for each in found.values() for change in each.changes if change.action in DISTURBING]
    answered = wish.yes or wish.saved or not (sys.stdin.isatty() and sys.stderr.isatty())
    if disturbing and not answered and not click.confirm("Go on?", err=True):
        say("nothing was changed", err=True)
        sys.exit(FAILED)
    left = {name: each for name, each in planned.items() if not found[name].as_planned}
    changing = frozenset(name for name in left if found[name].changes)
    return Begun(left, {name: found[name].unreached for name in left}, changing)


def _carry_out(wish: Wish, begun: Begun) -> bool:
    """Change the rigs, wave by wave; whether all are as planned."""
    from llamaherd.deploy.hosts import RunOptions
    from llamaherd.deploy.run import deploy
    from llamaherd.pipeline.fleet_files import backing_up, survey_fleet_file
    from llamaherd.pipeline.load import inventory_path
    from llamaherd.pipeline.waves import Pace, halt, waves

    if not sys.stderr.isatty():
        os.environ.setdefault("PYINFRA_PROGRESS", "off")  # its spinner fills a log with escape codes
    asked = RunOptions(begun.changing, retry=wish.retry, lock_wait=wish.lock_wait)
    path = inventory_path(wish.inventory)
    own = survey_fleet_file(path if path.is_dir() else path.parent).declared
    apart = backing_up(own, {name: rig for name, (rig, _) in begun.planned.items()})
    steps = waves(tuple(begun.planned), Pace(wish.canary, wish.most), apart)
    failed: tuple[str, ...] = ()
    for wave in steps:
        if wave.of > 1:
            say(f"--> {wave}", err=True)
        planned = {name: begun.planned[name] for name in wave.rigs}
        failed = deploy(planned, path, wish.verbosity, begun.unreached, asked)
        unplanned = () if failed or wave.last else _unplanned(wish, planned)
        if halted := halt(steps, wave, failed, unplanned):
            say(str(halted), err=True)
            return False
    return not failed


def _unplanned(wish: Wish, planned: Mapping[str, tuple[Rig, Plan]]) -> tuple[str, ...]:
    """Which rigs of a wave are not as planned though none failed; what they lack is said."""
    from llamaherd.deploy.proposals import proposed_changes
    from llamaherd.pipeline.inspection import program_for
    from llamaherd.pipeline.load import inventory_path
    from llamaherd.pipeline.preview import Hosts

    say(f"--> Looking at {counted(len(planned), 'host')} again...", err=True)
    rigs = {name: rig for name, (rig, _) in planned.items()}
    roles = roles_of(wish.inventory)
    propose = partial(proposed_changes, inventory_path(wish.inventory))
    found = Hosts(rigs, program_for(roles), propose).outlooks(planned, roles, retry=wish.retry)
    for name, each in found.items():
        _show_left(name, each)
    return tuple(name for name, each in found.items() if not each.as_planned)


def _show_left(name: str, found: Preview) -> None:
    for sentence in (*found.problems, *filter(None, [found.unreached])):
        say(f"{name}: {sentence}", err=True)
    if found.changes:
        show_changes(name, found)
