"""`herd lock`: resolve tags and branches to exact versions, or measure newer versions on a rig first."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

import click

from llamaherd.cli.common import (
    FAILED,
    UNUSABLE,
    complete_rigs,
    confirm_or_exit,
    counted,
    echo,
    fail,
    inventory_option,
    json_option,
    lock_wait_option,
    measuring_or_exit,
    print_findings,
    read_or_exit,
    report,
    yes_option,
)
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.cli.rigs import roles_or_exit
from llamaherd.cli.run_screen import TRIAL_ROLES, install_for_trial
from llamaherd.deploy.origin import origin
from llamaherd.diagnostics.findings import Finding, UserError
from llamaherd.fleet.drain import drained
from llamaherd.host.remote import Remote
from llamaherd.inventory.schema import Rig
from llamaherd.lock import Lock, LockError, lock_held, write_lock
from llamaherd.lock.resolver import LockOutcome, lock_fleet, value_places
from llamaherd.measure.results.store import results_folder
from llamaherd.measure.trials.gate import GateRun, gate_pair, has_same_speed
from llamaherd.measure.trials.pair import Pair
from llamaherd.measure.trials.trial import locked_host, unit_instances
from llamaherd.pipeline.history import keyless
from llamaherd.pipeline.inspection import inspect_host
from llamaherd.pipeline.load import declared, inventory_folder, inventory_path, lock_path, plans, read_lock, rigs
from llamaherd.plan import GatePlan, Plan

_DECODE, _PREFILL, _SECONDS = 0.03, 0.05, 20 * 60
"""The allowed losses of decode and prefill speed, and the budget, for an instance without a `gate`."""


@dataclass(frozen=True)
class LockTrial:
    """The plans of a rig by the current lock and by a new one, for which `texts` replace files of the inventory."""

    path: Path
    inventory: Path | None
    rig: Rig
    was: Plan
    new: Plan
    lock: Lock
    texts: Mapping[Path, str] = field(default_factory=dict)

    def pairs(self) -> Iterator[Pair]:
        """Yield the servers that the new lock changes, each with its current version; a group instance by instance."""
        units = [name for each in self.was.of("systemd") for name in unit_instances(each)]
        for name in (name for each in self.new.of("systemd") for name in unit_instances(each)):
            if name in units and not has_same_speed(pair := gate_pair(self.rig.connect, self.was, self.new, name)):
                yield pair


def try_lock(
    inventory: Path | None,
    path: Path,
    lock: Lock,
    rig: str,
    *,
    yes: bool,
    lock_wait: int,
    texts: Mapping[Path, str] = MappingProxyType({}),
) -> None:
    """Install the versions of a lock on a rig, measure its servers with them, and print the results.

    `texts` replace files of the inventory for the new versions. Writes no lock.

    End the program with 1 if a server loses more speed than allowed, or is not measured.
    """
    trial = _plan_trial(inventory, path, lock, rig, texts)
    pairs = list(trial.pairs())
    containers = [each.name for each in trial.new.of("compose")]
    if containers:
        echo(f"containers are not measured: {', '.join(containers)}", err=True)
    if not pairs:
        echo(f"{rig}: the new versions change no unit")
        return
    names = ", ".join(each.b.instance.name for each in pairs)
    echo(
        f"{rig}: installs the new versions, and measures {names} against the current ones; no server changes", err=True
    )
    confirm_or_exit(yes, "nothing was done")
    with measuring_or_exit():
        _install(trial, lock_wait)
        passed = [_passes_gate(trial, each, lock_wait) for each in pairs]
    if not all(passed):
        sys.exit(FAILED)


def _plan_trial(
    inventory: Path | None, path: Path, lock: Lock, rig: str, texts: Mapping[Path, str] = MappingProxyType({})
) -> LockTrial:
    roles = roles_or_exit(inventory)
    declared_rig, was = read_or_exit(lambda: plans(path, roles, (rig,)))[rig]
    new = read_or_exit(lambda: plans(path, roles, (rig,), locked=lock, texts=texts))[rig][1]
    return LockTrial(path, inventory, declared_rig, was, new, lock, texts)


def _install(trial: LockTrial, lock_wait: int) -> None:
    """Build and fetch the new versions, as `herd up --only engines --only models` does. Raise UserError."""
    roles, name = roles_or_exit(trial.inventory), trial.rig.rig
    part = plans(trial.path, roles, (name,), locked=trial.lock, deploying=True, only=TRIAL_ROLES, texts=trial.texts)
    install_for_trial(part, trial.path, lock_wait)
    _require_served(trial)


def _require_served(trial: LockTrial) -> None:
    """Raise UserError unless the host runs the locked versions, which are the baseline."""
    roles = roles_or_exit(trial.inventory)
    state = inspect_host(Remote(trial.rig.connect), keyless(trial.was), roles)
    for pair in trial.pairs():
        (server,) = pair.declared
        unit = state.servers.units.get(server.service)
        if unit is None or unit.spec != server.spec:
            raise UserError(
                f"{server.name} does not run the locked version, so there is no baseline",
                f"run `herd up {trial.rig.rig}` first",
            )


def _passes_gate(trial: LockTrial, pair: Pair, lock_wait: int) -> bool:
    """Measure a server, print the results, and return whether it passes its gate."""
    name = pair.b.instance.name
    gate = pair.b.instance.gate or GatePlan(decode=_DECODE, prefill=_PREFILL, seconds=_SECONDS)
    user = origin(trial.path).author
    drain = partial(drained, trial.path, trial.was, pair.declared, report)
    with locked_host(pair.rig, pair.connect, user, report, lock_wait):
        found = GateRun(pair, gate, results_folder(trial.path), user, report, drain).measure()
    for line in found.lines:
        echo(f"{pair.rig}/{name}: {line}")
    return found.lets_in


def refuse_try(upgrade: tuple[str, ...], *, as_json: bool) -> None:
    """End the program if `--try` contradicts other options."""
    if not upgrade:
        fail(UserError("--try needs --upgrade", "for example `herd lock --upgrade main --try duo`"), UNUSABLE)
    if as_json:
        fail(UserError("--try has no JSON output", "leave out --json"), UNUSABLE)


def _lock_summary(lock: Lock) -> str:
    """Return what a lock contains."""
    parts = {
        "engine": lock.engines,
        "image": lock.images,
        "model": lock.models,
        "file": lock.files,
        "archive": lock.archives,
        "release": lock.releases,
    }
    return ", ".join(counted(len(part), what) for what, part in parts.items() if part) or "nothing to lock"


def _resolve_lock(path: Path, upgrade: tuple[str, ...]) -> LockOutcome:
    """Return the resolved lock of an inventory. End the program if it cannot be read."""
    survey = read_or_exit(lambda: declared(path))
    old = read_or_exit(lambda: read_lock(path))
    where, folder = value_places(survey.documents, path), inventory_folder(path).resolve()
    return read_or_exit(
        lambda: lock_fleet(
            survey.fleet, old, where, report, upgrade, whole=path.is_dir(), own=survey.own, folder=folder
        )
    )


def _upgraded_lock(path: Path, upgrade: tuple[str, ...]) -> Lock:
    """Return the upgraded lock. End the program if something cannot be resolved."""
    outcome = _resolve_lock(path, upgrade)
    print_findings(outcome.findings)
    if not outcome.ok:
        sys.exit(FAILED)
    return outcome.lock


@click.command()
@click.option(
    "--upgrade",
    metavar="NAME",
    multiple=True,
    help="Resolve this engine, image or model again; `all` for everything. Repeatable.",
)
@click.option(
    "--try",
    "rig",
    metavar="RIG",
    shell_complete=complete_rigs,
    help="Write nothing: measure the upgraded servers on this rig.",
)
@yes_option("With --try: do not ask for a confirmation.")
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
    """Resolve tags and branches to exact versions.

    The versions are written to herd.lock; review and commit it. Tags and branches of engines become commits, tags of
    images digests, and revisions of models commits, with the size and sha256 of each file and the header values that
    sizing needs. A file of a model or a source archive gets its sha256; one that differs from a declared `sha256` is an
    error. Locked versions stay unchanged. If the inventory is a folder, undeclared ones are removed. The hub is that of
    HF_ENDPOINT. `herd up` locks new names itself.

    With --try, the new versions are built and fetched on a rig, and each of its units is measured with them against the
    current version, in blocks, as by a `gate`. The current server is stopped meanwhile and starts again unchanged. The
    exit code is 1 if a unit loses more than its gate allows; without a gate, 3 % of decode or 5 % of prefill speed.

    Exit codes: 0 the lock is up to date; 1 something cannot be resolved and nothing was written; 2 the inventory is
    unusable.

    \b
    Examples:
      herd lock                             lock new names
      herd lock --upgrade main              also move engine `main` to its newest
      herd lock --upgrade main --try duo    measure it on `duo` first
    """
    if rig is not None:
        refuse_try(upgrade, as_json=as_json)
        path = inventory_path(inventory)
        read_or_exit(lambda: rigs(path, (rig,)))
        newer = _upgraded_lock(path, upgrade)
        try_lock(inventory, path, newer, rig, yes=yes, lock_wait=lock_wait)
        return
    path = inventory_path(inventory)
    target = lock_path(path)
    findings: list[Finding] = []
    changed, result = False, "not written"
    try:
        with lock_held(target, report):
            outcome = _resolve_lock(path, upgrade)
            findings += outcome.findings
            if outcome.ok:
                changed = write_lock(target, outcome.lock)
                result = f"{'written' if changed else 'unchanged'}, {_lock_summary(outcome.lock)}"
    except LockError as error:
        findings.append(error.finding)
    ok = result != "not written"
    if as_json:
        data = {"changed": changed, "lock": str(target), "total": len(findings)}
        print_envelope(Envelope(ok, data=data, findings=findings))
    else:
        print_findings(findings)
        echo(f"{target}: {result}")
    if not ok:
        sys.exit(FAILED)
