"""The gateway on this host: its state, and which servers it sends requests to, by the program installed with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from llamaherd.layout import ADDRESS_PROGRAM, GATEWAY_TALK, GATEWAY_UNIT, WAKE_PROGRAM
from llamaherd.onhost.clients import QUERY_SECONDS, systemctl
from llamaherd.onhost.system import TIMED_OUT, Ended, FailedError, System
from llamaherd.onhost.verbs import NoInput, Verb

TIMERS = "llamaherd-ready-"
"""The prefix of timers that undo a drain."""
NO_GATEWAY = ("there is no gateway on its host", "`herd up` installs it")
OTHER_VERSION = ("its gateway is of another version of llamaherd", "`herd up` installs this one's")
_TALK = str(GATEWAY_TALK)
_REFUSES = re.compile(r"^the gateway does not [^:]*: ")
"""The prefix of the program's reasons for a failure."""
_SECONDS = 45
_MOST_WHY = 200
_MOST_ROWS = 10_000
_USAGE = 2
"""The exit code of a program of another version, which lacks a command."""


@dataclass(frozen=True)
class DrainInput:
    """A server to drain; `seconds` is the time to wait for its last requests.

    After `undo` seconds the host undoes the drain, even if the run has ended.
    """

    server: str
    seconds: int
    undo: int | None = None


@dataclass(frozen=True)
class ReadyInput:
    """A server to which the gateway sends requests again; with `ours`, only if the drain of a run is still set."""

    server: str
    ours: bool = False


@dataclass(frozen=True)
class RenewInput:
    """A drained server: the time until the host undoes the drain restarts."""

    server: str


@dataclass(frozen=True)
class WakeInput:
    """A rig to wake."""

    rig: str


@dataclass(frozen=True)
class Woken:
    """The number of networks into which the host sent a packet."""

    networks: int


@dataclass(frozen=True)
class ServerRow:
    """A server of a model: its state in HAProxy's word, concurrent requests and their limit, and all responses."""

    name: str
    status: str
    streams: int
    most: int
    answered: int


@dataclass(frozen=True)
class ModelRow:
    """A model: the requests that wait, and its servers."""

    name: str
    waiting: int
    servers: tuple[ServerRow, ...]


@dataclass(frozen=True)
class UserRow:
    """A user: concurrent requests and their limit."""

    name: str
    streams: int
    most: int


@dataclass(frozen=True)
class AddressRow:
    """An address that two gateways share, and whether this one has it."""

    address: str
    here: bool


@dataclass(frozen=True)
class GatewayState:
    """The gateway's state. `ending`: processes from before a reload. `returning`: servers that a run has drained."""

    models: tuple[ModelRow, ...]
    users: tuple[UserRow, ...]
    ending: int
    returning: tuple[str, ...] = ()
    address: AddressRow | None = None


@dataclass(frozen=True)
class DrainState:
    """Requests that a server still has, and processes from before a reload."""

    left: int
    ending: int


@dataclass(frozen=True)
class Held:
    """Whether the drain of a run was still set, unchanged since."""

    held: bool


def status(given: NoInput, system: System) -> GatewayState:
    """Return the state of the gateway. Raise FailedError if there is no gateway, or it does not respond."""
    del given
    _require_program(system)
    found = parse_status(_rows(_talk(system, "status")))
    timers = systemctl(system, "list-units", "--plain", "--no-legend", "--no-pager", f"{TIMERS}*.timer")
    names = [line.split()[0] for line in timers.out.splitlines() if line.strip()]
    returning = tuple(name.removeprefix(TIMERS).removesuffix(".timer") for name in names)
    return GatewayState(found.models, found.users, found.ending, returning, _address(system))


def drain(given: DrainInput, system: System) -> DrainState:
    """Drain a server, and wait for its last requests. Raise FailedError."""
    _require_program(system)
    _stop_timer(given.server, system)
    if given.undo is not None:
        # The timer starts before any change: the run may have ended when the drain is to be undone.
        options = (f"--on-active={given.undo}s", "--timer-property=AccuracySec=1s")
        unit = f"--unit={TIMERS}{given.server}"
        timer = system.run(["systemd-run", "-q", "--collect", unit, *options, _TALK, "ready", given.server])
        if not timer.ok:
            raise _failed("no timer could be set that has it send requests again")
    rows = _rows(_talk(system, "drain", given.server, str(given.seconds), seconds=given.seconds))
    counts = {row[0]: row[1] for row in rows if len(row) == len(("kind", "count"))}
    try:
        return DrainState(int(counts["left"]), int(counts["ending"]))
    except (KeyError, ValueError):
        raise _unexpected() from None


def ready(given: ReadyInput, system: System) -> Held:
    """Send a server requests again. Raise FailedError."""
    _require_program(system)
    if given.ours and not _is_timed(given.server, system):
        return Held(held=False)
    # The new setting replaces a drain that a run has left behind.
    _stop_timer(given.server, system)
    if _rows(_talk(system, "ready", given.server)) != [["ready"]]:
        raise _unexpected()
    return Held(held=True)


def renew(given: RenewInput, system: System) -> Held:
    """Restart the timer of a drain, if there is one. Without a timer, the drain has been replaced since."""
    systemctl(system, "try-restart", _timer(given.server))
    return Held(held=_is_timed(given.server, system))


def wake(given: WakeInput, system: System) -> Woken:
    """Send a rig a wake-on-LAN packet. Raise FailedError if this host cannot do that."""
    if system.entry(str(WAKE_PROGRAM)) is None:
        raise FailedError("this host sends no wake-on-LAN packets yet", "`herd up` of the gateway's rig adds that")
    ended = system.run([str(WAKE_PROGRAM), given.rig], seconds=QUERY_SECONDS)
    count = ended.out.strip()
    if not ended.ok or not count.isdecimal():
        why = " ".join(ended.err.split())[:_MOST_WHY] or "it did not respond in time"
        raise FailedError(f"no wake-on-LAN packet was sent: {why}", "`herd up` of the gateway's rig updates its table")
    return Woken(int(count))


def _timer(server: str) -> str:
    return f"{TIMERS}{server}.timer"


def _is_timed(server: str, system: System) -> bool:
    return systemctl(system, "is-active", "-q", _timer(server)).ok


def _stop_timer(server: str, system: System) -> None:
    systemctl(system, "stop", _timer(server))


def _require_program(system: System) -> None:
    if system.entry(_TALK) is None:
        raise FailedError(*NO_GATEWAY)


def _talk(system: System, *words: str, seconds: int = 0) -> Ended:
    """Run the gateway's program. Raise FailedError where it fails."""
    ended = system.run([_TALK, *words], seconds=_SECONDS + seconds)
    if ended.code == _USAGE:
        raise FailedError(*OTHER_VERSION)
    if ended.code == TIMED_OUT:
        raise _failed(f"it did not respond within {_SECONDS + seconds} s")
    if not ended.ok:
        raise _failed(" ".join((ended.out + ended.err).split())[:_MOST_WHY])
    return ended


def _failed(why: str) -> FailedError:
    return FailedError(
        f"its gateway does not respond correctly: {_REFUSES.sub('', why)}",
        f"see `systemctl status {GATEWAY_UNIT.removesuffix('.service')}` there; `herd up` restores it",
    )


def _unexpected() -> FailedError:
    return _failed("its program has printed something else than its state")


def _rows(ended: Ended) -> list[list[str]]:
    return [line.split("\t") for line in ended.out.splitlines()[:_MOST_ROWS]]


def parse_status(rows: Sequence[Sequence[str]]) -> GatewayState:
    """Return the state that the program has printed. Raise FailedError if it has printed something else."""
    models: dict[str, tuple[int, list[ServerRow]]] = {}
    users: list[UserRow] = []
    ending = None
    try:
        for kind, *fields in rows:
            match kind, fields:
                case "model", [name, waiting]:
                    models[name] = (int(waiting), [])
                case "server", [model, name, word, streams, most, answered]:
                    models[model][1].append(ServerRow(name, word, int(streams), int(most), int(answered)))
                case "user", [name, streams, most]:
                    users.append(UserRow(name, int(streams), int(most)))
                case "ending", [count]:
                    ending = int(count)
                case _:
                    raise _unexpected()
    except (ValueError, KeyError):
        raise _unexpected() from None
    if ending is None:
        raise _unexpected()
    found = tuple(ModelRow(name, waiting, tuple(servers)) for name, (waiting, servers) in models.items())
    return GatewayState(found, tuple(users), ending)


def _address(system: System) -> AddressRow | None:
    """Return the address that this gateway shares with another gateway, if it shares one."""
    if system.entry(str(ADDRESS_PROGRAM)) is None:
        return None
    match system.run([str(ADDRESS_PROGRAM), "where"], seconds=QUERY_SECONDS).out.split():
        case [address, "here" | "elsewhere" as where]:
            return AddressRow(address, where == "here")
        case _:
            return None


VERBS = {
    "status": Verb(NoInput, status),
    "drain": Verb(DrainInput, drain),
    "ready": Verb(ReadyInput, ready),
    "renew": Verb(RenewInput, renew),
    "wake": Verb(WakeInput, wake),
}
