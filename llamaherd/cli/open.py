"""`herd open`: a tunnel to a server's own page, and the page in the browser, until Ctrl-C."""

from __future__ import annotations

import os
import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from llamaherd.cli.chat import planned_server
from llamaherd.cli.common import FAILED, UNUSABLE, echo, fail, inventory_option, read_or_exit
from llamaherd.cli.targets import find_target, optional_target_argument
from llamaherd.diagnostics.findings import UserError
from llamaherd.fleet.chat import ChatServer, explain_refusal, require_page
from llamaherd.host.tunnel import Tunnel, is_free, steady_port
from llamaherd.inventory.schema import LOCAL
from llamaherd.measure.client.http_client import Target
from llamaherd.pipeline.load import inventory_path, rigs


@dataclass(frozen=True)
class OpenOptions:
    """The options of `herd open`."""

    inventory: Path | None
    target: str | None
    port: int | None
    browser: bool


@click.command(name="open")
@optional_target_argument
@click.option(
    "--port",
    type=click.IntRange(1024, 65535),
    metavar="N",
    help="The port of this machine. Default: the same one for each instance, from 20000 to 29999.",
)
@click.option("--no-browser", "browser", flag_value=False, default=True, help="Only print the URL.")
@inventory_option
@click.pass_obj
def open_(inventory: Path | None, /, **given: Any) -> None:
    """Open a server's own page in the browser.

    It opens an SSH tunnel to the server, prints the URL, and runs until Ctrl-C. The page prompts for the API key of the
    server, if it has one. The browser stores conversations by the port.

    Exit codes: 0 ended by Ctrl-C; 1 the server has no page, or cannot be reached; 2 an unusable inventory.

    \b
    Examples:
      herd open                           the only server
      herd open duo/coder                 one of several
      herd open duo/coder --port 9000     at http://127.0.0.1:9000
      herd open duo/coder --no-browser    for a browser on another machine
    """
    options = OpenOptions(inventory, **given)
    fleet = read_or_exit(lambda: rigs(inventory_path(options.inventory)))
    try:
        target = find_target(fleet.rigs, options.target)
        if options.port and not is_free(options.port):
            raise UserError(f"port {options.port} of this machine is in use", "choose another with `--port`")
    except UserError as error:
        fail(error, UNUSABLE)
    server = planned_server(options.inventory, target)
    try:
        _open(server, options)
    except KeyboardInterrupt:
        echo("")
    except UserError as error:
        fail(error, FAILED)


def _open(server: ChatServer, options: OpenOptions) -> None:
    """Open the page, and wait until the connection ends. Raise UserError."""
    with Tunnel(server.connect, server.instance.endpoint, options.port or steady_port(server.name)) as tunnel:
        try:
            require_page(Target(tunnel.url, server.key()), server.name)
        except UserError as error:
            raise explain_refusal(server, tunnel.failure()) or error from None
        click.echo(tunnel.url)
        if key := server.instance.endpoint.key:
            place = f"in {key.file}" if key.file else f"the value of {key.env}"
            echo(f"if the page prompts for an API key, it is {place}", err=True)
        if options.browser and _has_browser():
            webbrowser.open(tunnel.url)
        if server.connect.host != LOCAL:
            echo("Ctrl-C ends the tunnel", err=True)
            tunnel.keep_open()


def _has_browser() -> bool:
    """Return whether this machine has a screen: a browser for terminals would take the terminal."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
