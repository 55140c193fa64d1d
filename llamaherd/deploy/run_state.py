"""The state of each host during a run: its lock, failures, changes and release, and where the run shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol
from weakref import WeakKeyDictionary

from pyinfra import logger
from pyinfra.api import Host, StringCommand
from pyinfra.api.output import echo, format_text
from pyinfra.connectors.util import CommandOutput

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.program import Events, request
from llamaherd.host.protocol import HostLock, result_of
from llamaherd.host.remote import RemoteError
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Connect
from llamaherd.onhost.document import DocumentError, decode
from llamaherd.onhost.releases import ReadInput, Stored
from llamaherd.onhost.servers import FailedSwitch, StartedServer
from llamaherd.pipeline.history import (
    RECENT,
    Origin,
    Past,
    Release,
    bounded_sentences,
    merged_plan,
    past_of,
    settling_release,
    write_input,
)
from llamaherd.plan import Plan
from llamaherd.role.changes import Change
from llamaherd.text.terminal import plain


class Screen(Protocol):
    """Shows a run. `rig` is the name of a host."""

    def begin(self, rig: str, changes: Sequence[Change]) -> None:
        """Show that changes begin, which are made together."""

    def end(self, rig: str) -> None:
        """Show that these changes have ended well."""

    def detail(self, rig: str, line: str) -> None:
        """Show a line of progress of these changes."""

    def note(self, rig: str, line: str) -> None:
        """Show a line that the user must read."""

    def finish(self, rig: str) -> None:
        """Note that the run has ended on this host."""


@dataclass
class _Current:
    screen: Screen | None = None


_current = _Current()


@contextmanager
def shown_on(screen: Screen) -> Iterator[None]:
    """Show runs on a screen instead of in pyinfra's log while the context is open."""
    _current.screen = screen
    try:
        yield
    finally:
        _current.screen = None


def begin_changes(host: Host, changes: Sequence[Change]) -> None:
    """Show that changes begin. In pyinfra's log, its own lines show that."""
    if _current.screen:
        _current.screen.begin(host.name, changes)


def end_changes(host: Host) -> None:
    """Show that these changes have ended well."""
    if _current.screen:
        _current.screen.end(host.name)


def finish_host(host: Host) -> None:
    """Show that the run has ended on a host."""
    if _current.screen:
        _current.screen.finish(host.name)


def show_detail(host: Host, line: str) -> None:
    """Show a line of progress."""
    if _current.screen:
        _current.screen.detail(host.name, plain(line))
    else:
        logger.info(f"{host.print_prefix}{plain(line)}")


def show_note(host: Host, line: str) -> None:
    """Show a line that the user must read."""
    if _current.screen:
        _current.screen.note(host.name, plain(line))
    else:
        logger.warning(f"{host.print_prefix}{plain(line)}")


def show_problem(host: Host, line: str) -> None:
    """Show why something failed. A screen shows the failures at its end instead."""
    if not _current.screen:
        logger.error(f"{host.print_prefix}{line}")


def show_in_log(host: Host, line: str) -> None:
    """Show a line in pyinfra's log alone."""
    if not _current.screen:
        logger.info(f"{host.print_prefix}{plain(line)}")


def show_output(prefix: str, name: str, text: str, *, wrong: bool) -> None:
    """Show a line that a program has printed on a host; on a screen, only its progress."""
    if _current.screen:
        if not wrong:
            _current.screen.detail(name, text)
        return
    with suppress(OSError):  # the terminal is gone: no reason to stop in the middle
        echo(f"{prefix}{format_text(text, 'red') if wrong else text}", err=True)


HELP_PREFIX = "  help: "
"""The beginning of the line with the help of an error."""

_MOST_LOG = 200
"""Lines before a failure that are kept."""


@dataclass(frozen=True)
class Failure:
    """Why a task of a host failed: a sentence and its help, the lines before it, and what a switch has sent."""

    task: str
    message: str
    help: str = ""
    log: tuple[str, ...] = ()
    switch: FailedSwitch | None = None

    @property
    def sentence(self) -> str:
        """Return the sentence with its help."""
        return f"{self.message}\n{HELP_PREFIX}{self.help}" if self.help else self.message


_failures: WeakKeyDictionary[Host, dict[tuple[str, int], Failure]] = WeakKeyDictionary()


def note_failure(host: Host, lines: Sequence[str], values: Sequence[object] = (), number: int = 0) -> None:
    """Note why the running operation has failed: the last sentence of these lines, with its help.

    `values` are what the verb has sent. Only the first failure of an operation counts: later ones follow from it. If it
    is refused for several reasons, each has a `number`.
    """
    operation = host.executing_op_hash
    if operation is None:
        return
    (name, *_) = host.state.get_op_meta(operation).names
    said = [line for line in lines if line.strip()]
    last = next((n for n in reversed(range(len(said))) if not said[n].startswith(HELP_PREFIX)), None)
    if last is None:
        failure = Failure(name, "it printed no reason", switch=_failed_switch(values))
    else:
        helps = "\n".join(said[last + 1 :]).removeprefix(HELP_PREFIX)
        failure = Failure(name, said[last], helps, tuple(said[:last][-_MOST_LOG:]), _failed_switch(values))
    _failures.setdefault(host, {}).setdefault((name, number), failure)


def _failed_switch(values: Sequence[object]) -> FailedSwitch | None:
    """Return what a switch has sent of its failure; None if it has sent nothing."""
    for value in reversed(values):
        with suppress(DocumentError):
            return decode(FailedSwitch, value)
    return None


def note_unreached(host: Host, why: str) -> None:
    """Note that a host cannot be reached: an error with its help."""
    message, _, help_ = why.partition(f"\n{HELP_PREFIX}")
    _failures.setdefault(host, {}).setdefault(("connection", 0), Failure("connection", message, help_))


_started: WeakKeyDictionary[Host, dict[str, StartedServer]] = WeakKeyDictionary()


def note_values(host: Host, values: Sequence[object]) -> None:
    """Note the servers that a verb has started."""
    for value in values:
        with suppress(DocumentError):
            started = decode(StartedServer, value)
            _started.setdefault(host, {})[started.service] = started


def speeds_of(host: Host) -> Mapping[str, float]:
    """Return the tokens per second of servers that this run has started on a host, by service."""
    found = _started.get(host, {})
    return {name: each.tokens_per_second for name, each in found.items() if each.tokens_per_second is not None}


def downtimes_of(host: Host) -> Mapping[str, float]:
    """Return the seconds for which servers were down that this run has restarted on a host, by service."""
    return {name: each.downtime for name, each in _started.get(host, {}).items() if each.downtime is not None}


def failures_of(host: Host) -> tuple[Failure, ...]:
    """Return the failures of a host until now."""
    return tuple(_failures.get(host, {}).values())


def noted_failures(host: Host) -> list[str]:
    """Return the failures of a host until now, with their reasons."""
    return [f"{each.task}: {each.sentence}" for each in failures_of(host)]


@dataclass(frozen=True)
class LockedHost:
    """The lock of a host that a run takes before it begins: the state that was inspected under it, and the time."""

    lock: HostLock
    state: HostState
    at: float


_host_locks: WeakKeyDictionary[Host, HostLock] = WeakKeyDictionary()
"""The locks of this process."""
_changing: set[Host] = set()
"""Hosts that are being changed."""
_waiting: set[Host] = set()
"""Hosts that other runs have locked."""


def log_in_for_lock(host: Host) -> None:
    """Log in ahead for the lock. If that fails, `take_host_lock` reports it."""
    with suppress(RemoteError):
        _lock_of(host).log_in()


def take_host_lock(host: Host) -> bool:
    """Wait until no other run changes this host, and take its lock. Return whether another run may have changed it.

    Raises UserError if the other run takes too long, and RemoteError if the host cannot be reached.
    """

    def wait(line: str) -> None:
        show_detail(host, line)
        _waiting.add(host)
        for other in {*_host_locks} - _changing:
            release_host_lock(other)

    lock = _lock_of(host)
    _changing.add(host)
    try:
        return lock.take(wait, host.data.rig_lock_wait)
    except UserError:
        release_host_lock(host)
        raise
    finally:
        _waiting.discard(host)


def _lock_of(host: Host) -> HostLock:
    if host not in _host_locks and (held := host.data.rig_locked):
        _host_locks[host] = held.lock
    elif host not in _host_locks:
        by = Origin.model_validate(host.data.rig_origin)
        connect = Connect.model_validate(host.data.rig_connect)
        _host_locks[host] = HostLock(host.name, connect, by.author)
    return _host_locks[host]


def holds_host_lock(host: Host) -> bool:
    """Return whether this run holds the lock of the host, so that more changes follow."""
    return host in _host_locks


def pause_host_lock(host: Host) -> None:
    """Note that the host is not being changed now. Its lock is kept, unless this run waits for another host."""
    _changing.discard(host)
    if _waiting:
        release_host_lock(host)


def release_host_lock(host: Host) -> None:
    """Let the next run change this host."""
    _changing.discard(host)
    if lock := _host_locks.pop(host, None):
        lock.give_back()


WRITE_SECONDS = 60


@dataclass
class HostRecord:
    """The changes of a host: whether one was begun, and those that are complete.

    `running` are the specs of its servers at the last inspection, by service. `unsettled` is why the newest release
    has not the state of the host.
    """

    begun: bool = False
    changes: list[str] = field(default_factory=list)
    running: Mapping[str, str] = field(default_factory=dict)
    unsettled: str = ""


_records: WeakKeyDictionary[Host, HostRecord] = WeakKeyDictionary()


def note_begin(host: Host) -> None:
    """Note that a change of the host begins."""
    record = _records.setdefault(host, HostRecord())
    if not record.begun and host in _host_locks:
        _host_locks[host].note_changes()
    record.begun = True


def note_running(host: Host, state: HostState) -> None:
    """Note the servers that run on the host, for a run that is limited to a part, and whether it is settled."""
    record = _records.setdefault(host, HostRecord())
    record.running, record.unsettled = state.running, state.unsettled


def note_change(host: Host, change: Change) -> None:
    """Note that a change is complete. Sending a file is part of the change that needs it."""
    if change.action != "send":
        _records.setdefault(host, HostRecord()).changes.append(str(change))


def record_release(host: Host) -> None:
    """Write the release of this run to the host, once, if the run has changed anything there.

    A run that finds a host in sync on which an earlier run failed, or was interrupted, also writes one.
    """
    done = _records.pop(host, HostRecord())
    plan = Plan.model_validate(host.data.plan)
    if not done.begun and not _settles(host, plan, done):
        return
    at, by = datetime.now(UTC).isoformat(timespec="seconds"), Origin.model_validate(host.data.rig_origin)
    release = Release(
        at=at,
        origin=by,
        changes=bounded_sentences(done.changes) if done.begun else settling_release(done.unsettled, by, at).changes,
        failed=bounded_sentences(noted_failures(host)),
        back_to=host.data.rig_back_to,
        only=plan.only.names if plan.only else (),
    )
    given = write_input(release, merged_plan(_stored_past(host), plan, done.running) if plan.only else plan)
    written, said = _run_verb(host, "llamaherd.releases.write", given, last=True)
    if not written:
        why = next((line for line in said.stderr_lines if line.strip()), "it printed no reason")
        show_note(host, f"what was done could not be written down there: {why}")


def _settles(host: Host, plan: Plan, done: HostRecord) -> bool:
    """Return whether a run without changes proves that the host matches its whole plan."""
    is_whole = plan.only is None and not (host.data.rig_roles or host.data.rig_back_to or host.data.rig_removing)
    return bool(done.unsettled) and is_whole and not failures_of(host)


def _stored_past(host: Host) -> Past:
    """Return the releases on the host; none if it does not respond: a release with the part alone is right, too."""
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
