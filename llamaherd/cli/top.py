"""`herd top`: show what each server process takes, refreshed until Ctrl-C."""

from __future__ import annotations

from pathlib import Path

import click

from llamaherd.cli.common import inventory_option, json_option, rigs_argument

EVERY = 2.0
"""The default seconds between two updates."""


@click.command()
@rigs_argument
@click.option(
    "--every",
    type=click.FloatRange(1, 3600),
    metavar="SECONDS",
    default=EVERY,
    show_default=True,
    help="Seconds between two updates.",
)
@click.option("--once", is_flag=True, help="Print one table, and end. The default if the output is no terminal.")
@inventory_option
@json_option
@click.pass_obj
def top(inventory: Path | None, rigs: tuple[str, ...], every: float, once: bool, as_json: bool) -> None:
    """Show what each server process takes.

    The table has GPU memory, watts, processor, streams, context and tokens per second. It is refreshed on a terminal,
    and also shows other programs on the GPUs. Watts and load are those of the whole GPU. All hosts are queried at the
    same time, and none is changed.

    Exit codes: 0 all servers are up; 1 a server is down, or a host cannot be reached; 2 the inventory is unusable;
    130 Ctrl-C.

    \b
    Examples:
      herd top                the whole fleet, refreshed until Ctrl-C
      herd top duo --every 5  one rig, every five seconds
      herd top --once         one table
      herd top --json         the same as JSON
    """
    from llamaherd.cli.snapshots import show_top  # late: the help needs none of it

    show_top(inventory, rigs, None if once or as_json else every, as_json)
