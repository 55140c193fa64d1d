"""`herd rollback`: a host's servers as they were in an earlier release."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import (
    FAILED,
    instance_argument,
    inventory_option,
    lock_wait_option,
    rig_argument,
    roles_of,
    say,
    show_changes,
    usable_or_exit,
)

if TYPE_CHECKING:
    from llamaherd.host.host_lock import HostLock
    from llamaherd.inventory.schema import Rig
    from llamaherd.pipeline.history import PreparedRollback
    from llamaherd.role.role import Role


@click.command()
@rig_argument
@instance_argument
@click.option(
    "--to", "number", type=click.IntRange(1, 10**9), metavar="N", help="The release; default: the one before."
)
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
    from llamaherd.pipeline.load import inventory_path
    from llamaherd.pipeline.load import rigs as declared

    path = inventory_path(inventory)
    one = usable_or_exit(lambda: declared(path, (rig,))).rigs[rig]
    asks = not yes and sys.stdin.isatty() and sys.stderr.isatty()
    with _turn(one, path, asks) as turn:
        back = _way_back(one, roles_of(inventory), instance, number, turn)
        if not _wanted(rig, back, asks):
            return
        _carry_out(path, one, back, lock_wait, turn)
    say(f"{rig}: the inventory is as it was, and the next `herd up` goes to what it declares", err=True)


def _load_pyinfra() -> None:
    """Load pyinfra before the first connection opens: it replaces the functions that wait for connections."""
    import_module("pyinfra_cli")
    from llamaherd.deploy.hosts import end_on_signals

    end_on_signals()


@contextmanager
def _turn(rig: Rig, path: Path, asks: bool) -> Iterator[HostLock | None]:
    """A turn on the host, to be taken at once; none where a person is asked first, who may take a while."""
    _load_pyinfra()
    from llamaherd.deploy.origin import origin
    from llamaherd.host.host_lock import HostLock

    if asks:
        yield None
        return
    turn = HostLock(rig.rig, rig.connect, origin(path).who)
    try:
        yield turn
    finally:
        turn.give_back()


def _way_back(
    rig: Rig, roles: Sequence[Role], instance: str | None, number: int | None, turn: HostLock | None
) -> PreparedRollback:
    from llamaherd.host.remote import RemoteError
    from llamaherd.pipeline.history import prepare_rollback

    try:
        return prepare_rollback(rig, roles, instance, number, turn, monotonic)
    except RemoteError as error:
        say(f"{rig.rig}: {error}", err=True)
        sys.exit(FAILED)


def _wanted(rig: str, back: PreparedRollback, asks: bool) -> bool:
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
    if asks and not click.confirm("Go on?", err=True):
        say("nothing was changed", err=True)
        sys.exit(FAILED)
    return True


def _carry_out(path: Path, rig: Rig, back: PreparedRollback, lock_wait: int, turn: HostLock | None) -> None:
    from llamaherd.deploy.hosts import RunOptions
    from llamaherd.deploy.run import deploy
    from llamaherd.deploy.run_state import HeldLock
    from llamaherd.pipeline.history import ROLLBACK_ROLES

    if not sys.stderr.isatty():
        os.environ.setdefault("PYINFRA_PROGRESS", "off")  # its spinner fills a log with escape codes
    held = HeldLock(turn, back.seen, back.seen_at) if turn and back.seen_at is not None else None
    asked = RunOptions(frozenset([rig.rig]), True, ROLLBACK_ROLES, back.number, lock_wait, held)
    if deploy({rig.rig: (rig, back.plan)}, path, 0, {}, asked):
        say("the host is not as it was; the reason is above", err=True)
        sys.exit(FAILED)
