"""`herd users` and `herd clients`: users of the gateway, and the settings of their programs."""

from __future__ import annotations

from pathlib import Path

import click

from llamaherd.cli.common import UNUSABLE, echo, exit_on_error, inventory_option, json_option
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.cli.gateway import usable_gateway
from llamaherd.fleet.clients import KEY_VARIABLE, client_config, client_facts
from llamaherd.fleet.gateway import DeclaredGateway
from llamaherd.fleet.users import NewKey, add_user, declare_missing_key, revoke_user, rotate_key
from llamaherd.pipeline.load import inventory_path


@click.group()
def users() -> None:
    """Manage gateway users and their API keys.

    A new key is printed once and stored in `keys/users/` in the inventory folder, with mode 600. `fleet.yaml` contains
    the path. `herd up` applies changes to the gateway without downtime.

    \b
    Examples:
      herd users add tom
      herd users add ann --model chat --streams 2
      herd users list
      herd users rotate tom
      herd users revoke ann
    """


@users.command()
@click.argument("name")
@click.option("--streams", type=click.IntRange(1, 1024), help="The most requests at the same time. Default: 4.")
@click.option("--model", "models", multiple=True, metavar="MODEL", help="A model to allow. Default: all. Repeatable.")
@inventory_option
@click.pass_obj
def add(inventory: Path | None, name: str, streams: int | None, models: tuple[str, ...]) -> None:
    """Add a user, and print the key once.

    For a user that fleet.yaml declares without a key, make the first key.

    \b
    Example:
      herd users add ann --model chat --streams 2
    """
    with exit_on_error(UNUSABLE):
        declare_missing_key(inventory_path(inventory), name)
        gateway = usable_gateway(inventory)
        made = add_user(gateway, name, streams, models)
    _print_key(gateway, made, name)


@users.command(name="list")
@inventory_option
@json_option
@click.pass_obj
def list_users(inventory: Path | None, as_json: bool) -> None:
    """List users, their models, and where their keys are.

    The keys are not shown.

    \b
    Example:
      herd users list --json
    """
    with exit_on_error(UNUSABLE):
        declared = usable_gateway(inventory).declared
    rows = [
        (name, user.streams, list(user.models or declared.models), str(user.key.file or f"${user.key.env}"))
        for name, user in sorted(declared.users.items())
    ]
    if as_json:
        rows_json = [dict(zip(("name", "streams", "models", "key"), row, strict=True)) for row in rows]
        print_envelope(Envelope(True, data={"users": rows_json}))
        return
    for name, streams, models, key in rows:
        echo(f"{name}: {streams} at the same time, {', '.join(models)}; key in {key}")
    if not rows:
        echo("the gateway has no users yet: add one with `herd users add NAME`", err=True)


@users.command()
@click.argument("name")
@inventory_option
@click.pass_obj
def revoke(inventory: Path | None, name: str) -> None:
    """Remove a user and the key.

    \b
    Example:
      herd users revoke ann
    """
    with exit_on_error(UNUSABLE):
        gateway = usable_gateway(inventory)
        gone = revoke_user(gateway, name)
    echo(f"removed {name} from {gateway.file}{f', and {gone}' if gone else ''}", err=True)
    echo(f"the key is valid until `herd up {' '.join(gateway.declared.on)}`", err=True)


@users.command()
@click.argument("name")
@inventory_option
@click.pass_obj
def rotate(inventory: Path | None, name: str) -> None:
    """Replace the key of a user, and print the new key once.

    \b
    Example:
      herd users rotate tom
    """
    with exit_on_error(UNUSABLE):
        gateway = usable_gateway(inventory)
        made = rotate_key(gateway, name)
    _print_key(gateway, made, name)


def _print_key(gateway: DeclaredGateway, made: NewKey, name: str) -> None:
    """Print the key to stdout, so that it can be piped, and the next steps to stderr."""
    click.echo(made.key)
    echo(f"the key of {name} is shown only now; it is stored in {made.file}", err=True)
    echo(f"it is valid after the next `herd up {' '.join(gateway.declared.on)}`", err=True)


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
      herd clients opencode --user tom > opencode.json
      herd clients curl --user tom --url https://llm.lan | sh
      herd clients claude-code --user ann --ca /Users/ann/herd-root.pem
    """
    with exit_on_error(UNUSABLE):
        gateway = usable_gateway(inventory)
        config = client_config(client, client_facts(gateway, user, url, ca))
    click.echo(config.text, nl=False)
    echo(f"write this to {config.place}, and the key of {user} to the variable {KEY_VARIABLE}", err=True)
    if gateway.declared.loopback and url is None:
        rig = gateway.declared.on[0]
        echo(f"the gateway listens on localhost of rig {rig}: use it there, or through `ssh -L`", err=True)
