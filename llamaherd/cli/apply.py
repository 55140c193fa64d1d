"""The run of `herd up`: lock new names, wake rigs, preview the changes, and apply them to the rigs, wave by wave."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import (
    FAILED,
    confirm_or_exit,
    counted,
    echo,
    is_quiet,
    print_findings,
    progress,
    read_or_exit,
    report,
)
from llamaherd.cli.preview import CHANGES, PlanOptions, read_saved_or_exit, require_saved_or_exit, run_plan
from llamaherd.cli.rigs import (
    inspecting_or_exit,
    plans_or_exit,
    print_changes,
    print_left_out,
    print_problems,
    roles_or_exit,
)
from llamaherd.cli.run_screen import hide_progress, next_command, print_applied, print_failures, run_screened
from llamaherd.deploy.origin import origin
from llamaherd.deploy.proposals import proposed_changes
from llamaherd.diagnostics.findings import InventoryError, Place, UserError, nearest
from llamaherd.fleet.gateway import declared_gateway, wake_rigs
from llamaherd.host.remote import RemoteError
from llamaherd.inventory.schema import Rig
from llamaherd.layout import LOCK_WAIT
from llamaherd.lock import Lock, LockError, lock_held, write_lock
from llamaherd.lock.resolver import lock_missing
from llamaherd.pipeline.diff import SavedDiff
from llamaherd.pipeline.fleet_files import backing_up, choose_rigs, survey_fleet_file
from llamaherd.pipeline.history import query_causes, settle
from llamaherd.pipeline.inspection import program_for
from llamaherd.pipeline.load import declared, inventory_folder, inventory_path, lock_path, missing_names, read_lock
from llamaherd.pipeline.preview import Hosts, Preview
from llamaherd.pipeline.rules import UNKNOWN_RIG
from llamaherd.plan import Plan
from llamaherd.text.numbers import show_size

if TYPE_CHECKING:
    from llamaherd.deploy.run import RunOptions


@dataclass(frozen=True)
class Pace:
    """How many rigs are changed at once: `canary` first and alone, then at most `most` each time; else all of them."""

    canary: str | None = None
    most: int | None = None


@dataclass(frozen=True)
class Wave:
    """Rigs that are changed at once: the `number`-th of `of` such steps."""

    rigs: tuple[str, ...]
    number: int
    of: int
    canary: bool = False

    @property
    def last(self) -> bool:
        """Return whether it is the last wave."""
        return self.number == self.of

    def __str__(self) -> str:
        what = ", the canary" if self.canary else ""
        return f"Wave {self.number} of {self.of}{what}: {', '.join(self.rigs)}"


def waves(rigs: Sequence[str], pace: Pace, apart: Sequence[Collection[str]] = ()) -> tuple[Wave, ...]:
    """Return the waves of these rigs, each rig in the earliest wave that it can be in.

    A canary comes first. No two rigs of a group in `apart`, which back each other up, are in one wave.
    """
    canary = [name for name in rigs if name == pace.canary]
    others = [name for name in rigs if name != pace.canary]
    steps: list[list[str]] = []
    for name in others:
        alone = {each for group in apart if name in group for each in group}
        room = (step for step in steps if len(step) < (pace.most or len(others)) and alone.isdisjoint(step))
        step = next(room, None)
        if step is None:
            steps.append([name])
        else:
            step.append(name)
    steps = [canary, *steps] if canary else steps
    return tuple(
        Wave(tuple(step), number, len(steps), canary=step is canary) for number, step in enumerate(steps, start=1)
    )


@dataclass(frozen=True)
class Halt:
    """Why a run halts: rigs that failed, and rigs that do not match their plan; and the rigs that it leaves alone."""

    failed: tuple[str, ...]
    unplanned: tuple[str, ...]
    left: tuple[str, ...]

    def __str__(self) -> str:
        why = [f"{_all_of(self.failed)} failed"] if self.failed else []
        if self.unplanned:
            why.append(f"{_all_of(self.unplanned)} {'does' if len(self.unplanned) == 1 else 'do'} not match the plan")
        return f"left alone, as {' and '.join(why)}: {', '.join(self.left)}"


def _all_of(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def halt(all_waves: Sequence[Wave], ended: Wave, failed: Sequence[str], unplanned: Sequence[str]) -> Halt | None:
    """Return why no wave begins after the one that has `ended`; None if the next one may begin or none is left."""
    left = tuple(name for wave in all_waves if wave.number > ended.number for name in wave.rigs)
    return Halt(tuple(failed), tuple(unplanned), left) if left and (failed or unplanned) else None


DISTURBING = frozenset({"restart", "stop", "remove", "reboot"})
"""Actions on things that exist and may be in use."""


@dataclass(frozen=True)
class UpOptions:
    """The options of `herd up`. `only` names instances and roles: the rest of the rigs stays unchanged.

    `saved` is the saved diff in `plan_file`, which also sets `rigs` and `only`.
    """

    inventory: Path | None
    rigs: tuple[str, ...]
    only: tuple[str, ...] = ()
    canary: str | None = None
    waves: int | None = None
    plan_file: Path | None = None
    yes: bool = False
    locked: bool = False
    retry: bool = False
    lock_wait: int = LOCK_WAIT
    verbose: int = 0
    dry_run: bool = False
    saved: SavedDiff | None = None

    def check_canary(self, rigs: Mapping[str, Rig]) -> None:
        """Raise InventoryError if the canary is not one of the rigs."""
        if self.canary and self.canary not in rigs:
            place, suggestion = Place(inventory_path(self.inventory)), nearest(self.canary, rigs)
            having = f" that has {' or '.join(self.only)}" if self.only else ""
            message = f"--canary: there is no rig `{self.canary}`{having}"
            raise InventoryError([UNKNOWN_RIG.at(place, message, suggestion)])


@dataclass(frozen=True)
class PendingRun:
    """The rigs that a run changes, with their plans. `unreached`: why a rig could not be inspected, by name.

    `changing`: the rigs for which the inspection found changes. `paused`: by rig, the instances that stay paused.
    """

    planned: Mapping[str, tuple[Rig, Plan]]
    unreached: Mapping[str, str] = field(default_factory=dict)
    changing: frozenset[str] = frozenset()
    paused: Mapping[str, frozenset[str]] = field(default_factory=dict)


def run_up(run: UpOptions) -> None:
    """Change the rigs to match their plans. End the program if some are not up to date."""
    run = _with_saved_diff(replace(run, inventory=inventory_path(run.inventory)))
    if run.verbose and is_quiet():
        raise click.UsageError("-q prints less and -v prints more; leave out one")
    if run.dry_run:
        _show_changes(run)
        return
    if not run.locked:
        lock_new_names(run.inventory, run.rigs, run.check_canary)
    pending = _without_preview(run) if run.verbose > 1 and not run.saved else _preview_rigs(run)
    if run.canary and pending.planned and run.canary not in pending.planned:
        echo(f"{run.canary}: the canary is up to date; continuing with the other rigs", err=True)
    if pending.planned and not _apply(run, pending):
        if run.verbose:
            echo("some hosts are not up to date: the reason is above; run `herd up` again to resume", err=True)
        sys.exit(FAILED)
    if pending.planned and not (run.verbose or is_quiet()):
        echo(f"next: {next_command(pending.planned, pending.paused)}")


def _show_changes(run: UpOptions) -> None:
    """Print the changes as `herd plan` does. End the program with 1 on a problem."""
    if run.plan_file:
        raise click.UsageError("--plan applies saved changes; leave it out, or --dry-run")
    try:
        run_plan(PlanOptions(run.inventory, run.rigs, only=run.only, verbose=run.verbose > 0))
    except SystemExit as ended:
        if ended.code != CHANGES:
            raise


def _with_saved_diff(run: UpOptions) -> UpOptions:
    """Return the options with the rigs of the saved diff, if there is one. Raise UsageError if they contradict it."""
    file = run.plan_file
    if file and run.rigs:
        raise click.UsageError(f"{file} contains the rigs to change; leave out {' '.join(run.rigs)}, or --plan")
    if file and run.only:
        raise click.UsageError(f"{file} contains what to change; leave out --only {run.only[0]}, or --plan")
    if file and run.retry:
        raise click.UsageError(f"{file} was saved without --retry; leave out --retry, or --plan")
    if file:
        saved = read_saved_or_exit(file)
        run = replace(run, rigs=saved.names, only=saved.only or (), saved=saved)
    if run.canary and run.rigs and run.canary not in run.rigs:
        which, suggestion = f"in {file}" if file else "that you named", nearest(run.canary, run.rigs)
        raise click.UsageError(f"--canary {run.canary} is none of the rigs {which}; {suggestion}")
    return run


def _without_preview(run: UpOptions) -> PendingRun:
    """Return all rigs with their plans: with `-vv`, pyinfra inspects the hosts and prints the facts."""
    return PendingRun(
        plans_or_exit(
            run.inventory,
            run.rigs,
            deploying=True,
            check_rigs=run.check_canary,
            only=run.only,
            create_keys=True,
        )
    )


def _preview_rigs(run: UpOptions) -> PendingRun:
    """Inspect the rigs, print what will change, and return those out of sync.

    End the program if a saved plan no longer applies, or the user does not confirm the changes.
    """
    roles, folder = roles_or_exit(run.inventory), inventory_folder(inventory_path(run.inventory))
    with inspecting_or_exit(run.inventory, run.rigs, check_rigs=run.check_canary, only=run.only, create_keys=True) as (
        planned,
        hosts,
    ):
        found = hosts.outlooks(planned, roles, retry=run.retry, folder=folder)
    found = woken_previews(run.inventory, planned, found, retry=run.retry)
    if run.saved and run.plan_file:
        require_saved_or_exit(run.plan_file, run.saved, planned, found)
    causes = query_causes(planned, found, roles)
    disturbs = any(change.action in DISTURBING for each in found.values() for change in each.changes)
    for name, each in found.items():
        for note in each.notes:
            progress(f"{name}: {note}")
        if each.as_planned:
            echo(f"{name}: up to date, nothing to do")
            if each.unsettled and not planned[name][1].only:
                _settle(run, each, *planned[name])
        elif each.changes and (disturbs or not is_quiet()):
            print_changes(name, each, causes.get(name, ()), verbose=run.verbose > 0)
        if not is_quiet():
            print_left_out(name, each)
    if disturbs:
        confirm_or_exit(run.yes or run.saved is not None, "nothing was changed")
    left = {name: each for name, each in planned.items() if not found[name].as_planned}
    changing = frozenset(name for name in left if found[name].changes)
    paused = {name: found[name].paused for name in left}
    return PendingRun(left, {name: found[name].unreached for name in left}, changing, paused)


def _settle(run: UpOptions, found: Preview, rig: Rig, plan: Plan) -> None:
    """Store on a host that is up to date that an earlier failure or interruption is over."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        settle(rig, plan, found.unsettled, origin(inventory_path(run.inventory)), at)
    except RemoteError as error:
        progress(f"{rig.rig}: this could not be recorded there: {error}")


def _apply(run: UpOptions, pending: PendingRun) -> bool:
    """Change the rigs, wave by wave. Return whether all are up to date."""
    # A refused run, or one with nothing to do, does not load pyinfra.
    from llamaherd.deploy.run import RunOptions

    hide_progress(verbose=run.verbose > 0)
    options = RunOptions(pending.changing, retry=run.retry, lock_wait=run.lock_wait)
    path = inventory_path(run.inventory)
    fleet = survey_fleet_file(inventory_folder(path)).declared
    apart = backing_up(fleet, {name: rig for name, (rig, _) in pending.planned.items()})
    steps = waves(tuple(pending.planned), Pace(run.canary, run.waves), apart)
    failed: tuple[str, ...] = ()
    for wave in steps:
        if wave.of > 1:
            progress(f"--> {wave}")
        planned = {name: pending.planned[name] for name in wave.rigs}
        failed = _apply_wave(run, planned, path, pending, options)
        unplanned = () if failed or wave.last else _out_of_sync(run, planned)
        if halted := halt(steps, wave, failed, unplanned):
            echo(str(halted), err=True)
            return False
    return not failed


def _apply_wave(
    run: UpOptions,
    planned: Mapping[str, tuple[Rig, Plan]],
    path: Path,
    pending: PendingRun,
    options: RunOptions,
) -> tuple[str, ...]:
    """Change the rigs of a wave, and print what came of it. Return the rigs that failed."""
    if run.verbose:
        from llamaherd.deploy.run import deploy

        return deploy(planned, path, run.verbose - 1, pending.unreached, options)
    ended = run_screened(planned, path, options, pending.unreached)
    print_applied(ended, planned, pending.paused)
    print_failures(ended)
    return ended.failed


def _out_of_sync(run: UpOptions, planned: Mapping[str, tuple[Rig, Plan]]) -> tuple[str, ...]:
    """Inspect the rigs of a wave again. Print what is still out of sync, and return the names of those rigs."""
    progress(f"--> Inspecting {counted(len(planned), 'host')} again...")
    rigs = {name: rig for name, (rig, _) in planned.items()}
    roles = roles_or_exit(run.inventory)
    propose = partial(proposed_changes, inventory_path(run.inventory))
    found = Hosts(rigs, program_for(roles), propose).outlooks(planned, roles, retry=run.retry)
    for name, each in found.items():
        print_problems(name, each, each.unreached)
        if each.changes:
            print_changes(name, each)
    return tuple(name for name, each in found.items() if not each.as_planned)


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
        with lock_held(target, report):
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
    woken = wake_rigs(gateways, silent, report)
    again = {name: planned[name] for name in planned if name in woken}
    if not again:
        return dict(found)
    hosts = Hosts({name: rig for name, (rig, _) in again.items()}, program_for(roles), partial(proposed_changes, path))
    return {**found, **hosts.outlooks(again, roles, retry=retry, folder=inventory_folder(path))}
