"""`herd prune`: what is of no use any more on hosts, shown and removed."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llamaherd.cli.common import (
    FAILED,
    asking_or_exit,
    inventory_option,
    json_option,
    keep_option,
    rigs_argument,
    say,
    usable_plans,
)
from llamaherd.text.numbers import show_size

if TYPE_CHECKING:
    from llamaherd.host.remote import Remote
    from llamaherd.onhost.removal import Outcome
    from llamaherd.store.holdings import Holdings
    from llamaherd.store.unused import HostItems


@dataclass(frozen=True)
class Found:
    """What lies on one host: in its store, and beside it."""

    remote: Remote
    things: HostItems
    holdings: Holdings

    @property
    def frees(self) -> int:
        """Bytes that come free if all goes that can."""
        return self.things.frees + self.holdings.frees

    def as_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        models = {"models": [asdict(each) for each in self.holdings.removals]}
        return self.things.as_json() | models | {"frees": self.frees}


@dataclass(frozen=True)
class Gone:
    """What was removed of it, and what was not and why. Or `error`, why that is not known."""

    things: Outcome | None = None
    models: Outcome | None = None
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether all went that was to go."""
        return not self.error and all(each is None or each.ok for each in (self.things, self.models))


@click.command()
@rigs_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what would go, and remove nothing.")
@keep_option
@inventory_option
@json_option
@click.pass_obj
def prune(inventory: Path | None, rigs: tuple[str, ...], yes: bool, dry_run: bool, keep: int, as_json: bool) -> None:
    """Remove what nothing needs any more.

    That is builds, images, models, preset files and caches. What is declared stays, and what runs, what anything on the
    host names, what is kept to be put back, and what the newest releases that came out well need. Each host looks again
    before it removes something.

    \b
    Examples:
      herd prune --dry-run       what would go, and what would come free
      herd prune duo             show it, ask, and remove it
      herd prune duo --keep 0    give up going back, too
    """
    asking_or_exit("anything", yes or dry_run, as_json)
    found, failed = _look(inventory, rigs, keep)
    going = {name: each for name, each in found.items() if each.frees}
    if not as_json:
        for name, each in found.items():
            _show(name, each)
    sure = not dry_run and going and (yes or click.confirm("Remove it?"))
    gone = {name: _remove(each, keep) for name, each in going.items()} if sure else {}
    if as_json:
        values = [each.as_json() | {"outcome": _gone_json(gone.get(name))} for name, each in found.items()]
        click.echo(json.dumps({"rigs": [*values, *({"rig": name, "error": why} for name, why in failed.items())]}))
    else:
        for name, outcome in gone.items():
            _say_gone(name, outcome)
        if going and not sure and not dry_run:
            say("nothing was removed")
    if failed or not all(each.ok for each in gone.values()):
        sys.exit(FAILED)


def _look(inventory: Path | None, rigs: tuple[str, ...], keep: int) -> tuple[dict[str, Found], dict[str, str]]:
    """What lies on the hosts that can be asked; and why the others cannot, which is said."""
    from llamaherd.host.remote import Remote, RemoteError
    from llamaherd.store.holdings import inspect_store
    from llamaherd.store.unused import inspect_items

    found: dict[str, Found] = {}
    failed: dict[str, str] = {}
    for name, (rig, plan) in usable_plans(inventory, rigs).items():
        remote = Remote(rig.connect)
        try:
            found[name] = Found(remote, inspect_items(plan, remote, keep), inspect_store(plan, remote, keep))
        except RemoteError as error:
            failed[name] = str(error)
            say(f"{name}: {error}", err=True)
    return found, failed


def _show(name: str, found: Found) -> None:
    """What can go, and what stays for nothing but going back."""
    from llamaherd.store.show import described

    if found.frees:
        say(f"{name}: {show_size(found.frees)} would come free")
    else:
        say(f"{name}: nothing to remove")
    for thing in found.things.removals:
        say(f"  {show_size(thing.size):>8}  {thing.what}")
    for removal in found.holdings.removals:
        say(f"  {show_size(removal.frees):>8}  model {described(removal)}")
    for thing in found.things.things:
        if thing.needed_by and all(by.startswith(("release ", "kept ")) for by in thing.needed_by):
            say(f"  {thing.what} stays for {thing.needed_by[0]}")


def _remove(found: Found, keep: int) -> Gone:
    from llamaherd.host.remote import RemoteError
    from llamaherd.store.holdings import remove_unused
    from llamaherd.store.unused import remove_items

    try:
        return Gone(
            remove_items(found.things, found.remote, keep) if found.things.removals else None,
            remove_unused(found.holdings, found.remote, keep) if found.holdings.removals else None,
        )
    except RemoteError as error:
        return Gone(error=str(error))


def _say_gone(name: str, gone: Gone) -> None:
    if gone.error:
        say(f"{name}: {gone.error}", err=True)
        return
    removed = [what for each in (gone.things, gone.models) if each for what in each.removed]
    say(f"{name}: removed {', '.join(removed) or 'nothing'}")
    for each in (gone.things, gone.models):
        for what, why in (each.kept if each else {}).items():
            say(f"  kept {what}: {why}")
    if any(each and each.busy is not None for each in (gone.things, gone.models)):
        say("  another run is at work there: not all was removed\n  help: try again when it has ended", err=True)


def _gone_json(gone: Gone | None) -> dict[str, Any] | None:
    return asdict(gone) if gone else None
