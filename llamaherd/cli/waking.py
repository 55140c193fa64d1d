"""`herd up` of a rig that sleeps: wake it, and inspect it again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from llamaherd.cli.common import echo
from llamaherd.cli.rigs import roles_or_exit
from llamaherd.deploy.proposals import proposed_changes
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.fleet.gateway import declared_gateway
from llamaherd.fleet.waking import wake_rigs
from llamaherd.inventory.schema import Rig
from llamaherd.pipeline.inspection import program_for
from llamaherd.pipeline.load import inventory_folder, inventory_path
from llamaherd.pipeline.preview import Hosts, Preview
from llamaherd.plan import Plan


def woken_previews(
    inventory: Path | None,
    planned: Mapping[str, tuple[Rig, Plan]],
    found: Mapping[str, Preview],
    *,
    retry: bool,
) -> dict[str, Preview]:
    """Return the previews, those of rigs that slept from another inspection. Print what happens."""
    silent = {name: rig for name, (rig, _) in planned.items() if found[name].silent and rig.wake}
    if not silent:
        return dict(found)
    path, roles = inventory_path(inventory), roles_or_exit(inventory)
    try:
        gateways = {name: rig for name, rig in declared_gateway(path).hosts.items() if name not in silent}
    except (InventoryError, UserError) as error:
        echo(f"{' and '.join(silent)} cannot be woken: {error}", err=True)
        return dict(found)
    woken = wake_rigs(gateways, silent, partial(echo, err=True))
    again = {name: planned[name] for name in planned if name in woken}
    if not again:
        return dict(found)
    hosts = Hosts({name: rig for name, (rig, _) in again.items()}, program_for(roles), partial(proposed_changes, path))
    return {**found, **hosts.outlooks(again, roles, retry=retry, folder=inventory_folder(path))}
