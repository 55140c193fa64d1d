"""`herd lock --try`: what newer engines and models would make of a rig's servers, measured before they are locked."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import FAILED, UNUSABLE, measuring_or_exit, roles_of, say, usable_or_exit
from llamaherd.diagnostics.findings import UserError

if TYPE_CHECKING:
    from llamaherd.bench.arms.gate import GateArms
    from llamaherd.inventory.schema import Rig
    from llamaherd.lock import Lock
    from llamaherd.plan import Plan

BROUGHT = ("engines", "models")
"""The roles that bring what is tried; no server is changed by them."""

_DECODE, _PREFILL, _SECONDS = 0.03, 0.05, 20 * 60
"""What may be lost, and how long is measured, where an instance has no `gate`."""


@dataclass(frozen=True)
class Try:
    """A rig as it is locked, and as it would be by another lock."""

    path: Path
    inventory: Path | None
    rig: Rig
    was: Plan
    new: Plan
    lock: Lock

    def arms(self) -> Iterator[GateArms]:
        """The servers that would compute otherwise, beside themselves as they are; of a group, each instance alone."""
        from llamaherd.bench.arms.alone import names_in
        from llamaherd.bench.arms.gate import gate_arms

        units = [name for each in self.was.of("systemd") for name in names_in(each)]
        for name in (name for each in self.new.of("systemd") for name in names_in(each)):
            if name in units and not (arms := gate_arms(self.was, self.new, name)).alike:
                yield arms


def try_lock(inventory: Path | None, path: Path, lock: Lock, rig: str, *, yes: bool, lock_wait: int) -> None:
    """Bring what the lock names to a rig, measure its servers by it, and say what came of it. Writes no lock.

    Ends the program with 1 where one costs more than it may, or nothing could be measured.
    """
    wanted = _planned(inventory, path, lock, rig)
    arms = list(wanted.arms())
    containers = [each.name for each in wanted.new.of("compose")]
    if containers:
        say(f"containers are not measured: {', '.join(containers)}", err=True)
    if not arms:
        say(f"{rig}: no unit computes otherwise by it")
        return
    names = ", ".join(each.b.instance.name for each in arms)
    say(f"{rig}: brings what is new, and measures {names} beside what serves; nothing is served otherwise", err=True)
    if not yes and sys.stdin.isatty() and sys.stderr.isatty() and not click.confirm("Go on?", err=True):
        say("nothing was done", err=True)
        sys.exit(FAILED)
    with measuring_or_exit():
        _bring(wanted, lock_wait)
        let_in = [_let_in(wanted, each, lock_wait) for each in arms]
    if not all(let_in):
        sys.exit(FAILED)


def _planned(inventory: Path | None, path: Path, lock: Lock, rig: str) -> Try:
    from llamaherd.pipeline.load import plans

    roles = roles_of(inventory)
    declared, was = usable_or_exit(lambda: plans(path, roles, (rig,)))[rig]
    new = usable_or_exit(lambda: plans(path, roles, (rig,), locked=lock))[rig][1]
    return Try(path, inventory, declared, was, new, lock)


def _bring(wanted: Try, lock_wait: int) -> None:
    """Build and fetch what is new, as `herd up --only engines --only models` does. Raises UserError."""
    from llamaherd.deploy.lean import load_pyinfra
    from llamaherd.pipeline.load import plans

    load_pyinfra()
    from llamaherd.deploy.deploying import deploy
    from llamaherd.deploy.hosts import Asked
    from llamaherd.diagnostics.endings import ENDINGS

    roles, name = roles_of(wanted.inventory), wanted.rig.rig
    part = plans(wanted.path, roles, (name,), locked=wanted.lock, deploying=True, only=BROUGHT)
    handlers = {each: signal.getsignal(each) for each in ENDINGS}
    try:
        failed = deploy(part, wanted.path, 0, {}, Asked(lock_wait=lock_wait))
    finally:
        # A run of pyinfra has its own, which say that `herd up` goes on: what is measured next is ended otherwise.
        for each, handler in handlers.items():
            signal.signal(each, handler)
    if failed:
        raise UserError("what is new could not be brought to its host", "the reason is above; the same goes on from it")
    _require_served(wanted)


def _require_served(wanted: Try) -> None:
    """Raise UserError where the host does not serve what is locked: that is what is measured against."""
    from llamaherd.bench.arms.alone import server_of
    from llamaherd.host.remote import Remote
    from llamaherd.pipeline.inspect import inspect_host
    from llamaherd.pipeline.rollback import keyless

    roles = roles_of(wanted.inventory)
    state = inspect_host(Remote(wanted.rig.connect), keyless(wanted.was), roles)
    for each in wanted.arms():
        declared = server_of(wanted.was, each.b.instance.name)
        unit = state.units.get(declared.service)
        if unit is None or unit.spec != declared.spec:
            raise UserError(
                f"{declared.name} does not serve as it is locked, so there is nothing to measure against",
                f"`herd up {wanted.rig.rig}` first",
            )


def _let_in(wanted: Try, arms: GateArms, lock_wait: int) -> bool:
    """Whether a server's gate would let it in; all that was measured is said."""
    from llamaherd.bench.arms.alone import server_of
    from llamaherd.bench.arms.measure import GateRun
    from llamaherd.bench.results.store import results_folder
    from llamaherd.deploy.origin import origin
    from llamaherd.gateway.aside import measured_aside
    from llamaherd.host.turn import Turn
    from llamaherd.inventory.keys import UnreadableKeyError
    from llamaherd.plan import GatePlan

    name = arms.b.instance.name
    gate = arms.b.instance.gate or GatePlan(decode=_DECODE, prefill=_PREFILL, seconds=_SECONDS)
    who = origin(wanted.path).who
    turn = Turn(wanted.rig.rig, wanted.rig.connect, who)
    turn.take(_tell, lock_wait)
    try:
        aside = partial(measured_aside, wanted.path, wanted.was, (server_of(wanted.was, name),), _tell)
        run = GateRun(arms, gate, wanted.rig.rig, wanted.rig.connect, results_folder(wanted.path), who, _tell, aside)
        found = run.found()
    except UnreadableKeyError as error:
        raise UserError(str(error), "put the key there, or name its place in the inventory") from None
    finally:
        turn.give_back()
    for line in found.told:
        say(f"{wanted.rig.rig}/{name}: {line}")
    return found.lets_in


def _tell(line: str) -> None:
    say(line, err=True)


def refuse_try(upgrade: tuple[str, ...], *, as_json: bool) -> None:
    """End the program where a try makes no sense with the other options."""
    if not upgrade:
        say("error: --try tries what --upgrade names\n  help: `herd lock --upgrade main --try duo`", err=True)
        sys.exit(UNUSABLE)
    if as_json:
        say("error: --try says what it measures to people\n  help: leave out --json", err=True)
        sys.exit(UNUSABLE)
