"""`herd unlock`: break the lock of a run on a host."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from llamaherd.cli.common import FAILED, echo, inventory_option, read_or_exit, rig_argument
from llamaherd.host.protocol import unlock_host
from llamaherd.host.remote import RemoteError
from llamaherd.pipeline.load import inventory_path
from llamaherd.pipeline.load import rigs as declared_rigs


@click.command()
@rig_argument
@inventory_option
@click.pass_obj
def unlock(inventory: Path | None, rig: str) -> None:
    """Break the lock of a run on a host.

    Use it for a run that cannot end by itself, for example after its connection was lost: its lock stays for 15
    minutes. The command prints which run held the lock. A run that is still alive takes the lock again before its next
    change, after the runs that wait for it.

    \b
    Example:
      herd unlock duo
    """
    connect = read_or_exit(lambda: declared_rigs(inventory_path(inventory), (rig,))).rigs[rig].connect
    try:
        found = unlock_host(connect)
    except RemoteError as error:
        echo(f"{rig}: {error}", err=True)
        sys.exit(FAILED)
    holder = found.holder or "a run without a name"
    if found.state == "free":
        echo(f"{rig}: no run holds the lock")
    elif found.state == "broken":
        echo(f"{rig}: broke the lock of {holder}")
    else:
        echo(f"{rig}: the lock of {holder} cannot be broken\n  help: end that process on the host", err=True)
        sys.exit(FAILED)
