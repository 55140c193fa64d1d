"""`herd clients`: print the settings with which a program uses the gateway."""

from __future__ import annotations

from pathlib import Path

import click

from llamaherd.cli.common import UNUSABLE, echo, fail, inventory_option, read_or_exit
from llamaherd.diagnostics.findings import UserError
from llamaherd.fleet.clients import KEY_VARIABLE, client_config, client_facts
from llamaherd.fleet.gateway import declared_gateway
from llamaherd.pipeline.load import inventory_path

CLIENTS = (
    *("opencode", "continue", "aider", "zed", "claude-code"),
    *("open-webui", "librechat", "litellm"),
    *("openai-python", "curl"),
)


@click.command()
@click.argument("client", metavar="PROGRAM", type=click.Choice(CLIENTS))
@click.option("--user", required=True, help="The gateway user: models are limited to those of this user.")
@click.option("--url", metavar="URL", help="The gateway's URL. Default: from fleet.yaml and the inventory.")
@click.option(
    "--ca", metavar="FILE", help="The path of the gateway CA's root certificate on that machine. Default: as here."
)
@inventory_option
@click.pass_obj
def clients(inventory: Path | None, client: str, user: str, url: str | None, ca: str | None) -> None:
    """Print the settings with which a program uses the gateway.

    PROGRAM is opencode, continue, aider, zed, claude-code, open-webui, librechat, litellm, openai-python or curl.

    The output is a configuration file or shell commands. It lists the models that the user may use, with the context of
    each. It contains no key: the program reads the key from the variable HERD_KEY.

    \b
    Examples:
      herd clients opencode --user tom > ~/.config/opencode/opencode.json
      herd clients curl --user tom --url https://llm.lan | sh
      herd clients claude-code --user ann --ca /Users/ann/herd-root.pem
    """
    try:
        gateway = read_or_exit(lambda: declared_gateway(inventory_path(inventory)))
        config = client_config(client, client_facts(gateway, user, url, ca))
    except UserError as error:
        fail(error, UNUSABLE)
    click.echo(config.text, nl=False)
    echo(f"write this to {config.place}, and the key of {user} to the variable {KEY_VARIABLE}", err=True)
    if gateway.declared.loopback and url is None:
        rig = gateway.declared.on[0]
        echo(f"the gateway listens on localhost of rig {rig}: use it there, or through `ssh -L`", err=True)
