"""Load an inventory, its lock, the keys of its servers, and the plans of its rigs."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from llamaherd import lock
from llamaherd.checks.files import MISSING_FILE
from llamaherd.diagnostics.findings import Finding, InventoryError, Place
from llamaherd.host.protocol import UnexpectedLineError, query_verb
from llamaherd.host.remote import NoPythonError, Remote, RemoteError, query_all
from llamaherd.inventory.api_keys import ServerKey, UnmadeKey, make_key, with_server_keys
from llamaherd.inventory.schema import Fleet, Rig
from llamaherd.layout import KEYS
from llamaherd.lock.apply import NOT_LOCKED, NotLockedError
from llamaherd.onhost.files import KeysFound, KeysInput
from llamaherd.pipeline.discovery import INVENTORY, find_fleet
from llamaherd.pipeline.fleet_files import (
    FLEET,
    Edit,
    Survey,
    choose_rigs,
    examine_fleet,
    load_fleet,
    read_rigs,
    survey_fleet,
)
from llamaherd.pipeline.plan import choose_parts, plan
from llamaherd.plan import Only, Plan
from llamaherd.role.role import Role

if TYPE_CHECKING:
    from llamaherd.lock.resolver import Requirements

OnKeyMade = Callable[[ServerKey], None]
"""Is called with each key that was just made."""
_KEYS_SECONDS = 60
_NEW_KEY_COMMAND = "`openssl rand -hex 32`, with mode 600"


def with_keys(surveyed: Survey, chosen: Collection[str], made: OnKeyMade | None) -> Survey:
    """Return the fleet with keys for the servers of the chosen rigs, as the gateways in front of them need.

    With `made`, missing keys are created; without it, placeholders stand for them. If a rig of a key does not respond,
    the key is not created, and a finding reports that. Raises InventoryError if a host has a key that is not here.
    """
    of_all = surveyed.own is not None and not surveyed.own.on.isdisjoint(chosen)
    missing = [
        key for key in surveyed.keys if not key.is_made and (of_all or not key.servers.keys().isdisjoint(chosen))
    ]
    if not missing:
        return surveyed
    there = _query_keys(missing, surveyed.around)
    if elsewhere := [finding for key in missing for finding in _made_elsewhere(key, there)]:
        raise InventoryError(elsewhere)
    silent = {rig for rig, found in there.items() if isinstance(found, RemoteError)}
    new = [key for key in missing if silent.isdisjoint(key.servers)]
    unknown = [_unknown_key(key, min(silent & key.servers.keys())) for key in missing if key not in new]
    surveyed = replace(surveyed, findings=(*surveyed.findings, *unknown))
    if made is None:
        around = {name: with_server_keys(rig, new, UnmadeKey) for name, rig in surveyed.around.items()}
        return replace(surveyed, around=around)
    for key in new:
        make_key(key)
        made(key)
    return surveyed


def _made_elsewhere(key: ServerKey, there: Mapping[str, Collection[str] | RemoteError]) -> Iterator[Finding]:
    """Yield the finding of a key that a host has, but not this machine."""
    for rig in key.servers:
        found = there[rig]
        if not isinstance(found, RemoteError) and found:
            server = min(found)
            message = f"there is no file {key.file}, and the host of rig `{rig}` has a key for `{server}`"
            help_ = f"bring the file from where `herd up` made it, or what is in {KEYS / server} on that host; or "
            yield MISSING_FILE.at(
                Place(key.file), message, f"{help_}write another key there: {_NEW_KEY_COMMAND}", "error"
            )
            return


def _unknown_key(key: ServerKey, rig: str) -> Finding:
    message = f"there is no file {key.file}, and rig `{rig}`, which may have that key, is unreachable"
    help_ = f"`herd up` makes it when that rig responds; or write a key there: {_NEW_KEY_COMMAND}"
    return MISSING_FILE.at(Place(key.file), message, help_, "warning")


def _query_keys(keys: Iterable[ServerKey], rigs: Mapping[str, Rig]) -> dict[str, frozenset[str] | RemoteError]:
    """Return the servers with a key on the host of each rig; or the error of a host."""
    by_rig = {rig: sorted(servers) for key in keys for rig, servers in key.servers.items()}

    def query(name: str) -> frozenset[str] | RemoteError:
        given = KeysInput(tuple(by_rig[name]))
        try:
            remote = Remote(rigs[name].connect, note_key=True)
            found = frozenset(query_verb(remote, "llamaherd.files.keys", given, KeysFound, _KEYS_SECONDS).names)
        except NoPythonError:
            return frozenset()  # such a host was never set up
        except RemoteError as error:
            return error
        return found if found <= {*given.names} else UnexpectedLineError(f"a key of {min(found)}")

    return query_all({name: name for name in by_rig}, query)


def inventory_path(named: Path | None) -> Path:
    """Return the given inventory, else the fleet folder that the command runs in, else the one in HERD_INVENTORY.

    Without any of them, return `inventory/` in the current folder, which may not exist.
    """
    return named or find_fleet() or Path(os.environ.get("HERD_INVENTORY") or INVENTORY)


def inventory_folder(inventory: Path) -> Path:
    """Return the folder of an inventory, which is a folder or a file."""
    return inventory if inventory.is_dir() else inventory.parent


def lock_path(inventory: Path) -> Path:
    """Return the path of the lock, which is in the inventory folder."""
    return inventory_folder(inventory) / "herd.lock"


def lock_command(inventory: Path) -> str:
    """Return the command that locks an inventory, as it is called in the current folder."""
    return "herd lock" if inventory == find_fleet() else f"herd -i {inventory} lock"


def read_lock(inventory: Path) -> lock.Lock:
    """Return the inventory's lock; an empty one if there is none yet. Raises InventoryError."""
    try:
        return lock.read_lock_file(lock_path(inventory))
    except lock.LockError as error:
        raise InventoryError([error.finding]) from None


def examined(inventory: Path) -> tuple[Fleet, tuple[Finding, ...]]:
    """Return the readable part of the fleet, and all findings about it and its lock, if there is one."""
    try:
        locked = read_lock(inventory)
    except InventoryError as error:
        fleet, findings = examine_fleet(inventory)
        return fleet, (*findings, *error.findings)
    return examine_fleet(inventory, locked)


def declared(inventory: Path) -> Survey:
    """Return the whole inventory without its lock, which is about to be renewed. Raises InventoryError."""
    surveyed = survey_fleet(inventory)
    if not surveyed.ok:
        raise InventoryError(surveyed.findings)
    return surveyed


def missing_names(inventory: Path, locked: lock.Lock, names: Collection[str] = ()) -> Requirements:
    """Return what these rigs, or all, declare and the lock lacks. Raises InventoryError.

    Mistakes in the inventory are left out: a rig that cannot be read needs nothing.
    """
    from llamaherd.lock.resolver import requirements_of, value_places  # late: only `herd up` and `herd lock` need it

    read = read_rigs(inventory)
    chosen = {name: rig for name, rig in read.fleet.rigs.items() if not names or name in names}
    own = read.own if read.own and not read.own.on.isdisjoint(chosen) else None
    required = requirements_of(Fleet(rigs=chosen), value_places(read.documents, inventory), own)
    return required.missing(locked, inventory_folder(inventory).resolve())


def rigs(inventory: Path, names: Iterable[str] = (), *, deploying: bool = False) -> Fleet:
    """Return the rigs of these names, or all rigs. Raises InventoryError."""
    return choose_rigs(load_fleet(inventory, read_lock(inventory), deploying=deploying), names, inventory)


def plans(
    inventory: Path,
    roles: Sequence[Role],
    names: Iterable[str] = (),
    *,
    deploying: bool = False,
    doubtful: Callable[[Sequence[Finding]], None] = lambda _: None,
    of_run: Callable[[Sequence[Finding]], None] = lambda _: None,
    sound: Callable[[Mapping[str, Rig]], None] = lambda _: None,
    only: Sequence[str] = (),
    edit: Edit | None = None,
    locked: lock.Lock | None = None,
    made: OnKeyMade | None = None,
    texts: Mapping[Path, str] = MappingProxyType({}),
) -> dict[str, tuple[Rig, Plan]]:
    """Return the rigs of these names, or all rigs, with their plans. `doubtful` gets the findings that are no errors.

    `of_run` gets those that `herd check` does not report: of the lock's entries, and of keys on hosts. `sound` gets the
    rigs once they are free of errors, before they are planned. `only` names instances and roles: rigs with none of them
    are left out. `edit` may change each rig before it is checked, without the checks of the whole fleet. `locked`
    replaces the lock in the inventory folder. With `made`, missing keys of servers are created, and `made` gets each of
    them. `texts` replace files of the inventory.

    Raises InventoryError, also for what is not locked (LH031), and UserError if `only` contains an unknown name.
    """
    locked = read_lock(inventory) if locked is None else locked
    surveyed = survey_fleet(inventory, locked, deploying=deploying, edit=edit, texts=texts)
    if not surveyed.ok:
        raise InventoryError(surveyed.findings)
    fleet = choose_rigs(surveyed.fleet, names, inventory)
    command = lock_command(inventory)
    stale = _stale(fleet, locked, surveyed, command, inventory_folder(inventory).resolve())
    parts = choose_parts(only, fleet.rigs, roles) if only else dict.fromkeys(fleet.rigs)
    sound({name: rig for name, rig in fleet.rigs.items() if name in parts})
    checked = surveyed.findings
    surveyed = with_keys(surveyed, parts, made) if deploying else surveyed
    rigs = {name: surveyed.around[name] for name in fleet.rigs if name in parts}
    planned = _planned(rigs, parts, surveyed, locked, roles, lock_path(inventory), command)
    chosen = _chosen_files(surveyed, rigs)
    doubtful([finding for finding in checked if finding.place.file in chosen])
    others = (*surveyed.findings[len(checked) :], *stale)
    if found := [finding for finding in others if finding.place.file in chosen]:
        of_run(found)
    return planned


def _stale(fleet: Fleet, locked: lock.Lock, surveyed: Survey, command: str, folder: Path) -> list[Finding]:
    """Return the findings of entries in the lock that differ from the declaration. Raises InventoryError for errors."""
    stale = [
        finding
        for name, rig in fleet.rigs.items()
        for finding in lock.stale(rig, locked, surveyed.documents[name].value, command, folder)
    ]
    if errors := [finding for finding in stale if finding.severity == "error"]:
        raise InventoryError(errors)
    return stale


def _chosen_files(surveyed: Survey, rigs: Collection[str]) -> set[Path]:
    """Return the files of these rigs, and the fleet's own file if one of them has a part in it."""
    chosen = {document.file for name, document in surveyed.documents.items() if name in rigs}
    chosen |= {key.file for key in surveyed.keys}
    if surveyed.own and not surveyed.own.on.isdisjoint(rigs):
        chosen |= {document.file.with_name(FLEET) for document in surveyed.documents.values()}
    return chosen


def _planned(
    rigs: Mapping[str, Rig],
    parts: Mapping[str, Only | None],
    surveyed: Survey,
    locked: lock.Lock,
    roles: Sequence[Role],
    file: Path,
    command: str,
) -> dict[str, tuple[Rig, Plan]]:
    """Return each rig with its plan. Raises InventoryError for what is not locked: `command` locks it, in this file."""
    planned: dict[str, tuple[Rig, Plan]] = {}
    findings = []
    measured = _measured(roles, surveyed, file.parent) if rigs else {}
    for name, rig in rigs.items():
        try:
            facts = replace(surveyed.facts[name], rig=rig)  # which has the keys that were made meanwhile
            made = plan(facts, locked, roles, surveyed.around, parts[name], surveyed.own, measured)
            planned[name] = (rig, made)
        except NotLockedError as error:
            # A file of this machine needs no entry, unless its experts are placed by its header.
            findings.append(
                NOT_LOCKED.at(Place(file), f"rig `{name}`: {error}", f"run `{command}` and commit the lock")
            )
    if findings:
        raise InventoryError(findings)
    return planned


def _measured(roles: Sequence[Role], surveyed: Survey, folder: Path) -> dict[str, float]:
    """Return the measured speeds of servers that roles need, from the inventory folder."""
    if surveyed.own is None:
        return {}
    found = (role.measured(folder, surveyed.around, surveyed.own) for role in roles)
    return {server: speed for each in found for server, speed in each.items()}
