"""The newest versions of what the rigs of a fleet use, and their places in the inventory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llamaherd.cli.common import counted, echo
from llamaherd.inventory.schema import Fleet
from llamaherd.lock import Lock
from llamaherd.lock.newest import Key, Version, newest_versions
from llamaherd.lock.resolver import Requirements, requirements_of, value_places
from llamaherd.pipeline.fleet_files import Survey, choose_rigs
from llamaherd.pipeline.load import declared, inventory_path, read_lock


@dataclass(frozen=True)
class NewestVersions:
    """The versions of a fleet, and those of each rig."""

    path: Path
    survey: Survey
    lock: Lock
    versions: tuple[Version, ...]
    by_rig: Mapping[str, tuple[Version, ...]]


def newest_of_fleet(inventory: Path | None, names: tuple[str, ...]) -> NewestVersions:
    """Query the newest versions of the named rigs, or of all rigs. Raise InventoryError."""
    path = inventory_path(inventory)
    survey, lock = declared(path), read_lock(path)
    rigs = choose_rigs(survey.fleet, names, path).rigs
    of_rigs = {name: _keys(survey, path, {name}) for name in rigs}
    required = _wanted(survey, path, {*rigs})
    count = len(required.refs) + len(required.images) + len(required.models)
    echo(f"--> Querying {counted(count, 'version')}...", err=True)
    versions = newest_versions(required, lock)
    by_rig = {name: tuple(each for each in versions if each.key in keys) for name, keys in of_rigs.items()}
    return NewestVersions(path, survey, lock, versions, by_rig)


def _wanted(survey: Survey, path: Path, names: set[str]) -> Requirements:
    """Return what some rigs need to be locked; the image of the chat page belongs to the first gateway."""
    fleet = Fleet(rigs={name: rig for name, rig in survey.fleet.rigs.items() if name in names})
    gateway = survey.own.gateway if survey.own else None
    own = survey.own if gateway and gateway.on[0] in names else None
    return requirements_of(fleet, value_places(survey.documents, path), own)


def _keys(survey: Survey, path: Path, names: set[str]) -> set[Key]:
    required = _wanted(survey, path, names)
    return {*required.refs, *required.images, *required.models}
