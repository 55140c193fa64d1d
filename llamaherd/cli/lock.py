"""`herd lock`: resolve moving names and write them down, or measure newer ones on a rig before that."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import (
    FAILED,
    UNUSABLE,
    complete_rigs,
    counted,
    inventory_option,
    json_option,
    lock_wait_option,
    measuring_or_exit,
    roles_of,
    say,
    show,
    usable_or_exit,
)
from llamaherd.diagnostics.findings import Finding, UserError, to_print

if TYPE_CHECKING:
    from llamaherd.inventory.schema import Rig
    from llamaherd.lock import Lock
    from llamaherd.lock.resolver import LockOutcome
    from llamaherd.measure.trials.pair import Pair
    from llamaherd.plan import Plan


TRIAL_ROLES = ("engines", "models")
"""The roles that bring what is tried; no server is changed by them."""

_DECODE, _PREFILL, _SECONDS = 0.03, 0.05, 20 * 60
"""What may be lost, and how long is measured, where an instance has no `gate`."""


@dataclass(frozen=True)
class LockTrial:
    """A rig as it is locked, and as it would be by another lock."""

    path: Path
    inventory: Path | None
    rig: Rig
    was: Plan
    new: Plan
    lock: Lock

    def pairs(self) -> Iterator[Pair]:
        """Yield each server whose speed may change, by both locks; of a group, each instance."""
        from llamaherd.measure.trials.gate import gate_pair, has_same_speed
        from llamaherd.measure.trials.units import unit_instances

        units = [name for each in self.was.of("systemd") for name in unit_instances(each)]
        for name in (name for each in self.new.of("systemd") for name in unit_instances(each)):
            if name in units and not has_same_speed(pair := gate_pair(self.rig.connect, self.was, self.new, name)):
                yield pair


def try_lock(inventory: Path | None, path: Path, lock: Lock, rig: str, *, yes: bool, lock_wait: int) -> None:
    """Bring what the lock names to a rig, measure its servers by it, and say what came of it. Writes no lock.

    Ends the program with 1 where one costs more than it may, or nothing could be measured.
    """
    wanted = _plan_trial(inventory, path, lock, rig)
    pairs = list(wanted.pairs())
    containers = [each.name for each in wanted.new.of("compose")]
    if containers:
        say(f"containers are not measured: {', '.join(containers)}", err=True)
    if not pairs:
        say(f"{rig}: no unit computes otherwise by it")
        return
    names = ", ".join(each.b.instance.name for each in pairs)
    say(f"{rig}: brings what is new, and measures {names} beside what serves; nothing is served otherwise", err=True)
    if not yes and sys.stdin.isatty() and sys.stderr.isatty() and not click.confirm("Go on?", err=True):
        say("nothing was done", err=True)
        sys.exit(FAILED)
    with measuring_or_exit():
        _install(wanted, lock_wait)
        let_in = [_passes_gate(wanted, each, lock_wait) for each in pairs]
    if not all(let_in):
        sys.exit(FAILED)


def _plan_trial(inventory: Path | None, path: Path, lock: Lock, rig: str) -> LockTrial:
    from llamaherd.pipeline.load import plans

    roles = roles_of(inventory)
    declared, was = usable_or_exit(lambda: plans(path, roles, (rig,)))[rig]
    new = usable_or_exit(lambda: plans(path, roles, (rig,), locked=lock))[rig][1]
    return LockTrial(path, inventory, declared, was, new, lock)


def _install(wanted: LockTrial, lock_wait: int) -> None:
    """Build and fetch what is new, as `herd up --only engines --only models` does. Raises UserError."""
    from llamaherd.deploy.hosts import RunOptions
    from llamaherd.deploy.run import deploy
    from llamaherd.host.signals import END_SIGNALS
    from llamaherd.pipeline.load import plans

    roles, name = roles_of(wanted.inventory), wanted.rig.rig
    part = plans(wanted.path, roles, (name,), locked=wanted.lock, deploying=True, only=TRIAL_ROLES)
    handlers = {each: signal.getsignal(each) for each in END_SIGNALS}
    try:
        failed = deploy(part, wanted.path, 0, {}, RunOptions(lock_wait=lock_wait))
    finally:
        # A run of pyinfra has its own, which say that `herd up` goes on: what is measured next is ended otherwise.
        for each, handler in handlers.items():
            signal.signal(each, handler)
    if failed:
        raise UserError("what is new could not be brought to its host", "the reason is above; the same goes on from it")
    _require_served(wanted)


def _require_served(wanted: LockTrial) -> None:
    """Raise UserError if the host does not run the locked servers, which are the reference."""
    from llamaherd.host.remote import Remote
    from llamaherd.pipeline.history import keyless
    from llamaherd.pipeline.inspection import inspect_host

    roles = roles_of(wanted.inventory)
    state = inspect_host(Remote(wanted.rig.connect), keyless(wanted.was), roles)
    for pair in wanted.pairs():
        (declared,) = pair.declared
        unit = state.servers.units.get(declared.service)
        if unit is None or unit.spec != declared.spec:
            raise UserError(
                f"{declared.name} does not serve as it is locked, so there is nothing to measure against",
                f"`herd up {wanted.rig.rig}` first",
            )


def _passes_gate(wanted: LockTrial, pair: Pair, lock_wait: int) -> bool:
    """Measure a server as its gate would. Print the result, and return whether the gate accepts it."""
    from llamaherd.deploy.origin import origin
    from llamaherd.fleet.drain import drained
    from llamaherd.measure.results.store import results_folder
    from llamaherd.measure.trials.gate import GateRun
    from llamaherd.measure.trials.trial import locked_host
    from llamaherd.plan import GatePlan

    name = pair.b.instance.name
    gate = pair.b.instance.gate or GatePlan(decode=_DECODE, prefill=_PREFILL, seconds=_SECONDS)
    who = origin(wanted.path).who
    drain = partial(drained, wanted.path, wanted.was, pair.declared, _report)
    with locked_host(pair.rig, pair.connect, who, _report, lock_wait):
        found = GateRun(pair, gate, results_folder(wanted.path), who, _report, drain).measure()
    for line in found.told:
        say(f"{pair.rig}/{name}: {line}")
    return found.lets_in


def _report(line: str) -> None:
    say(line, err=True)


def refuse_try(upgrade: tuple[str, ...], *, as_json: bool) -> None:
    """End the program where a try makes no sense with the other options."""
    if not upgrade:
        say("error: --try tries what --upgrade names\n  help: `herd lock --upgrade main --try duo`", err=True)
        sys.exit(UNUSABLE)
    if as_json:
        say("error: --try says what it measures to people\n  help: leave out --json", err=True)
        sys.exit(UNUSABLE)


@dataclass(frozen=True)
class WrittenLock:
    """A lock that is in its file now, and whether that changed the file."""

    lock: Lock
    changed: bool

    def __str__(self) -> str:
        new = self.lock
        parts = {"engine": new.engines, "image": new.images, "model": new.models, "file": new.files}
        holds = ", ".join(counted(len(part), what) for what, part in parts.items() if part) or "nothing that moves"
        return f"{'written' if self.changed else 'unchanged'}, {holds}"


def _locked(path: Path, target: Path, upgrade: tuple[str, ...], findings: list[Finding]) -> WrittenLock | None:
    """Read, resolve and write, while no other run does; adds to `findings`. None if an error is among them.

    Raises LockError.
    """
    from llamaherd.lock import lock_held, write_lock

    with lock_held(target, _print_progress):
        outcome = _resolved(path, upgrade)
        findings += outcome.findings
        return WrittenLock(outcome.lock, write_lock(target, outcome.lock)) if outcome.ok else None


def _resolved(path: Path, upgrade: tuple[str, ...]) -> LockOutcome:
    """The lock that an inventory wants. Ends the program where that cannot be read."""
    from llamaherd.lock.resolver import lock_fleet, value_places
    from llamaherd.pipeline.load import declared, read_lock

    survey = usable_or_exit(lambda: declared(path))
    old = usable_or_exit(lambda: read_lock(path))
    where = value_places(survey.documents, path)
    return usable_or_exit(
        lambda: lock_fleet(survey.fleet, old, where, _print_progress, upgrade, whole=path.is_dir(), own=survey.own)
    )


def _newer(path: Path, upgrade: tuple[str, ...]) -> Lock:
    """The lock as it would be. Ends the program where something cannot be resolved."""
    outcome = _resolved(path, upgrade)
    show(outcome.findings)
    if not outcome.ok:
        sys.exit(FAILED)
    return outcome.lock


def _print_progress(text: str) -> None:
    say(text, err=True)


@click.command()
@click.option(
    "--upgrade",
    metavar="NAME",
    multiple=True,
    help="Resolve this engine, image or model anew, by its name in the inventory; `all` for everything. Repeatable.",
)
@click.option(
    "--try",
    "rig",
    metavar="RIG",
    shell_complete=complete_rigs,
    help="Write nothing: measure on this rig what --upgrade would make of its servers.",
)
@click.option("-y", "--yes", is_flag=True, help="With --try: do not ask before servers are stopped for it.")
@lock_wait_option
@inventory_option
@json_option
@click.pass_obj
def lock(
    inventory: Path | None,
    upgrade: tuple[str, ...],
    rig: str | None,
    yes: bool,
    lock_wait: int,
    as_json: bool,
) -> None:
    """Resolve what moves to what it stands for now.

    It is written to herd.lock, to be reviewed and committed. Engines' tags and branches become commits, images' tags
    digests, models' revisions commits with every file's size and sha256, and with what sizing needs of their headers.
    What is locked stays as it is; what no rig declares any more goes, when the inventory is a folder. The hub is the
    one in HF_ENDPOINT. Exit codes: 0 the lock is as the inventory wants it, 1 something could not be resolved and
    nothing was written, 2 the inventory cannot be used.

    With --try, what is newer is built and fetched on a rig, and each of its units is measured by it beside what serves,
    in blocks, as by a `gate`. What serves is stopped meanwhile and comes back; it is served as before afterwards. The
    exit code is 1 where one costs more than its gate allows (3 % of writing, 5 % of reading, where it has none).

    \b
    Examples:
      herd lock                             what is new
      herd lock --upgrade main              and what the engine `main` stands for by now
      herd lock --upgrade main --try duo    how fast that is on `duo`, before it is locked
    """
    from llamaherd.lock import LockError
    from llamaherd.pipeline.load import inventory_path, lock_path, rigs

    if rig is not None:
        refuse_try(upgrade, as_json=as_json)
        path = inventory_path(inventory)
        usable_or_exit(lambda: rigs(path, (rig,)))
        newer = _newer(path, upgrade)
        try_lock(inventory, path, newer, rig, yes=yes, lock_wait=lock_wait)
        return
    path = inventory_path(inventory)
    target = lock_path(path)
    findings: list[Finding] = []
    written: WrittenLock | None = None
    try:
        written = _locked(path, target, upgrade, findings)
    except LockError as error:
        findings.append(error.finding)
    ok, changed = written is not None, written is not None and written.changed
    if as_json:
        told = {"findings": [finding.as_json() for finding in to_print(findings)], "total": len(findings)}
        click.echo(json.dumps({"ok": ok, "changed": changed, "lock": str(target), **told}))
    else:
        show(findings)
        say(f"{target}: {written}" if written else f"{target}: not written")
    if not ok:
        sys.exit(FAILED)
