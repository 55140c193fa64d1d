"""`herd gateway`, `herd drain` and `herd ready`: show the gateway, and stop or resume requests to a server."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from llamaherd.cli.common import (
    FAILED,
    UNUSABLE,
    counted,
    echo,
    exit_on_error,
    inventory_option,
    json_option,
    read_or_exit,
)
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.fleet.gateway import (
    DeclaredGateway,
    declared_gateway,
    drain_server,
    query_gateways,
    ready_server,
    with_stopped,
)
from llamaherd.fleet.gateway_snapshot import GatewaySnapshot, address_line, ending_line, gateway_lines
from llamaherd.host.remote import RemoteError
from llamaherd.inventory.authority import KEY, make_root, root_in
from llamaherd.onhost.gateway import DrainState
from llamaherd.pipeline.load import inventory_path
from llamaherd.text.numbers import parse_duration


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

    A server that `herd pause` has stopped is paused, not down. A server is asleep if its rig has `wake` and does not
    respond: a request for its model wakes the rig.

    The exit code is 1 if a server is down or missing at the gateway, if a gateway does not respond, or if not exactly
    one gateway holds the virtual address.

    \b
    Examples:
      herd gateway status
      herd gateway status --json
    """
    with exit_on_error(UNUSABLE):
        declared = usable_gateway(inventory)
        found = with_stopped(declared.rigs, query_gateways(declared.hosts))
    values = [_print_gateway(rig, now, declared, as_json) for rig, now in found.items()]
    address = address_line({rig: now for rig, now in found.items() if isinstance(now, GatewaySnapshot)})
    ok = all(value["ok"] for value in values) and (address is None or address.ok)
    if as_json:
        print_envelope(Envelope(ok, values, {"address": address._asdict() if address else None}))
    elif address:
        echo(address.line, err=not address.ok)
    if not ok:
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
    with exit_on_error(UNUSABLE):
        folder = usable_gateway(inventory).authority
        is_new = make_root(folder)
        root = root_in(folder)
    if as_json:
        shown = {"root": str(root.file), "fingerprint": root.fingerprint, "ends": root.ends.isoformat()}
        print_envelope(Envelope(True, data={**shown, "pem": root.pem}))
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
    stopped = (
        (now.down, "down"),
        (now.draining, "draining"),
        (now.paused, "paused"),
        (now.asleep, "asleep"),
    )
    states = [f"{', '.join(each)} {state}" for each, state in stopped if each]
    echo(f"{rig}: {counted(len(now.models), 'model')}, {'; '.join(states) or 'all servers are up'}", fit=True)
    for line in gateway_lines(now):
        echo(line)
    for server in absent:
        echo(f"{rig}: {server} is declared, but not at the gateway yet: run `herd up {rig}`", err=True)
    if now.ending:
        echo(f"{rig}: {ending_line(now.ending)}", err=True)


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


served_argument = click.argument("server", metavar="RIG/INSTANCE", shell_complete=complete_served)


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
      herd drain porch/chat
      herd drain porch/chat --wait 60s
    """
    with exit_on_error(UNUSABLE):
        gateway = usable_gateway(inventory)
        hosts, server = gateway.hosts, gateway.server(server.replace("/", ".", 1))
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


@click.command()
@served_argument
@inventory_option
@click.pass_obj
def ready(inventory: Path | None, server: str) -> None:
    """Send requests to a drained server again.

    \b
    Example:
      herd ready porch/chat
    """
    with exit_on_error(UNUSABLE):
        gateway = usable_gateway(inventory)
        hosts, server = gateway.hosts, gateway.server(server.replace("/", ".", 1))
    found = ready_server(hosts, server)
    for rig, problem in found.items():
        echo(f"{rig}: {problem}" if problem else f"{rig}: {server} receives requests again", err=problem is not None)
    if any(found.values()):
        sys.exit(FAILED)
