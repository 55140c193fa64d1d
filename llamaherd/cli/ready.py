"""`herd ready`: a server that was drained is sent requests again."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from llamaherd.cli.common import FAILED, UNUSABLE, fail, inventory_option, say
from llamaherd.cli.drain import served_argument
from llamaherd.cli.gateway import usable_gateway
from llamaherd.diagnostics.findings import UserError


@click.command()
@served_argument
@inventory_option
@click.pass_obj
def ready(inventory: Path | None, server: str) -> None:
    """Have every gateway send a server requests again.

    \b
    Example:
      herd ready porch.chat
    """
    from llamaherd.fleet.gateway import ready_server as ready_at

    try:
        gateway = usable_gateway(inventory)
        hosts, server = gateway.hosts, gateway.server(server)
    except UserError as error:
        fail(error, UNUSABLE)
    found = ready_at(hosts, server)
    for rig, problem in found.items():
        said = f"{rig}: {problem}" if problem else f"{rig}: {server} is sent requests again"
        say(said, err=problem is not None)
    if any(found.values()):
        sys.exit(FAILED)
