"""`herd users`: who may use the gateway; keys are made here, shown once, and kept in files beside the inventory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from llamaherd.cli.common import UNUSABLE, fail, inventory_option, json_option, say, usable_or_exit
from llamaherd.diagnostics.findings import UserError

if TYPE_CHECKING:
    from llamaherd.fleet.gateway import DeclaredGateway
    from llamaherd.fleet.users import NewKey

T = TypeVar("T")


@click.group()
def users() -> None:
    """Who may use the gateway: add, list, revoke, rotate.

    Keys are made here, shown once, and kept in `keys/users/` beside the inventory with mode 600. `fleet.yaml` names
    the files. `herd up` tells the gateway, which serves on meanwhile.

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
@click.option("--streams", type=click.IntRange(1, 1024), help="Requests at once. Default: 4.")
@click.option("--model", "models", multiple=True, metavar="MODEL", help="A model to use; all without it. Repeatable.")
@inventory_option
@click.pass_obj
def add(inventory: Path | None, name: str, streams: int | None, models: tuple[str, ...]) -> None:
    """Add a user, and print the key, once.

    \b
    Example:
      herd users add ann --model chat --streams 2
    """
    from llamaherd.fleet import users as keys

    gateway = _gateway(inventory)
    _shown(gateway, _or_exit(lambda: keys.add_user(gateway, name, streams, models)), name)


@users.command(name="list")
@inventory_option
@json_option
@click.pass_obj
def list_(inventory: Path | None, as_json: bool) -> None:
    """List users, what each may use, and where the key is.

    The key itself is not shown.

    \b
    Example:
      herd users list --json
    """
    declared = _gateway(inventory).declared
    rows = [
        (name, user.streams, list(user.models or declared.models), str(user.key.file or f"${user.key.env}"))
        for name, user in sorted(declared.users.items())
    ]
    if as_json:
        told = [dict(zip(("name", "streams", "models", "key"), row, strict=True)) for row in rows]
        click.echo(json.dumps({"users": told}))
        return
    for name, streams, models, key in rows:
        say(f"{name}: {streams} at once, {', '.join(models)}; key in {key}")
    if not rows:
        say("nobody may use the gateway yet: `herd users add NAME`", err=True)


@users.command()
@click.argument("name")
@inventory_option
@click.pass_obj
def revoke(inventory: Path | None, name: str) -> None:
    """Take a user out, and the key with it.

    \b
    Example:
      herd users revoke ann
    """
    from llamaherd.fleet import users as keys

    gateway = _gateway(inventory)
    gone = _or_exit(lambda: keys.revoke_user(gateway, name))
    say(f"{name} is taken out of {gateway.file}{f', and {gone} is removed' if gone else ''}", err=True)
    say(f"the key counts until `herd up {' '.join(gateway.declared.on)}`", err=True)


@users.command()
@click.argument("name")
@inventory_option
@click.pass_obj
def rotate(inventory: Path | None, name: str) -> None:
    """Give a user another key, and print it, once.

    \b
    Example:
      herd users rotate tom
    """
    from llamaherd.fleet import users as keys

    gateway = _gateway(inventory)
    _shown(gateway, _or_exit(lambda: keys.rotate_key(gateway, name)), name)


def _shown(gateway: DeclaredGateway, made: NewKey, name: str) -> None:
    """The key alone on stdout, so that it can be passed on; what to do next beside it."""
    click.echo(made.key)
    say(f"the key of {name}, shown this once; it is kept in {made.file}", err=True)
    say(f"it counts from the next `herd up {' '.join(gateway.declared.on)}` on", err=True)


def _gateway(inventory: Path | None) -> DeclaredGateway:
    from llamaherd.fleet.gateway import declared_gateway
    from llamaherd.pipeline.load import inventory_path

    return _or_exit(lambda: usable_or_exit(lambda: declared_gateway(inventory_path(inventory))))


def _or_exit(do: Callable[[], T]) -> T:
    try:
        return do()
    except UserError as error:
        fail(error, UNUSABLE)
