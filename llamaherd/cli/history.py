"""`herd history` and `herd rollback`: list the releases of hosts, and restore one."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

import click

from llamaherd.cli.common import (
    FAILED,
    confirm_or_exit,
    echo,
    inventory_option,
    is_quiet,
    json_option,
    lock_wait_option,
    progress,
    quiet_option,
    read_or_exit,
    rigs_argument,
    yes_option,
)
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.cli.rigs import print_changes, roles_or_exit
from llamaherd.cli.run_screen import print_applied, print_failures, run_screened
from llamaherd.cli.targets import rig_or_target_argument, second_word_argument, split_words
from llamaherd.host.protocol import HostLock
from llamaherd.host.remote import RemoteError
from llamaherd.inventory.schema import Rig
from llamaherd.pipeline.history import ROLLBACK_ROLES, PreparedRollback, Release, prepare_rollback, query_pasts
from llamaherd.pipeline.load import inventory_path
from llamaherd.pipeline.load import rigs as declared_rigs
from llamaherd.role.role import Role


@click.command()
@rigs_argument
@inventory_option
@json_option
@click.pass_obj
def history(inventory: Path | None, rigs: tuple[str, ...], as_json: bool) -> None:
    """List the releases of each host.

    Each `herd up` that changes something writes a numbered release on the host: its time, its user, the commit of the
    inventory, the changes, and whether they failed. `herd rollback` restores a release.

    \b
    Examples:
      herd history               the whole fleet
      herd history duo --json    one rig, as JSON
    """
    fleet = read_or_exit(lambda: declared_rigs(inventory_path(inventory), rigs))
    values: list[dict[str, Any]] = []
    failed = False
    for name, past in query_pasts(fleet.rigs).items():
        if isinstance(past, RemoteError):
            failed = True
            echo(f"{name}: {past}", err=True)
            values.append({"rig": name, "releases": [], "error": str(past)})
            continue
        values.append({"rig": name, "releases": [_as_json(*each) for each in past.releases.items()]})
        if not as_json:
            _print_releases(name, past.releases)
    if as_json:
        print_envelope(Envelope(not failed, values))
    if failed:
        sys.exit(FAILED)


def _as_json(number: int, release: Release) -> dict[str, Any]:
    return {"number": number, **release.model_dump(mode="json")}


def _print_releases(name: str, releases: dict[int, Release]) -> None:
    if not releases:
        echo(f"{name}: no release yet; each `herd up` that changes something writes one")
    for number, release in releases.items():
        by = release.origin
        machine = f" on {by.machine}" if by.machine else ""
        commit = f" from commit {by.commit}" if by.commit else ""
        back = f", back to release {release.back_to}" if release.back_to else ""
        only = f", only {', '.join(release.only)}" if release.only else ""
        came = "failed" if release.failed else "done"
        at = release.at.replace("T", " ").replace("+00:00", " UTC")
        echo(f"{name} {number}: {came} at {at}, by {by.user}{machine}{commit}{only}{back}", fit=True)
        for change in release.changes:
            echo(f"    {change}", fit=True)
        for sentence in release.failed:
            echo(f"    failed: {sentence}", fit=True)


@click.command()
@rig_or_target_argument
@second_word_argument
@click.option(
    "--to",
    "number",
    type=click.IntRange(1, 10**9),
    metavar="N",
    help="The release. Default: the newest one with another version.",
)
@yes_option("Do not prompt.")
@click.option("--dry-run", is_flag=True, help="Show the changes, and make none.")
@lock_wait_option
@quiet_option
@inventory_option
@click.pass_obj
def rollback(
    inventory: Path | None,
    rig: str,
    instance: str | None,
    number: int | None,
    yes: bool,
    dry_run: bool,
    lock_wait: int,
) -> None:
    """Restore the servers of an earlier release.

    With INSTANCE, only this server is restored. The builds, models and images of the release must still be on the host:
    a rollback downloads and compiles nothing, and does not need the earlier inventory. Keys stay unchanged. The
    inventory stays unchanged too, so the next `herd up` applies it again. A rollback is itself a release.

    \b
    Examples:
      herd rollback duo             undo the last change
      herd rollback duo/coder       one instance
      herd rollback duo --to 12     a release that `herd history` lists
    """
    rig, instance = split_words(inventory, rig, instance)
    path = inventory_path(inventory)
    one = read_or_exit(lambda: declared_rigs(path, (rig,))).rigs[rig]
    asks = not yes and sys.stdin.isatty() and sys.stderr.isatty()
    with _host_lock(one, path, asks or dry_run) as host_lock:
        back = _prepare(one, roles_or_exit(inventory), instance, number, host_lock)
        if not _print_rollback(rig, back, asks or dry_run) or dry_run:
            return
        confirm_or_exit(not asks, "nothing was changed")
        _apply(path, one, back, lock_wait, host_lock)
    progress(f"{rig}: the inventory is unchanged; the next `herd up` applies it again")


def _load_pyinfra() -> None:
    """Load pyinfra before the first connection opens: it replaces the functions that wait for connections."""
    import_module("pyinfra_cli")
    from llamaherd.deploy.run import end_on_signals

    end_on_signals()


@contextmanager
def _host_lock(rig: Rig, path: Path, asks: bool) -> Iterator[HostLock | None]:
    """Yield the lock of the host, to be acquired at once; None if a question comes first, which may take a while."""
    _load_pyinfra()
    from llamaherd.deploy.origin import origin

    if asks:
        yield None
        return
    host_lock = HostLock(rig.rig, rig.connect, origin(path).author)
    try:
        yield host_lock
    finally:
        host_lock.give_back()


def _prepare(
    rig: Rig, roles: Sequence[Role], instance: str | None, number: int | None, host_lock: HostLock | None
) -> PreparedRollback:
    try:
        return prepare_rollback(rig, roles, instance, number, host_lock, monotonic)
    except RemoteError as error:
        echo(f"{rig.rig}: {error}", err=True)
        sys.exit(FAILED)


def _print_rollback(rig: str, back: PreparedRollback, shown: bool) -> bool:
    """Print the changes. Return False if there is nothing to do; end the program on problems."""
    for problem in back.outlook.problems:
        echo(f"{rig}: {problem}", err=True)
    if back.outlook.problems:
        sys.exit(FAILED)
    if not back.outlook.changes:
        echo(f"{rig}: already at release {back.number}, nothing to do")
        return False
    if shown or not is_quiet():
        echo(f"{rig}: rollback to release {back.number}")
        print_changes(rig, back.outlook, back.causes)
    return True


def _apply(path: Path, rig: Rig, back: PreparedRollback, lock_wait: int, host_lock: HostLock | None) -> None:
    from llamaherd.deploy.run import RunOptions
    from llamaherd.deploy.run_state import LockedHost

    held = LockedHost(host_lock, back.state, back.inspected_at) if host_lock and back.inspected_at is not None else None
    asked = RunOptions(frozenset([rig.rig]), True, ROLLBACK_ROLES, back.number, lock_wait, held)
    planned = {rig.rig: (rig, back.plan)}
    ended = run_screened(planned, path, asked)
    print_failures(ended, f"`herd history {rig.rig}` lists other releases; `herd up {rig.rig}` applies the inventory")
    if ended.failed:
        sys.exit(FAILED)
    print_applied(ended, planned, {rig.rig: back.outlook.paused})
