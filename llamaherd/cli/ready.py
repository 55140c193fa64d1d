"""`herd ready`: send requests to a drained server again."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from llamaherd.cli.common import FAILED, UNUSABLE, echo, fail, inventory_option
from llamaherd.cli.drain import served_argument
from llamaherd.cli.gateway import usable_gateway
from llamaherd.diagnostics.findings import UserError
from llamaherd.fleet.gateway import ready_server


@click.command()
@served_argument
@inventory_option
@click.pass_obj
def ready(inventory: Path | None, server: str) -> None:
    """Send requests to a drained server again.

    \b
    Example:
      herd ready porch.chat
    """
    try:
        gateway = usable_gateway(inventory)
        hosts, server = gateway.hosts, gateway.server(server)
    except UserError as error:
        fail(error, UNUSABLE)
    found = ready_server(hosts, server)
    for rig, problem in found.items():
        echo(f"{rig}: {problem}" if problem else f"{rig}: {server} receives requests again", err=problem is not None)
    if any(found.values()):
        sys.exit(FAILED)
