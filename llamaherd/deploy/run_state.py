"""What a run keeps of each host until its end: its lock, what failed, what was done, and the release of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from weakref import WeakKeyDictionary

from pyinfra import logger
from pyinfra.api import Host, StringCommand
from pyinfra.connectors.util import CommandOutput

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.host_lock import HostLock
from llamaherd.host.program import Events, request
from llamaherd.host.protocol import result_of
from llamaherd.host.remote import RemoteError
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Connect
from llamaherd.onhost.document import DocumentError, decode
from llamaherd.onhost.releases import ReadInput, Stored
from llamaherd.pipeline.release import (
    RECENT,
    Origin,
    Past,
    Release,
    bounded_sentences,
    merged_plan,
    past_of,
    write_input,
)
from llamaherd.plan import Plan
from llamaherd.role.changes import Change
from llamaherd.text.terminal import plain

HELP_PREFIX = "  help: "
"""What the way out begins with, where an error is shown."""

_reasons: WeakKeyDictionary[Host, dict[str, str]] = WeakKeyDictionary()


def note_failure(host: Host, lines: Sequence[str]) -> None:
    """Keep why the operation that runs has failed: the last sentence of these lines, with its way out.

    What fails in it after that follows from it, or is the lesser reason.
    """
    operation = host.executing_op_hash
    if operation is None:
        return
    (name, *_) = host.state.get_op_meta(operation).names
    said = [line for line in lines if line.strip()]
    last = next((n for n in reversed(range(len(said))) if not said[n].startswith(HELP_PREFIX)), None)
    reason = "\n".join(said[last:]) if last is not None else "it does not say why"
    _reasons.setdefault(host, {}).setdefault(name, reason)


def noted_failures(host: Host) -> list[str]:
    """What has failed there by now, and why."""
    return [f"{name}: {reason}" for name, reason in _reasons.get(host, {}).items()]


@dataclass(frozen=True)
class HeldLock:
    """A host on which a run has its turn before it begins: how it looked under it, and when, in seconds."""

    turn: HostLock
    seen: HostState
    at: float


@dataclass
class _HostLocks:
    """The turns of this process. `busy`: hosts on which something is done. `waiting`: hosts that are waited for."""

    of: WeakKeyDictionary[Host, HostLock] = field(default_factory=WeakKeyDictionary)
    busy: set[Host] = field(default_factory=set)
    waiting: set[Host] = field(default_factory=set)


_host_locks = _HostLocks()


def log_in_for_lock(host: Host) -> None:
    """Log in for the turn that is taken next. Where that fails, whoever takes it is told so."""
    with suppress(RemoteError):
        _lock_of(host).log_in()


def take_host_lock(host: Host) -> bool:
    """Wait until no other run changes this host. Whether one may have since it was looked at: not, if it was ours.

    Raises UserError where one goes on for too long, RemoteError where the host cannot be asked.
    """

    def wait(line: str) -> None:
        logger.info(f"{host.print_prefix}{plain(line)}")
        _host_locks.waiting.add(host)
        for other in {*_host_locks.of} - _host_locks.busy:
            release_host_lock(other)

    turn = _lock_of(host)
    _host_locks.busy.add(host)
    try:
        return turn.take(wait, host.data.rig_lock_wait)
    except UserError:
        release_host_lock(host)
        raise
    finally:
        _host_locks.waiting.discard(host)


def _lock_of(host: Host) -> HostLock:
    if host not in _host_locks.of and (held := host.data.rig_held):
        _host_locks.of[host] = held.turn
    elif host not in _host_locks.of:
        by = Origin.model_validate(host.data.rig_origin)
        connect = Connect.model_validate(host.data.rig_connect)
        _host_locks.of[host] = HostLock(host.name, connect, by.who)
    return _host_locks.of[host]


def holds_host_lock(host: Host) -> bool:
    """Whether it is our turn on this host, so that more is to be done there."""
    return host in _host_locks.of


def pause_host_lock(host: Host) -> None:
    """Nothing is done to this host just now. It stays ours, unless another one is waited for."""
    _host_locks.busy.discard(host)
    if _host_locks.waiting:
        release_host_lock(host)


def release_host_lock(host: Host) -> None:
    """Let the next run change this host."""
    _host_locks.busy.discard(host)
    if turn := _host_locks.of.pop(host, None):
        turn.give_back()


WRITE_SECONDS = 60


@dataclass
class HostRecord:
    """What was done to a host: whether anything was begun, and the changes that came to their end.

    `running`: specs of the servers that were seen there last, by service.
    """

    begun: bool = False
    changes: list[str] = field(default_factory=list)
    running: Mapping[str, str] = field(default_factory=dict)


_records: WeakKeyDictionary[Host, HostRecord] = WeakKeyDictionary()


def note_begin(host: Host) -> None:
    """Something is done to it from here on."""
    _records.setdefault(host, HostRecord()).begun = True


def note_running(host: Host, state: HostState) -> None:
    """What runs there: a run that is for a part alone changes nothing of the rest."""
    units = {name: unit.spec for name, unit in state.servers.units.items()}
    there = units | {name: container.spec for name, container in state.servers.containers.items()}
    _records.setdefault(host, HostRecord()).running = there


def note_change(host: Host, change: Change) -> None:
    """A change has come to its end. What was sent is part of what it was sent for."""
    if change.action != "send":
        _records.setdefault(host, HostRecord()).changes.append(str(change))


def record_release(host: Host) -> None:
    """Have the host keep what was done to it in this run, if anything was: once."""
    done = _records.pop(host, HostRecord())
    if not done.begun:
        return
    plan = Plan.model_validate(host.data.plan)
    release = Release(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        origin=Origin.model_validate(host.data.rig_origin),
        changes=bounded_sentences(done.changes),
        failed=bounded_sentences(noted_failures(host)),
        back_to=host.data.rig_back_to,
        only=plan.only.names if plan.only else (),
    )
    given = write_input(release, merged_plan(_stored_past(host), plan, done.running) if plan.only else plan)
    written, said = _run_verb(host, "llamaherd.releases.write", given, last=True)
    if not written:
        why = next((line for line in said.stderr_lines if line.strip()), "it does not say why")
        logger.warning(f"{host.print_prefix}what was done could not be written down there: {why}")


def _stored_past(host: Host) -> Past:
    """Return what the host remembers; nothing if it does not respond: a release that holds a part alone is as true."""
    events = Events(lambda *_: None)
    _run_verb(host, "llamaherd.releases.read", ReadInput(RECENT), _events=events)
    try:
        return past_of(decode(Stored, result_of(events, ())))
    except (RemoteError, DocumentError):
        return Past({}, {})


def _run_verb(
    host: Host, verb: str, given: object, *, last: bool = False, **more: object
) -> tuple[bool, CommandOutput]:
    arguments = {"_document": request(verb, given), "_sudo": True, "_timeout": WRITE_SECONDS, "_last": last, **more}
    return host.run_shell_command(StringCommand("python3", "-I", verb), **arguments)
