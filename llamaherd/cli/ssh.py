"""`herd ssh` and `herd unlock`: open a shell on the host of a rig or run a command there, and break its lock."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from llamaherd.cli.common import (
    FAILED,
    UNUSABLE,
    complete_rigs,
    echo,
    fail,
    inventory_option,
    read_or_exit,
    rig_argument,
)
from llamaherd.diagnostics.findings import UserError


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("rig", shell_complete=complete_rigs)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@inventory_option
@click.pass_obj
def ssh(inventory: Path | None, rig: str, command: tuple[str, ...]) -> None:
    """Open a shell on a host, or run a command there.

    It runs the `ssh` client with the address, user, key and known hosts of `connect:`. A COMMAND gets a terminal if
    `herd` has one. The shell of the host reads its words, as with `ssh`: quote them for that shell, too. Options of
    `herd ssh` stand before RIG.

    Exit codes: that of the command; 255 if the connection failed; 2 an unusable inventory.

    \b
    Examples:
      herd ssh duo                        a shell
      herd ssh duo nvidia-smi -q          a command with its options
      herd ssh duo 'df -h | grep models'  a command for the host's shell
    """
    from llamaherd.host.ssh import require_key, terminal_argv  # late: the help needs none of it
    from llamaherd.pipeline.load import inventory_path, rigs

    path = inventory_path(inventory)
    connect = read_or_exit(lambda: rigs(path, (rig,))).rigs[rig].connect
    terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    words = terminal_argv(connect, command, os.environ.get("SHELL") or "/bin/sh", terminal=terminal)
    try:
        require_key(connect)
        os.execvp(words[0], words)
    except FileNotFoundError:
        echo(f"error: there is no `{words[0]}` on this machine\n  help: install the package openssh-client", err=True)
        sys.exit(UNUSABLE)
    except UserError as error:
        fail(error, UNUSABLE)


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
    from llamaherd.host.protocol import unlock_host  # late: the help needs none of it
    from llamaherd.host.remote import RemoteError
    from llamaherd.pipeline.load import inventory_path, rigs

    connect = read_or_exit(lambda: rigs(inventory_path(inventory), (rig,))).rigs[rig].connect
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
