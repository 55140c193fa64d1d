"""The impure edge before the plan: which inventory, its lock, and the plans that follow."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from llamaherd import lock
from llamaherd.findings import Finding, InventoryError, Place
from llamaherd.fleet import Fleet, Rig
from llamaherd.inventory import choose, examine, load
from llamaherd.pinned import NotLockedError
from llamaherd.plan import plan
from llamaherd.planned import Plan


def inventory_path(named: Path | None) -> Path:
    """The inventory that is named, else the one in HERD_INVENTORY, else `inventory/` here."""
    return named or Path(os.environ.get("HERD_INVENTORY") or "inventory")


def lock_path(inventory: Path) -> Path:
    """The lock beside the inventory's files."""
    return (inventory if inventory.is_dir() else inventory.parent) / "herd.lock"


def read_lock(inventory: Path) -> lock.Lock:
    """The inventory's lock; an empty one where there is none yet. Raises InventoryError."""
    try:
        return lock.read(lock_path(inventory))
    except lock.LockError as error:
        raise InventoryError([Finding("LH030", error.place, error.message, error.help)]) from None


def examined(inventory: Path) -> tuple[Fleet, tuple[Finding, ...]]:
    """What can be read of the fleet, and all that is wrong or doubtful about it and its lock, as far as there is one."""
    try:
        locked = read_lock(inventory)
    except InventoryError as error:
        fleet, findings = examine(inventory)
        return fleet, (*findings, *error.findings)
    return examine(inventory, locked)


def rigs(inventory: Path, names: Iterable[str] = (), *, deploying: bool = False) -> Fleet:
    """The rigs that are named, or all. Raises InventoryError."""
    return choose(load(inventory, read_lock(inventory), deploying=deploying), names, inventory)


def plans(inventory: Path, names: Iterable[str] = (), *, deploying: bool = False) -> dict[str, tuple[Rig, Plan]]:
    """Every rig that is named, or all, with its plan. Raises InventoryError."""
    fleet = rigs(inventory, names, deploying=deploying)
    locked = read_lock(inventory)
    where, help_ = lock_path(inventory), f"run `herd -i {inventory} lock` and commit the lock"
    planned: dict[str, tuple[Rig, Plan]] = {}
    findings = []
    for name, rig in fleet.rigs.items():
        try:
            planned[name] = (rig, plan(rig, locked))
        except NotLockedError as error:
            findings.append(Finding("LH031", Place(where), f"rig `{name}`: {error}", help_))
    if findings:
        raise InventoryError(findings)
    return planned
