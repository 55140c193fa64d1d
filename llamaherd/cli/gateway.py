"""`herd gateway`: show the state of the gateway, and print the root certificate of its CA."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import FAILED, UNUSABLE, counted, echo, fail, inventory_option, json_option, read_or_exit
from llamaherd.diagnostics.findings import UserError
from llamaherd.fleet.gateway import DeclaredGateway, declared_gateway, query_gateways
from llamaherd.fleet.gateway_snapshot import GatewaySnapshot, address_line, ending_line, gateway_lines
from llamaherd.host.remote import RemoteError
from llamaherd.inventory.authority import KEY, make_root, root_in
from llamaherd.pipeline.load import inventory_path


@click.group()
@inventory_option
@json_option
def gateway(as_json: bool) -> None:
    """Show the state of the gateway, or print its CA.

    \b
    Examples:
      herd gateway status
      herd gateway ca > herd-root.pem
    """


@gateway.command()
@inventory_option
@json_option
@click.pass_obj
def status(inventory: Path | None, as_json: bool) -> None:
    """Show models, their servers, and running and waiting requests.

    If two gateways share a virtual address, it also shows which of them holds the address.

    The exit code is 1 if a server is down or missing at the gateway, if a gateway does not respond, or if not exactly
    one gateway holds the virtual address.

    \b
    Examples:
      herd gateway status
      herd gateway status --json
    """
    try:
        declared = usable_gateway(inventory)
        found = query_gateways(declared.hosts)
    except UserError as error:
        fail(error, UNUSABLE)
    values = [_print_gateway(rig, now, declared, as_json) for rig, now in found.items()]
    address = address_line({rig: now for rig, now in found.items() if isinstance(now, GatewaySnapshot)})
    if as_json:
        click.echo(json.dumps({"gateways": values}))
    elif address:
        echo(address.line, err=not address.ok)
    if not all(value["ok"] for value in values) or (address and not address.ok):
        sys.exit(FAILED)


@gateway.command()
@inventory_option
@json_option
@click.pass_obj
def ca(inventory: Path | None, as_json: bool) -> None:
    """Print the root certificate of the gateway's own CA.

    Clients must trust this certificate. The first call creates the CA.

    `gateway.tls.ca` in fleet.yaml sets its folder. Keep the private key there secret: with it, anyone can impersonate
    any site to clients that trust the CA.

    \b
    Examples:
      herd gateway ca > herd-root.pem
      herd gateway ca --json
    """
    try:
        folder = usable_gateway(inventory).authority
        is_new = make_root(folder)
        root = root_in(folder)
    except UserError as error:
        fail(error, UNUSABLE)
    if as_json:
        shown = {"root": str(root.file), "fingerprint": root.fingerprint, "ends": root.ends.isoformat()}
        click.echo(json.dumps({**shown, "pem": root.pem}))
    else:
        click.echo(root.pem, nl=False)
    if is_new:
        echo(f"created a CA; its key is in {folder / KEY}: keep a secret copy of it", err=True)
    echo(
        f"the root certificate is in {root.file}, valid until {root.ends:%Y-%m-%d}; SHA-256 {root.fingerprint}",
        err=True,
    )


def usable_gateway(inventory: Path | None) -> DeclaredGateway:
    """Return the gateway of an inventory. Print findings and end the program. Raise UserError if there is none."""
    return read_or_exit(lambda: declared_gateway(inventory_path(inventory)))


def _print_gateway(
    rig: str, now: GatewaySnapshot | RemoteError, declared: DeclaredGateway, as_json: bool
) -> dict[str, Any]:
    """Return the state of one gateway as JSON values. Print it at once, unless `as_json`."""
    if isinstance(now, RemoteError):
        echo(f"{rig}: {now}", err=True)
        return {"rig": rig, "ok": False, "error": str(now)}
    absent = now.absent(declared.served)
    if not as_json:
        _print_models(rig, now, absent)
    return {"rig": rig, "ok": not (now.down or absent), **now.as_json(), "absent": list(absent)}


def _print_models(rig: str, now: GatewaySnapshot, absent: tuple[str, ...]) -> None:
    """Print the models of one gateway, and its problems."""
    down = f"{', '.join(now.down)} down" if now.down else "all servers are up"
    echo(f"{rig}: {counted(len(now.models), 'model')}, {down}")
    for line in gateway_lines(now):
        echo(line)
    for server in absent:
        echo(f"{rig}: {server} is declared, but not at the gateway yet: run `herd up {rig}`", err=True)
    if now.ending:
        echo(f"{rig}: {ending_line(now.ending)}", err=True)
