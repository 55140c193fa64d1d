"""`herd up`: make the hosts as planned."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import FAILED, counted, inventory_option, rigs_argument, roles_of, say, usable_plans

if TYPE_CHECKING:
    from llamaherd.inventory.schema import Rig
    from llamaherd.plan import Plan
    from llamaherd.role.role import Role


@click.command()
@rigs_argument
@click.option("-v", "--verbose", count=True, help="Show facts (-v), commands (-vv) and their output (-vvv).")
@inventory_option
@click.pass_obj
def up(inventory: Path | None, rigs: tuple[str, ...], verbose: int) -> None:
    """Make the hosts as planned. The same run as `pyinfra inventory.py deploy.py`.

    A second run changes nothing. A run that is interrupted loses nothing: run it again.

    \b
    Examples:
      herd up            the whole fleet
      herd up duo six    two rigs
    """
    from llamaherd.pipeline.load import inventory_path

    planned = usable_plans(inventory, rigs, deploying=True)
    unreached = {} if verbose else _done_where_as_planned(planned, roles_of(inventory))
    if not planned:
        return
    from llamaherd.deploy.lean import load_pyinfra

    load_pyinfra()  # what is refused, or has nothing to do, needs none of it
    from llamaherd.deploy.deploying import deploy

    if not sys.stderr.isatty():
        os.environ.setdefault("PYINFRA_PROGRESS", "off")  # its spinner fills a log with escape codes
    if not deploy(planned, inventory_path(inventory), verbose, unreached):
        say("not every host is as planned; the reason is above, and `herd up` goes on from there", err=True)
        sys.exit(FAILED)


def _done_where_as_planned(planned: dict[str, tuple[Rig, Plan]], roles: Sequence[Role]) -> dict[str, str]:
    """Take away those rigs where there is nothing to do, and say so. Returns why others could not be asked."""
    from llamaherd.host.remote import RemoteError
    from llamaherd.pipeline.outlook_ask import ask_outlooks

    say(f"--> Looking at {counted(len(planned), 'host')}...", err=True)
    unreached = {}
    for name, found in ask_outlooks(planned, roles).items():
        if isinstance(found, RemoteError):
            unreached[name] = str(found)
        elif found.as_planned:
            del planned[name]
            for note in found.notes:
                say(f"{name}: {note}", err=True)
            say(f"{name}: as planned, nothing to do")
    return unreached
