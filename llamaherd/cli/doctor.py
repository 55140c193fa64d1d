"""`herd doctor` and `herd support-bundle`: report what is wrong with the fix, or write what explains it to a file."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from llamaherd.cli.common import inventory_option, json_option, rigs_argument


@click.command()
@rigs_argument
@inventory_option
@json_option
@click.pass_obj
def doctor(inventory: Path | None, rigs: tuple[str, ...], as_json: bool) -> None:
    """Report what is wrong here and on the hosts, and the fix.

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


@click.command("support-bundle")
@rigs_argument
@click.option(
    "-o",
    "--output",
    metavar="FILE.tar.gz",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write. Only you can read it. Default: herd-support-DATE-TIME.tar.gz in this folder.",
)
@click.option("--names", is_flag=True, help="Keep names of hosts and users, and addresses.")
@inventory_option
@click.pass_obj
def support_bundle(inventory: Path | None, rigs: tuple[str, ...], output: Path | None, names: bool) -> None:
    """Write what explains a fault into one file, without secrets.

    The file contains versions, the output of `herd doctor`, the inventory without comments, the lock, and for each rig
    its plan, its inspection and the last log lines of its servers. Secrets are left out. Names of hosts and users, and
    addresses, are replaced by placeholders. Nothing is sent anywhere: read the file before you share it.

    Exit codes: 0 written; 1 written, but a host could not be inspected; 2 a rig does not exist, or the file cannot be
    written; 130 Ctrl-C.

    \b
    Examples:
      herd support-bundle                           all rigs
      herd support-bundle attic -o attic.tar.gz     one rig
      tar -xOzf attic.tar.gz | less                 what is in it
    """
    from llamaherd.cli.bundling import write_bundle  # late: the help needs none of it

    file = output or Path(f"herd-support-{datetime.now():%Y-%m-%d-%H%M%S}.tar.gz")
    write_bundle(inventory, rigs, file, keep_names=names)
