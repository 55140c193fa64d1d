"""`herd rollback`: a host's servers as they were in an earlier release."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import (
    FAILED,
    complete_rigs,
    inventory_option,
    lock_wait_option,
    roles_of,
    say,
    show_changes,
    usable_or_exit,
)

if TYPE_CHECKING:
    from llamaherd.inventory.schema import Rig
    from llamaherd.pipeline.rollback_ask import WayBack


@click.command()
@click.argument("rig", shell_complete=complete_rigs)
@click.argument("instance", required=False)
@click.option("--to", "number", type=click.IntRange(1), metavar="N", help="The release; default: the one before.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask first.")
@lock_wait_option
@inventory_option
@click.pass_obj
def rollback(
    inventory: Path | None, rig: str, instance: str | None, number: int | None, yes: bool, lock_wait: int
) -> None:
    """Bring back the servers of an earlier release, or one of them.

    It needs no network but the way to the host, no compiler and no earlier inventory: builds, models and images of that
    release must still be there. Keys stay as they are. The inventory is not changed: the next `herd up` goes to what it
    declares. A rollback is a release of its own.

    \b
    Examples:
      herd rollback duo             as before the last change
      herd rollback duo coder       one instance
      herd rollback duo --to 12     a release that `herd history` lists
    """
    from llamaherd.host.remote import RemoteError
    from llamaherd.pipeline.load import inventory_path
    from llamaherd.pipeline.load import rigs as declared
    from llamaherd.pipeline.rollback_ask import ask_way_back

    path = inventory_path(inventory)
    one = usable_or_exit(lambda: declared(path, (rig,))).rigs[rig]
    try:
        back = ask_way_back(one, roles_of(inventory), instance, number)
    except RemoteError as error:
        say(f"{rig}: {error}", err=True)
        sys.exit(FAILED)
    if not _wanted(rig, back, yes):
        return
    _carry_out(path, one, back, lock_wait)
    say(f"{rig}: the inventory is as it was, and the next `herd up` goes to what it declares", err=True)


def _wanted(rig: str, back: WayBack, yes: bool) -> bool:
    """Whether there is anything to do, which is said and asked about. Ends the program where it is not to be."""
    for problem in back.outlook.problems:
        say(f"{rig}: {problem}", err=True)
    if back.outlook.problems:
        sys.exit(FAILED)
    if not back.outlook.changes:
        say(f"{rig}: as in release {back.number}, nothing to do")
        return False
    say(f"{rig}: back to release {back.number}")
    show_changes(rig, back.outlook)
    if not yes and sys.stdin.isatty() and sys.stderr.isatty() and not click.confirm("Go on?", err=True):
        say("nothing was changed", err=True)
        sys.exit(FAILED)
    return True


def _carry_out(path: Path, rig: Rig, back: WayBack, lock_wait: int) -> None:
    from llamaherd.deploy.lean import load_pyinfra
    from llamaherd.pipeline.rollback import ROLES

    load_pyinfra()
    from llamaherd.deploy.deploying import deploy
    from llamaherd.deploy.hosts import Asked

    if not sys.stderr.isatty():
        os.environ.setdefault("PYINFRA_PROGRESS", "off")  # its spinner fills a log with escape codes
    asked = Asked(changing=frozenset([rig.rig]), retry=True, roles=ROLES, back_to=back.number, lock_wait=lock_wait)
    if deploy({rig.rig: (rig, back.plan)}, path, 0, {}, asked):
        say("the host is not as it was; the reason is above", err=True)
        sys.exit(FAILED)
