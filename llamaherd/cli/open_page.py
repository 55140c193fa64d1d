"""Run `herd open`: the tunnel to a server's page, until Ctrl-C."""

from __future__ import annotations

import os
import sys
import webbrowser

import click

from llamaherd.cli.chat_session import planned_server
from llamaherd.cli.common import FAILED, UNUSABLE, echo, fail, read_or_exit
from llamaherd.cli.open import OpenOptions
from llamaherd.cli.targets import find_target
from llamaherd.diagnostics.findings import UserError
from llamaherd.fleet.chat import ChatServer, explain_refusal, require_page
from llamaherd.host.tunnel import Tunnel, is_free, steady_port
from llamaherd.inventory.schema import LOCAL
from llamaherd.measure.client.http_client import Target
from llamaherd.pipeline.load import inventory_path, rigs


def run_open(options: OpenOptions) -> None:
    """Open a server's page, and wait for Ctrl-C. Print errors and end the program if that fails."""
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
