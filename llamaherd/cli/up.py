"""`herd up`: make the hosts as planned."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import FAILED, counted, inventory_option, rigs_argument, roles_of, say, usable_plans

if TYPE_CHECKING:
    from llamaherd.inventory.schema import Rig
    from llamaherd.plan import Plan


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

    unreached: dict[str, str] = {}
    if verbose:
        planned = usable_plans(inventory, rigs, deploying=True)
    else:
        planned, unreached = _with_something_to_do(inventory, rigs)
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


def _with_something_to_do(
    inventory: Path | None, rigs: tuple[str, ...]
) -> tuple[dict[str, tuple[Rig, Plan]], dict[str, str]]:
    """The rigs that are not as planned; which are is said. And why rigs could not be asked, by name."""
    from llamaherd.pipeline.outlook_ask import Hosts

    hosts: list[Hosts] = []

    def look(sound: Mapping[str, Rig]) -> None:
        say(f"--> Looking at {counted(len(sound), 'host')}...", err=True)
        hosts.append(Hosts(sound))

    try:
        planned = usable_plans(inventory, rigs, deploying=True, sound=look)
        found = hosts[0].outlooks(planned, roles_of(inventory))
    except BaseException:
        for waiting in hosts:
            waiting.leave()  # who is interrupted waits for no host
        raise
    for name, each in found.items():
        if each.as_planned:
            for note in each.notes:
                say(f"{name}: {note}", err=True)
            say(f"{name}: as planned, nothing to do")
    left = {name: each for name, each in planned.items() if not found[name].as_planned}
    return left, {name: found[name].unreached for name in left}
