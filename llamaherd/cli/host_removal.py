"""The run of `herd down`: show what goes and what stays, ask, and remove it in two steps."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

import click

from llamaherd.cli.common import FAILED, counted, echo, is_quiet, progress, read_or_exit, require_yes
from llamaherd.cli.rigs import ChangeRow, change_row, print_rows, roles_or_exit
from llamaherd.cli.run_screen import marks, print_failures, run_screened_within
from llamaherd.deploy.origin import origin
from llamaherd.diagnostics.findings import UserError
from llamaherd.host.protocol import HostLock
from llamaherd.host.remote import NoPythonError, Remote, RemoteError
from llamaherd.inventory.schema import Rig
from llamaherd.layout import SET_ASIDE
from llamaherd.onhost.removal import Outcome
from llamaherd.onhost.uninstall import Installed
from llamaherd.pipeline.inspection import inspect_host
from llamaherd.pipeline.load import inventory_path
from llamaherd.pipeline.load import rigs as declared_rigs
from llamaherd.pipeline.preview import ROLE_ERRORS, Preview, preview_changes
from llamaherd.pipeline.removal import (
    Stored,
    empty_plan,
    inspect_installed,
    inspect_stored,
    remove_rest,
    removing_roles,
    unremovable_roles,
)
from llamaherd.plan import Plan
from llamaherd.text.numbers import show_seconds, show_size

_NEAR_ROOT = 2
"""Slashes in a path such as /opt/llamaherd, which is shown by itself."""


@dataclass(frozen=True)
class DownOptions:
    """The options of `herd down`."""

    inventory: Path | None
    rig: str
    purge: bool
    yes: bool
    dry_run: bool
    lock_wait: int


@dataclass(frozen=True)
class Removal:
    """What a removal does on a host. `stored` is inspected for a purge. `others` are own roles whose work stays."""

    rig: Rig
    plan: Plan
    preview: Preview = field(default_factory=Preview)
    installed: Installed = field(default_factory=Installed)
    stored: Stored | None = None
    others: tuple[str, ...] = ()

    @property
    def needed(self) -> bool:
        """Return whether there is anything to remove."""
        there, stored = self.installed, self.stored
        purged = stored is not None and bool(there.accounts or there.paths or stored.unused)
        return bool(self.preview.changes or there.units or there.containers) or purged

    def is_kept(self, users: Iterable[str]) -> str:
        """Return the user that is neither removed nor a record of llamaherd's own; empty if there is none."""
        servers = {name for each in self.preview.changes if each.kind == "server" for name in each.name.split(", ")}
        gone = {f"unit {each}.service" for each in servers} | {f"container {each}" for each in servers}
        own = ("release ", "kept ")
        return next((each for each in users if each not in gone and not each.startswith(own)), "")


def run_down(run: DownOptions) -> None:
    """Remove what is on a host. End the program with 1 if something is left."""
    require_yes(f"what is on {run.rig}", run.yes or run.dry_run, as_json=False)
    path = inventory_path(run.inventory)
    rig = read_or_exit(lambda: declared_rigs(path, (run.rig,))).rigs[run.rig]
    found = _inspect(run, rig)
    if not found.needed:
        echo(f"{run.rig}: nothing to remove")
        if not run.purge and (found.installed.paths or found.installed.accounts):
            progress("models, engines, accounts, state and logs are still there; --purge removes them")
        return
    if not (run.yes and is_quiet()):
        show_removal(found)
    if run.dry_run:
        return
    if not run.yes and not click.confirm("Remove it?"):
        echo("nothing was removed")
        sys.exit(FAILED)
    began = monotonic()
    if not (_remove_services(run, path, found) and _remove_rest(run, path, rig, found)):
        echo(f"{run.rig}: not everything was removed; run the command again to resume", err=True)
        sys.exit(FAILED)
    echo(f"{run.rig} {marks()[0]} removed in {show_seconds(monotonic() - began)}")
    progress(f"the inventory is unchanged: `herd up {run.rig}` sets the rig up again")


def _inspect(run: DownOptions, rig: Rig) -> Removal:
    """Inspect the host. End the program if it cannot be inspected."""
    roles = roles_or_exit(run.inventory)
    plan, removing = empty_plan(rig, roles), removing_roles(roles)
    progress("--> Inspecting 1 host...")
    try:
        state = inspect_host(Remote(rig.connect), plan, removing)
        preview = preview_changes(plan, removing, state, rig.connect, {})
        installed = inspect_installed(rig)
        stored = inspect_stored(rig, plan) if run.purge else None
    except NoPythonError:  # so that no run has set it up
        return Removal(rig, plan)
    except (RemoteError, *ROLE_ERRORS) as error:
        echo(f"{run.rig}: {error}", err=True)
        sys.exit(FAILED)
    for problem in preview.problems:
        echo(f"{run.rig}: {problem}", err=True)
    if preview.problems:
        sys.exit(FAILED)
    return Removal(rig, plan, preview, installed, stored, unremovable_roles(roles))


def show_removal(found: Removal) -> None:
    """Print what goes, and what stays."""
    there, rig = found.installed, found.rig.rig
    named = [("unit", each) for each in there.units] + [("container", each) for each in there.containers]
    rows = [change_row(replace(each, reasons=())) for each in found.preview.changes]  # the command is the reason
    rows += [_row(f"{kind} {name}") for kind, name in named]
    if found.stored:
        rows += [_row(f"account {name}") for name in there.accounts]
        rows += _stored_rows(found, found.stored)
        rows += [_row(f"folder {path}", f"{show_size(size)} in all") for path, size in _purged_folders(there)]
    echo(f"{rig}: this is removed")
    print_rows(rows)
    echo(f"{rig}: this stays")
    for line in _staying(found):
        echo(f"  {line}")


def _row(thing: str, *details: str) -> ChangeRow:
    return ChangeRow("-", thing, details, "")


def _purged_folders(there: Installed) -> Iterator[tuple[str, int]]:
    """Yield the folders in which a purge removes something, with their sizes."""
    for folder, size in there.sizes.items():
        if any(path == folder or path.startswith(f"{folder}/") for path in there.paths):
            yield folder, size


def _stored_rows(found: Removal, stored: Stored) -> list[ChangeRow]:
    """Return the rows of models and engines that no other program uses."""
    models = [each for each in stored.holdings.revisions if each.state in ("whole", "unfinished")]
    going = [each for each in models if not found.is_kept(f"{user.kind} {user.name}" for user in each.users)]
    items = [each for each in stored.items.things if each.size and not found.is_kept(each.needed_by)]
    size = show_size(sum(each.size for each in items))
    counts = Counter(each.kind for each in items)
    return [
        *(_row(f"model {each.folder}", show_size(each.size)) for each in going),
        *([_row("engines", *(counted(number, kind) for kind, number in counts.items()), size)] if items else []),
    ]


def _staying(found: Removal) -> Iterator[str]:
    """Yield what stays on the host."""
    there, stored = found.installed, found.stored
    installed = "NVIDIA's driver, CUDA and Docker" if found.rig.gpus else "Docker"
    yield f"packages, with {installed} if installed, with their settings, repositories and pulled images"
    yield "systemd's journal"
    if found.rig.host.wsl is not None:
        yield "settings of Windows and of WSL"
    if found.others:
        yield f"what your own roles have set up: {', '.join(found.others)}"
    if stored is None:
        if there.paths or there.accounts:
            size = show_size(sum(there.sizes.values()))
            yield f"models, engines, accounts, state and logs, {size} in all; --purge removes them"
        return
    for revision in stored.holdings.revisions:
        users = [f"{user.kind} {user.name}" for user in revision.users]
        if revision.state == "foreign":
            yield f"{stored.holdings.store}/{revision.folder}, which llamaherd has not written"
        elif user := found.is_kept(users):
            yield f"model {revision.folder}: {user} uses it"
    for item in stored.items.things:
        if user := found.is_kept(item.needed_by):
            yield f"{item.what}: {user} uses it"
    if str(SET_ASIDE) in there.spared:
        yield f"{SET_ASIDE}, with files of other programs that changed units"


def _remove_services(run: DownOptions, path: Path, found: Removal) -> bool:
    """Remove servers and what else roles have set up, by a run as `herd up` makes it. Return whether it succeeded."""
    if not found.preview.changes:
        return True
    from llamaherd.deploy.run import RunOptions

    options = RunOptions(frozenset([run.rig]), lock_wait=run.lock_wait, removing=True)
    ended = run_screened_within({run.rig: (found.rig, found.plan)}, path, options)
    print_failures(ended, f"`herd doctor {run.rig}` reports what is wrong on the host")
    return not ended.failed


def _remove_rest(run: DownOptions, path: Path, rig: Rig, found: Removal) -> bool:
    """Remove the rest while no other run changes the host. Return whether it succeeded."""
    lock = HostLock(rig.rig, rig.connect, origin(path).author)

    def report(line: str) -> None:
        progress(f"{rig.rig}: {line}")

    try:
        lock.take(report, run.lock_wait)
        removed = remove_rest(rig, found.plan, purge=run.purge, report=report)
    except (RemoteError, UserError) as error:
        echo(f"{rig.rig}: {error}", err=True)
        return False
    finally:
        lock.give_back()
    for each in removed.outcomes:
        _print_outcome(rig.rig, each)
    return removed.ok


def grouped_by_folder(removed: Sequence[str]) -> list[str]:
    """Return what was removed. Several paths in one folder are one entry, with their number."""
    folders = Counter(_folder(each) for each in removed if _folder(each))
    shown = {}
    for each in removed:
        number = folders[_folder(each)]
        shown[f"{number} files and folders in {_folder(each)}" if number > 1 else each] = True
    return list(shown)


def _folder(path: str) -> str:
    """Return the folder of a path; empty for a name that is no path, and for a path near the root."""
    return path.rpartition("/")[0] if path.startswith("/") and path.count("/") > _NEAR_ROOT else ""


def _print_outcome(rig: str, outcome: Outcome) -> None:
    """Print what was removed, and what was kept and why."""
    if outcome.removed:
        progress(f"{rig}: removed {', '.join(grouped_by_folder(outcome.removed))}")
    for what, why in outcome.kept.items():
        echo(f"{rig}: kept {what}: {why}", err=True)
    if outcome.busy is not None:
        echo(f"{rig}: another run is active\n  help: try again when it has ended", err=True)
