"""`herd ssh`: open a shell on the host of a rig, or run a command there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from llamaherd.cli.common import UNUSABLE, complete_rigs, echo, fail, inventory_option, read_or_exit
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
