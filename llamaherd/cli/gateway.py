"""`herd gateway`: what the gateway does now, and the CA by which clients know it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llamaherd.cli.common import FAILED, UNUSABLE, counted, fail, inventory_option, json_option, say, usable_or_exit
from llamaherd.diagnostics.findings import UserError

if TYPE_CHECKING:
    from llamaherd.fleet.gateway import DeclaredGateway
    from llamaherd.fleet.gateway_snapshot import GatewaySnapshot
    from llamaherd.host.remote import RemoteError


@click.group()
@inventory_option
@json_option
def gateway(as_json: bool) -> None:
    """What the gateway does now, and the CA that clients trust.

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
    """Show models with their servers, and who is served or waits.

    Of two gateways that have an address in turn, it shows which one has it now.

    It ends with 1 where a server is down, or is declared and not at the gateway, a gateway does not answer, or an
    address that moves is on another number of them than one.

    \b
    Examples:
      herd gateway status
      herd gateway status --json
    """
    from llamaherd.fleet.gateway import query_gateways
    from llamaherd.fleet.gateway_snapshot import GatewaySnapshot, address_line

    try:
        declared = usable_gateway(inventory)
        found = query_gateways(declared.hosts)
    except UserError as error:
        fail(error, UNUSABLE)
    values = [_told(rig, now, declared, as_json) for rig, now in found.items()]
    address = address_line({rig: now for rig, now in found.items() if isinstance(now, GatewaySnapshot)})
    if as_json:
        click.echo(json.dumps({"gateways": values}))
    elif address:
        say(address.line, err=not address.ok)
    if not all(value["ok"] for value in values) or (address and not address.ok):
        sys.exit(FAILED)


@gateway.command()
@inventory_option
@json_option
@click.pass_obj
def ca(inventory: Path | None, as_json: bool) -> None:
    """Print the root certificate of the gateway's own CA.

    Clients are to trust it. The first time, the CA is made.

    `gateway.tls.ca` in fleet.yaml names its folder. Its private key stays there: who has it can pretend to be any site
    to those who trust the CA.

    \b
    Examples:
      herd gateway ca > herd-root.pem
      herd gateway ca --json
    """
    from llamaherd.inventory.authority import KEY, make_root, root_in

    try:
        folder = usable_gateway(inventory).authority
        is_new = make_root(folder)
        root = root_in(folder)
    except UserError as error:
        fail(error, UNUSABLE)
    if as_json:
        told = {"root": str(root.file), "fingerprint": root.fingerprint, "ends": root.ends.isoformat()}
        click.echo(json.dumps({**told, "pem": root.pem}))
    else:
        click.echo(root.pem, nl=False)
    if is_new:
        say(f"a CA was made; its key is in {folder / KEY}: keep a copy where nobody else finds it", err=True)
    say(f"the root certificate is in {root.file}, until {root.ends:%Y-%m-%d}; SHA-256 {root.fingerprint}", err=True)


def usable_gateway(inventory: Path | None) -> DeclaredGateway:
    """The gateway of an inventory; findings end the program. Raises UserError where there is none."""
    from llamaherd.fleet.gateway import declared_gateway
    from llamaherd.pipeline.load import inventory_path

    return usable_or_exit(lambda: declared_gateway(inventory_path(inventory)))


def _told(rig: str, now: GatewaySnapshot | RemoteError, declared: DeclaredGateway, as_json: bool) -> dict[str, Any]:
    """What one host said of its gateway, for machines; for people it is printed at once."""
    from llamaherd.host.remote import RemoteError

    if isinstance(now, RemoteError):
        say(f"{rig}: {now}", err=True)
        return {"rig": rig, "ok": False, "error": str(now)}
    absent = now.absent(declared.served)
    if not as_json:
        _show(rig, now, absent)
    return {"rig": rig, "ok": not (now.down or absent), **now.as_json(), "absent": list(absent)}


def _show(rig: str, now: GatewaySnapshot, absent: tuple[str, ...]) -> None:
    """The table of one gateway, and what is wrong or not counted."""
    from llamaherd.fleet.gateway_snapshot import ending_line, gateway_lines

    down = f"{', '.join(now.down)} down" if now.down else "no server is down"
    say(f"{rig}: {counted(len(now.models), 'model')}, {down}")
    for line in gateway_lines(now):
        say(line)
    for server in absent:
        say(f"{rig}: {server} is declared, and not at the gateway yet: `herd up {rig}`", err=True)
    if now.ending:
        say(f"{rig}: {ending_line(now.ending)}", err=True)
