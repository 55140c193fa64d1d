"""`herd prune`: show and remove unused files on hosts."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import (
    FAILED,
    echo,
    inventory_option,
    is_quiet,
    json_option,
    keep_option,
    quiet_option,
    require_yes,
    rigs_argument,
    yes_option,
)
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.cli.rigs import plans_or_exit
from llamaherd.host.remote import Remote, RemoteError
from llamaherd.onhost.removal import Outcome
from llamaherd.store.holdings import Holdings, inspect_store, remove_unused
from llamaherd.store.show import described
from llamaherd.store.unused import HostItems, inspect_items, remove_items
from llamaherd.text.numbers import show_size


@dataclass(frozen=True)
class Found:
    """The files of one host: models in its store, and everything else."""

    remote: Remote
    things: HostItems
    holdings: Holdings

    @property
    def frees(self) -> int:
        """Return the bytes that are freed if all unused files are removed."""
        return self.things.frees + self.holdings.frees

    def as_json(self) -> dict[str, Any]:
        """Return the files as JSON values."""
        models = {"models": [asdict(each) for each in self.holdings.removals]}
        return self.things.as_json() | models | {"frees": self.frees}


@dataclass(frozen=True)
class Removed:
    """What was removed, and what was kept and why; or `error`, why the outcome is unknown."""

    things: Outcome | None = None
    models: Outcome | None = None
    error: str = ""

    @property
    def ok(self) -> bool:
        """Return whether everything was removed that should be."""
        return not self.error and all(each is None or each.ok for each in (self.things, self.models))


@click.command()
@rigs_argument
@yes_option("Do not prompt.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@keep_option
@quiet_option
@inventory_option
@json_option
@click.pass_obj
def prune(inventory: Path | None, rigs: tuple[str, ...], yes: bool, dry_run: bool, keep: int, as_json: bool) -> None:
    """Remove unused builds, images, models and sources.

    Preset files are removed too. The compiler cache is kept, and so are files that are declared, running, named by
    anything else on the host, stored for a rollback, or part of the newest successful releases. Each host checks again
    before it removes something.

    \b
    Examples:
      herd prune --dry-run       show unused files and their size
      herd prune duo             show them, prompt, and remove them
      herd prune duo --keep 0    also files that only a rollback needs
    """
    require_yes("anything", yes or dry_run, as_json)
    found, failed = _inspect_hosts(inventory, rigs, keep)
    going = {name: each for name, each in found.items() if each.frees}
    if not as_json and not (yes and is_quiet()):
        for name, each in found.items():
            _show(name, each)
    sure = not dry_run and going and (yes or click.confirm("Remove it?"))
    gone = {name: _remove(each, keep) for name, each in going.items()} if sure else {}
    ok = not failed and all(each.ok for each in gone.values())
    if as_json:
        values = [
            each.as_json() | {"outcome": asdict(gone[name]) if name in gone else None} for name, each in found.items()
        ]
        print_envelope(Envelope(ok, [*values, *({"rig": name, "error": why} for name, why in failed.items())]))
    else:
        for name, outcome in gone.items():
            _print_removed(name, outcome)
        if going and not sure and not dry_run:
            echo("nothing was removed")
    if not ok:
        sys.exit(FAILED)


def _inspect_hosts(inventory: Path | None, rigs: tuple[str, ...], keep: int) -> tuple[dict[str, Found], dict[str, str]]:
    """Return the files of the reachable hosts, and the errors of the other hosts. Print errors at once."""
    found: dict[str, Found] = {}
    failed: dict[str, str] = {}
    for name, (rig, plan) in plans_or_exit(inventory, rigs).items():
        remote = Remote(rig.connect)
        try:
            found[name] = Found(remote, inspect_items(plan, remote, keep), inspect_store(plan, remote, keep))
        except RemoteError as error:
            failed[name] = str(error)
            echo(f"{name}: {error}", err=True)
    return found, failed


def _show(name: str, found: Found) -> None:
    """Print what can be removed, and what is kept only for a rollback."""
    if found.frees:
        echo(f"{name}: {show_size(found.frees)} would be freed")
    else:
        echo(f"{name}: nothing to remove")
    for thing in found.things.removals:
        echo(f"  {show_size(thing.size):>8}  {thing.what}")
    for removal in found.holdings.removals:
        echo(f"  {show_size(removal.frees):>8}  model {described(removal)}")
    for thing in found.things.things:
        if thing.needed_by and all(by.startswith(("release ", "kept ")) for by in thing.needed_by):
            echo(f"  kept for {thing.needed_by[0]}: {thing.what}")


def _remove(found: Found, keep: int) -> Removed:
    try:
        return Removed(
            remove_items(found.things, found.remote, keep) if found.things.removals else None,
            remove_unused(found.holdings, found.remote, keep) if found.holdings.removals else None,
        )
    except RemoteError as error:
        return Removed(error=str(error))


def _print_removed(name: str, gone: Removed) -> None:
    if gone.error:
        echo(f"{name}: {gone.error}", err=True)
        return
    removed = [what for each in (gone.things, gone.models) if each for what in each.removed]
    echo(f"{name}: removed {', '.join(removed) or 'nothing'}")
    for each in (gone.things, gone.models):
        for what, why in (each.kept if each else {}).items():
            echo(f"  kept {what}: {why}")
    if any(each and each.busy is not None for each in (gone.things, gone.models)):
        echo("  not everything was removed: another run is active\n  help: try again when it has ended", err=True)
