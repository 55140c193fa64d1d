"""`herd unlock`: break the lock that a run holds on a host."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from llamaherd.cli.common import FAILED, inventory_option, rig_argument, say, usable_or_exit


@click.command()
@rig_argument
@inventory_option
@click.pass_obj
def unlock(inventory: Path | None, rig: str) -> None:
    """Break the lock of the run that changes a host.

    It says whose that was. It is for a run that is gone for good, as one whose line was cut: its lock stays for a
    quarter of an hour. A run that goes on takes its turn again before its next change, after whoever waits by then.

    \b
    Example:
      herd unlock duo
    """
    from llamaherd.host.host_lock import unlock_host as break_lock
    from llamaherd.host.remote import RemoteError
    from llamaherd.pipeline.load import inventory_path
    from llamaherd.pipeline.load import rigs as declared

    connect = usable_or_exit(lambda: declared(inventory_path(inventory), (rig,))).rigs[rig].connect
    try:
        found = break_lock(connect)
    except RemoteError as error:
        say(f"{rig}: {error}", err=True)
        sys.exit(FAILED)
    holder = found.holder or "a run that has not written its name"
    if found.state == "free":
        say(f"{rig}: no run holds its lock")
    elif found.state == "broken":
        say(f"{rig}: broken, the lock of {holder}")
    else:
        say(f"{rig}: the lock of {holder} cannot be broken\n  help: end that process on the host", err=True)
        sys.exit(FAILED)
