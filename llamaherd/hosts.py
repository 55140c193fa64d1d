"""From the inventory to pyinfra's hosts. Everything that can be wrong is said here, before a host is touched."""

from __future__ import annotations

from typing import Any

import click
from pyinfra.api import InventoryError as PyinfraInventoryError

from llamaherd.findings import InventoryError
from llamaherd.fleet import Connect
from llamaherd.planning import inventory_path, plans

Host = tuple[str, dict[str, Any]]


def pyinfra_hosts() -> list[Host]:
    """Every rig with its plan. Raises pyinfra's InventoryError, which it prints as one message."""
    try:
        planned = plans(inventory_path(None), _limits(), deploying=True)
    except InventoryError as error:
        raise PyinfraInventoryError(f"\n{error}") from None
    return [
        (name, {**_connection(rig.connect), "plan": plan.model_dump(mode="json")})
        for name, (rig, plan) in planned.items()
    ]


def _limits() -> tuple[str, ...]:
    """What --limit names: pyinfra itself ends with success when that is nothing."""
    context = click.get_current_context(silent=True)
    limit = context.params.get("limit") if context else None
    names = [part for value in limit or () for part in value.split(",") if part]
    # Patterns and groups are pyinfra's to match; a plain name that is no rig is a mistake.
    return tuple(name for name in names if not set(name) & set("*?[") and name not in {"all", "rigs", "inventory"})


def _connection(connect: Connect) -> dict[str, Any]:
    data: dict[str, Any] = {"ssh_hostname": connect.host, "ssh_port": connect.port}
    if connect.user:
        data["ssh_user"] = connect.user
    if connect.key:
        data["ssh_key"] = str(connect.key)
    if connect.known_hosts:
        data |= {"ssh_known_hosts_file": str(connect.known_hosts), "ssh_strict_host_key_checking": "yes"}
    return data
