"""`herd drain`: a server is sent nothing new, while what it answers goes on."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from llamaherd.cli.common import FAILED, UNUSABLE, counted, fail, inventory_option, say
from llamaherd.cli.gateway import usable_gateway
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.text.numbers import parse_duration

if TYPE_CHECKING:
    from llamaherd.fleet.gateway import DeclaredGateway
    from llamaherd.host.remote import RemoteError
    from llamaherd.onhost.gateway import DrainState

LONGEST = 3600
"""Seconds that `--wait` takes: no stream of a gateway is silent for longer."""


def complete_served(context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """The gateway's servers, for the shell."""
    from llamaherd.fleet.gateway import declared_gateway
    from llamaherd.pipeline.load import inventory_path

    try:
        served = declared_gateway(inventory_path(context.obj)).served
    except (InventoryError, UserError):
        return []
    return [CompletionItem(name) for name in sorted({server for _, server in served}) if name.startswith(typed)]


def _seconds(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int:
    """Seconds to wait; none where nothing is said."""
    if value is None:
        return 0
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if seconds > LONGEST:
        raise click.BadParameter("at most 1h")
    return seconds


served_argument = click.argument("server", metavar="RIG.INSTANCE", shell_complete=complete_served)


@click.command()
@served_argument
@click.option("--wait", metavar="TIME", callback=_seconds, help="Wait until no stream is left: `60s`, at most `1h`.")
@click.option("--anyway", is_flag=True, help="Also the last server of a model, and where a gateway does not answer.")
@inventory_option
@click.pass_obj
def drain(inventory: Path | None, server: str, wait: int, anyway: bool) -> None:
    """Have every gateway send a server nothing new. Streams go on; new requests go to others.

    It lasts until `herd ready`, or until the gateway reloads. With --wait, it ends with 1 where streams are left.

    \b
    Examples:
      herd drain porch.chat
      herd drain porch.chat --wait 60s
    """
    from llamaherd.fleet.gateway import drain_server as drain_at

    try:
        gateway = usable_gateway(inventory)
        hosts, server = gateway.hosts, gateway.server(server)
    except UserError as error:
        fail(error, UNUSABLE)
    if not anyway:
        _others_or_exit(gateway, server)
    found = drain_at(hosts, server, wait)
    if not _told(server, found, waited=wait > 0):
        sys.exit(FAILED)


def _others_or_exit(gateway: DeclaredGateway, server: str) -> None:
    """End the program where nobody else could answer, or where that is not known."""
    from llamaherd.fleet.gateway import query_gateways
    from llamaherd.fleet.gateway_snapshot import GatewaySnapshot

    refused = False
    for rig, now in query_gateways(gateway.hosts).items():
        if not isinstance(now, GatewaySnapshot):
            say(f"{rig}: {now}", err=True)
            refused = True
            continue
        for model in now.alone(server):
            refused = True
            say(f"{rig}: {server} is the only server of {model} that is up; {_instead(gateway, model)}", err=True)
    if refused:
        say(f"{server} is as it was\n  help: bring up what is missing, or say `--anyway`", err=True)
        sys.exit(FAILED)


def _instead(gateway: DeclaredGateway, model: str) -> str:
    """Who would answer without it."""
    known = gateway.declared.models.get(model)
    fallback = known.fallback if known else None
    return f"{fallback} would answer in its place" if fallback else "nobody would answer"


def _told(server: str, found: Mapping[str, DrainState | RemoteError], *, waited: bool) -> bool:
    """Say what came of it; whether that is what was wanted."""
    from llamaherd.fleet.gateway_snapshot import ending_line
    from llamaherd.onhost.gateway import DrainState

    for rig, drained in found.items():
        if not isinstance(drained, DrainState):
            say(f"{rig}: {drained}", err=True)
            continue
        left = f"{counted(drained.left, 'stream')} left" if drained.left else "no stream is left"
        say(f"{rig}: {server} is sent nothing new; {left}")
        if drained.ending:
            say(f"{rig}: {ending_line(drained.ending)}", err=True)
    if any(isinstance(each, DrainState) for each in found.values()):
        say(f"`herd ready {server}` takes it back, and so does a reload of the gateway", err=True)
    return all(isinstance(each, DrainState) and not (waited and each.left) for each in found.values())
