"""Lock what is new in an inventory, as `herd up` does before it inspects hosts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from llamaherd.cli.common import FAILED, echo, print_findings, read_or_exit
from llamaherd.diagnostics.findings import InventoryError
from llamaherd.inventory.schema import Rig
from llamaherd.lock import Lock, LockError, lock_held, write_lock
from llamaherd.lock.resolver import lock_missing
from llamaherd.pipeline.fleet_files import choose_rigs
from llamaherd.pipeline.load import declared, inventory_folder, inventory_path, lock_path, missing_names, read_lock
from llamaherd.text.numbers import show_size

_MOST_NAMED = 4


def lock_new_names(
    inventory: Path | None, rigs: Collection[str], check_rigs: Callable[[Mapping[str, Rig]], None] = lambda _: None
) -> None:
    """Lock what these rigs, or all, declare and the lock lacks, and print it in one line. Locked versions stay.

    Mistakes in the inventory and in the lock are left to the run, which reports them. End the program if something
    cannot be resolved, if a rig does not exist, and if `check_rigs`, which is called with the rigs, raises
    InventoryError.
    """
    path = inventory_path(inventory)
    try:
        if not missing_names(path, read_lock(path), rigs).all:
            return
        fleet = declared(path).fleet  # nothing is locked for an inventory with errors
    except InventoryError:
        return
    read_or_exit(lambda: check_rigs(choose_rigs(fleet, rigs, path).rigs))
    target = lock_path(path)
    try:
        with lock_held(target, lambda line: echo(line, err=True)):
            _lock(path, target, rigs)
    except InventoryError:
        return
    except LockError as error:
        print_findings([error.finding])
        sys.exit(FAILED)


def _lock(path: Path, target: Path, rigs: Collection[str]) -> None:
    old = read_lock(path)  # again: another run may have written it meanwhile
    missing = missing_names(path, old, rigs)
    names = sorted({min(each.names) for each in missing.all})
    if names and sys.stderr.isatty():
        echo(f"--> Locking {_listed(names)}...", err=True)
    outcome = lock_missing(missing, old, lambda _: None, inventory_folder(path).resolve())
    print_findings(outcome.findings)
    if not outcome.ok:
        echo(f"{target} was not changed", err=True)
        sys.exit(FAILED)
    if write_lock(target, outcome.lock):
        echo(f"locked in {target}: {_listed([*_new_entries(old, outcome.lock)])}", err=True)


def _new_entries(old: Lock, new: Lock) -> Iterator[str]:
    """Yield what the new lock has in addition, each with its version."""
    for ref in new.engines:
        if ref not in old.engines:
            yield f"{ref.ref} at commit {ref.commit[:9]}"
    for image in new.images:
        if image not in old.images:
            yield f"{image.image} at {image.digest[:19]}"
    for model in new.models:
        if model not in old.models:
            yield f"{model.repo} at {model.commit[:9]} ({show_size(model.size)})"
    for file in new.files:
        if file not in old.files:
            yield f"{file.file} with sha256 {file.sha256[:12]}"
    for release in new.releases:
        if release not in old.releases:
            verified = ", attestation verified" if release.attested else ""
            yield f"release {release.release} for {release.system} ({show_size(release.size)}{verified})"
    for archive in new.archives:
        if archive not in old.archives:
            yield f"{archive.archive} with sha256 {archive.sha256[:12]}"


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return f"{', '.join(names[:_MOST_NAMED])}{f' and {more} more' if more > 0 else ''}"
