"""`herd doctor`: report what is wrong on this machine and on the hosts, with the fix."""

from __future__ import annotations

from pathlib import Path

import click

from llamaherd.cli.common import inventory_option, json_option, rigs_argument


@click.command()
@rigs_argument
@inventory_option
@json_option
@click.pass_obj
def doctor(inventory: Path | None, rigs: tuple[str, ...], as_json: bool) -> None:
    """Report what is wrong here and on the hosts, with the fix.

    On this machine, it checks Python, the ssh client, keys, disk, inventory, lock and hub. On each host, it checks the
    connection, sudo, clock, disk, GPUs, failed units, an interrupted run, and all that `herd preflight` checks. It
    changes nothing. Each host is inspected once, all at the same time.

    Exit codes: 0 nothing is wrong; 1 something is wrong; 2 a rig does not exist; 130 Ctrl-C.

    \b
    Examples:
      herd doctor              this machine and all hosts
      herd doctor attic        this machine and one host
      herd doctor --json       the same as JSON
    """
    from llamaherd.cli.diagnosis import diagnose  # late: the help needs none of it

    diagnose(inventory, rigs, as_json)
