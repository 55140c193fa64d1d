"""`herd drain`: stop sending new requests to a server."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from llamaherd.cli.common import FAILED, UNUSABLE, counted, echo, fail, inventory_option
from llamaherd.cli.gateway import usable_gateway
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.fleet.gateway import DeclaredGateway, declared_gateway, drain_server, query_gateways
from llamaherd.fleet.gateway_snapshot import GatewaySnapshot, ending_line
from llamaherd.host.remote import RemoteError
from llamaherd.onhost.gateway import DrainState
from llamaherd.pipeline.load import inventory_path
from llamaherd.text.numbers import parse_duration

LONGEST = 3600
"""The longest `--wait`, in seconds: a gateway ends streams that are silent for longer."""


def complete_served(context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return the gateway's servers that begin with a word."""
    try:
        served = declared_gateway(inventory_path(context.obj)).served
    except (InventoryError, UserError):
        return []
    return [CompletionItem(name) for name in sorted({server for _, server in served}) if name.startswith(typed)]


def _parse_wait(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int:
    """Return the seconds to wait; 0 without the option."""
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
@click.option("--wait", metavar="TIME", callback=_parse_wait, help="Wait for running streams: `60s`, at most `1h`.")
@click.option("--anyway", is_flag=True, help="Also if it is the last server of a model, or a gateway does not respond.")
@inventory_option
@click.pass_obj
def drain(inventory: Path | None, server: str, wait: int, anyway: bool) -> None:
    """Stop sending new requests to a server.

    Gateways send new requests to other servers, and running streams continue. This lasts until `herd ready`, or until
    the gateway reloads. With --wait, the exit code is 1 if streams are left.

    \b
    Examples:
      herd drain porch.chat
      herd drain porch.chat --wait 60s
    """
    try:
        gateway = usable_gateway(inventory)
        hosts, server = gateway.hosts, gateway.server(server)
    except UserError as error:
        fail(error, UNUSABLE)
    if not anyway:
        _require_others(gateway, server)
    found = drain_server(hosts, server, wait)
    if not _print_drained(server, found, waited=wait > 0):
        sys.exit(FAILED)


def _require_others(gateway: DeclaredGateway, server: str) -> None:
    """End the program if no other server has the same model, or a gateway does not respond."""
    refused = False
    for rig, now in query_gateways(gateway.hosts).items():
        if not isinstance(now, GatewaySnapshot):
            echo(f"{rig}: {now}", err=True)
            refused = True
            continue
        for model in now.alone(server):
            refused = True
            echo(f"{rig}: {server} is the only running server of {model}; {_instead(gateway, model)}", err=True)
    if refused:
        echo(f"{server} was not drained\n  help: start another server, or use `--anyway`", err=True)
        sys.exit(FAILED)


def _instead(gateway: DeclaredGateway, model: str) -> str:
    """Return what happens to requests for a model without its last server."""
    known = gateway.declared.models.get(model)
    fallback = known.fallback if known else None
    return f"requests would go to {fallback}" if fallback else "requests would fail"


def _print_drained(server: str, found: Mapping[str, DrainState | RemoteError], *, waited: bool) -> bool:
    """Print the result of each gateway. Return whether all drained the server and, if `waited`, no stream is left."""
    for rig, drained in found.items():
        if not isinstance(drained, DrainState):
            echo(f"{rig}: {drained}", err=True)
            continue
        left = f"{counted(drained.left, 'stream')} left" if drained.left else "no streams left"
        echo(f"{rig}: drained {server}; {left}")
        if drained.ending:
            echo(f"{rig}: {ending_line(drained.ending)}", err=True)
    if any(isinstance(each, DrainState) for each in found.values()):
        echo(f"`herd ready {server}` ends this, and so does a reload of the gateway", err=True)
    return all(isinstance(each, DrainState) and not (waited and each.left) for each in found.values())
