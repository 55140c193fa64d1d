"""`herd up`: make the hosts as planned."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import (
    FAILED,
    inventory_option,
    lock_wait_option,
    outlooks_or_exit,
    rigs_argument,
    roles_of,
    say,
    show_changes,
    usable_plans,
)

if TYPE_CHECKING:
    from llamaherd.inventory.schema import Rig
    from llamaherd.plan import Plan

DISTURBING = frozenset({"restart", "stop", "remove", "reboot"})
"""What is done to something that is there, and may be in use."""


@click.command()
@rigs_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask before something restarts, reboots or is removed.")
@click.option("--retry", is_flag=True, help="Try again what was tried and taken back.")
@lock_wait_option
@click.option("-v", "--verbose", count=True, help="Show facts (-v), commands (-vv) and their output (-vvv).")
@inventory_option
@click.pass_obj
def up(inventory: Path | None, rigs: tuple[str, ...], yes: bool, retry: bool, lock_wait: int, verbose: int) -> None:
    """Make the hosts as planned, as `pyinfra inventory.py deploy.py` does.

    What will change is shown first, as by `herd diff`. On a terminal it asks once before something that is there
    restarts, stops, reboots or is removed. A second run changes nothing. A run that is interrupted loses nothing: run
    it again.

    One run at a time changes a host; another is waited for. A server whose new state does not answer is put back to
    what served before. The same is not tried again, but with `--retry`.

    \b
    Examples:
      herd up            the whole fleet
      herd up duo six    two rigs
      herd up --yes      without being asked
    """
    from llamaherd.pipeline.load import inventory_path

    unreached: dict[str, str] = {}
    if verbose:
        planned = usable_plans(inventory, rigs, deploying=True)
    else:
        planned, unreached = _with_something_to_do(inventory, rigs, yes=yes, retry=retry)
    if not planned:
        return
    from llamaherd.deploy.lean import load_pyinfra

    load_pyinfra()  # what is refused, or has nothing to do, needs none of it
    from llamaherd.deploy.deploying import deploy
    from llamaherd.deploy.hosts import Asked

    if not sys.stderr.isatty():
        os.environ.setdefault("PYINFRA_PROGRESS", "off")  # its spinner fills a log with escape codes
    if deploy(planned, inventory_path(inventory), verbose, unreached, Asked(retry=retry, lock_wait=lock_wait)):
        say("not every host is as planned; the reason is above, and `herd up` goes on from there", err=True)
        sys.exit(FAILED)


def _with_something_to_do(
    inventory: Path | None, rigs: tuple[str, ...], *, yes: bool, retry: bool
) -> tuple[dict[str, tuple[Rig, Plan]], dict[str, str]]:
    """The rigs that are not as planned; what they are is said. And why rigs could not be asked, by name."""
    from llamaherd.pipeline.history_ask import ask_causes

    planned, found = outlooks_or_exit(inventory, rigs, retry=retry)
    causes = ask_causes(planned, found, roles_of(inventory))
    for name, each in found.items():
        for note in each.notes:
            say(f"{name}: {note}", err=True)
        if each.as_planned:
            say(f"{name}: as planned, nothing to do")
        elif each.changes:
            show_changes(name, each, causes.get(name, ()))
    disturbing = [change for each in found.values() for change in each.changes if change.action in DISTURBING]
    asked = disturbing and not yes and sys.stdin.isatty() and sys.stderr.isatty()
    if asked and not click.confirm("Go on?", err=True):
        say("nothing was changed", err=True)
        sys.exit(FAILED)
    left = {name: each for name, each in planned.items() if not found[name].as_planned}
    return left, {name: found[name].unreached for name in left}
