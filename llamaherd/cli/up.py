"""`herd up`: make the hosts as planned."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from llamaherd.cli.common import FAILED, inventory_option, rigs_argument, say, usable_plans


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
    from llamaherd.deploy.lean import load_pyinfra

    planned = usable_plans(inventory, rigs, deploying=True)
    load_pyinfra()  # what is refused needs none of it
    from llamaherd.deploy.deploying import deploy
    from llamaherd.pipeline.load import inventory_path

    if not sys.stderr.isatty():
        os.environ.setdefault("PYINFRA_PROGRESS", "off")  # its spinner fills a log with escape codes
    if not deploy(planned, inventory_path(inventory), verbose):
        say("not every host is as planned; the reason is above, and `herd up` goes on from there", err=True)
        sys.exit(FAILED)
