"""`herd clients`: what a program must be told to use the gateway."""

from __future__ import annotations

from pathlib import Path

import click

from llamaherd.cli.common import UNUSABLE, fail, inventory_option, say, usable_or_exit
from llamaherd.diagnostics.findings import UserError

CLIENTS = (
    *("opencode", "continue", "aider", "zed", "claude-code"),
    *("open-webui", "librechat", "litellm"),
    *("openai-python", "curl"),
)


@click.command()
@click.argument("client", metavar="PROGRAM", type=click.Choice(CLIENTS))
@click.option("--user", required=True, help="Whose models it is told.")
@click.option("--url", metavar="URL", help="Where it reaches the gateway. Default: by fleet.yaml and the inventory.")
@click.option(
    "--ca", metavar="FILE", help="Where it has the root certificate of the gateway's own CA. Default: as here."
)
@inventory_option
@click.pass_obj
def clients(inventory: Path | None, client: str, user: str, url: str | None, ca: str | None) -> None:
    """Print what a program needs to use the gateway.

    PROGRAM is opencode, continue, aider, zed, claude-code, open-webui, librechat, litellm, openai-python or curl.

    It is a file, or lines for a shell. Models, with the tokens that each takes, are those that the user may use. The
    key is in the variable HERD_KEY, and nowhere in what is printed.

    \b
    Examples:
      herd clients opencode --user tom > ~/.config/opencode/opencode.json
      herd clients curl --user tom --url https://llm.lan | sh
      herd clients claude-code --user ann --ca /Users/ann/herd-root.pem
    """
    from llamaherd.fleet.clients import KEY_VARIABLE, client_config, client_facts
    from llamaherd.fleet.gateway import declared_gateway
    from llamaherd.pipeline.load import inventory_path

    try:
        gateway = usable_or_exit(lambda: declared_gateway(inventory_path(inventory)))
        told = client_config(client, client_facts(gateway, user, url, ca))
    except UserError as error:
        fail(error, UNUSABLE)
    click.echo(told.text, nl=False)
    say(f"this belongs in {told.place}; the key of {user} belongs in the variable {KEY_VARIABLE}", err=True)
    if gateway.declared.loopback and url is None:
        rig = gateway.declared.on[0]
        say(f"the gateway listens on its own host alone: use it there, or by `ssh -L` to rig {rig}", err=True)
