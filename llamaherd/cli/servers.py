"""`herd stop`, `herd start` and `herd restart`: stop and start servers that are declared."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

import click

from llamaherd.cli.common import inventory_option, json_option, lock_wait_option
from llamaherd.cli.targets import servers_argument

Verb = Literal["stop", "start", "restart", "pause", "resume"]


@dataclass(frozen=True)
class ControlOptions:
    """A command that stops or starts servers, and its options. `seconds` is the length of a pause from `began` on."""

    verb: Verb
    inventory: Path | None
    target: str | None
    lock_wait: int
    as_json: bool
    seconds: int = 0
    began: datetime = field(default_factory=datetime.now)


def run(options: ControlOptions) -> None:
    """Run a command that stops or starts servers."""
    from llamaherd.cli.control import control_servers  # late: the help needs none of it

    control_servers(options)


@click.command()
@servers_argument
@lock_wait_option
@inventory_option
@json_option
@click.pass_obj
def stop(inventory: Path | None, target: str | None, lock_wait: int, as_json: bool) -> None:
    """Stop a server, or all servers of a rig.

    Gateways send new requests to other servers first, and running requests may end. The server stays stopped, also
    after a reboot of its host, until `herd start` or the next `herd up`. `herd plan` and `herd status` show it as
    stopped. To free a GPU for some hours, use `herd pause`.

    Exit codes: 0 done; 1 a host cannot be reached, or a server still runs; 2 wrong usage, or an unusable inventory.

    \b
    Examples:
      herd stop duo/chat   one server
      herd stop duo        all servers of a rig
    """
    run(ControlOptions("stop", inventory, target, lock_wait, as_json))


@click.command()
@servers_argument
@lock_wait_option
@inventory_option
@json_option
@click.pass_obj
def start(inventory: Path | None, target: str | None, lock_wait: int, as_json: bool) -> None:
    """Start a server, or all servers of a rig.

    It ends a stop or a pause, and starts the version that is on the host: `herd up` applies changes of the inventory.
    The command waits until the server is healthy. If the server fails, the command prints the engine's own last error.

    Exit codes: 0 all servers are healthy; 1 a host cannot be reached, or a server is not healthy; 2 wrong usage, or an
    unusable inventory.

    \b
    Examples:
      herd start duo/chat   one server
      herd start duo        all servers of a rig
    """
    run(ControlOptions("start", inventory, target, lock_wait, as_json))


@click.command()
@servers_argument
@lock_wait_option
@inventory_option
@json_option
@click.pass_obj
def restart(inventory: Path | None, target: str | None, lock_wait: int, as_json: bool) -> None:
    """Restart a server, or all servers of a rig.

    Gateways send new requests to other servers first, and running requests may end. The command waits until the server
    is healthy. If the server fails, the command prints the engine's own last error.

    Exit codes: 0 all servers are healthy; 1 a host cannot be reached, or a server is not healthy; 2 wrong usage, or an
    unusable inventory.

    \b
    Examples:
      herd restart duo/chat   one server
      herd restart duo        all servers of a rig
    """
    run(ControlOptions("restart", inventory, target, lock_wait, as_json))
