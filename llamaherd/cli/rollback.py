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
from llamaherd.diagnostics.findings import UserError

if TYPE_CHECKING:
    from llamaherd.inventory.schema import Rig
    from llamaherd.pipeline.outlook import Outlook
    from llamaherd.plan import Plan
    from llamaherd.role.role import Role


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
    from llamaherd.pipeline.history_ask import ask_past
    from llamaherd.pipeline.load import inventory_path
    from llamaherd.pipeline.load import rigs as declared
    from llamaherd.pipeline.rollback import NEWEST, plan_of, to_release

    path = inventory_path(inventory)
    one = usable_or_exit(lambda: declared(path, (rig,))).rigs[rig]
    roles = roles_of(inventory)
    try:
        past = ask_past(one, NEWEST, number)
        chosen = to_release(past, rig, instance, number)
        plan = plan_of(past, chosen, instance)
        found = _looked(one, plan, roles, chosen)
    except RemoteError as error:
        say(f"{rig}: {error}", err=True)
        sys.exit(FAILED)
    if found.problems:
        for problem in found.problems:
            say(f"{rig}: {problem}", err=True)
        sys.exit(FAILED)
    if not found.changes:
        say(f"{rig}: as in release {chosen}, nothing to do")
        return
    say(f"{rig}: back to release {chosen}")
    show_changes(rig, found)
    if not yes and sys.stdin.isatty() and sys.stderr.isatty() and not click.confirm("Go on?", err=True):
        say("nothing was changed", err=True)
        sys.exit(FAILED)
    _carry_out(path, one, plan, chosen, lock_wait)
    say(f"{rig}: the inventory is as it was, and the next `herd up` goes to what it declares", err=True)


def _looked(rig: Rig, plan: Plan, roles: tuple[Role, ...], number: int) -> Outlook:
    """What going back would do. Raises RemoteError, and UserError where what the release needs is gone."""
    from llamaherd.host.protocol import ask_host
    from llamaherd.host.remote import Remote
    from llamaherd.pipeline.inspect import inspect_script, parse_state
    from llamaherd.pipeline.outlook import outlook
    from llamaherd.pipeline.preflight_ask import LOOK_SECONDS
    from llamaherd.pipeline.rollback import ROLES, lacks

    seen = parse_state(ask_host(Remote(rig.connect), inspect_script(plan, roles), LOOK_SECONDS), roles)
    if gone := list(lacks(plan, seen)):
        raise UserError(
            f"release {number} cannot come back: the host has no {', no '.join(gone)} any more",
            "declare what you want in the inventory, and `herd up` brings what it needs",
        )
    taking_part = tuple(role for role in roles if role.name in ROLES)
    return outlook(plan, taking_part, seen, rig.connect, {}, retry=True)


def _carry_out(path: Path, rig: Rig, plan: Plan, number: int, lock_wait: int) -> None:
    from llamaherd.deploy.lean import load_pyinfra
    from llamaherd.pipeline.rollback import ROLES

    load_pyinfra()
    from llamaherd.deploy.deploying import deploy
    from llamaherd.deploy.hosts import Asked

    if not sys.stderr.isatty():
        os.environ.setdefault("PYINFRA_PROGRESS", "off")  # its spinner fills a log with escape codes
    asked = Asked(retry=True, roles=ROLES, back_to=number, lock_wait=lock_wait)
    if deploy({plan.rig: (rig, plan)}, path, 0, {}, asked):
        say("the host is not as it was; the reason is above", err=True)
        sys.exit(FAILED)
