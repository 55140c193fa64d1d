"""The gateway on this host: its state, and which servers it sends requests to, by the program installed with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llamaherd.layout import ADDRESS_PROGRAM, GATEWAY_TALK, GATEWAY_UNIT
from llamaherd.onhost.clients import QUERY_SECONDS, systemctl
from llamaherd.onhost.system import TIMED_OUT, Ended, FailedError, System
from llamaherd.onhost.verbs import Verb

TIMERS = "llamaherd-ready-"
"""How the names of timers begin that have a server sent requests again."""
NO_GATEWAY = ("there is no gateway on its host", "`herd up` brings it")
OTHER_VERSION = ("its gateway is of another version of llamaherd", "`herd up` brings this one's")
_TALK = str(GATEWAY_TALK)
_REFUSES = "the gateway does not do as it is told: "
"""How the program begins to report why it failed."""
_SECONDS = 45
_MOST_WHY = 200
_MOST_ROWS = 10_000
_USAGE = 2
"""The exit code of a program of another version, which lacks a command."""


@dataclass(frozen=True)
class StatusInput:
    """Nothing: a host has one gateway."""


@dataclass(frozen=True)
class DrainInput:
    """A server that is sent no new requests; `seconds` is how long its last ones are waited for.

    After `undo` seconds the host undoes the drain, whatever has become of the run.
    """

    server: str
    seconds: int
    undo: int | None = None


@dataclass(frozen=True)
class ReadyInput:
    """A server that is sent requests again. `ours`: only if it was drained by a run, and nothing else was set since."""

    server: str
    ours: bool = False


@dataclass(frozen=True)
class RenewInput:
    """A server whose drain the host undoes later: its time begins anew."""

    server: str


@dataclass(frozen=True)
class ServerRow:
    """A server of a model: HAProxy's word for its state, requests of how many at once, and responses."""

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
    """A user: requests of how many at once."""

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
    """What the gateway does. `ending`: processes from before a reload. `returning`: servers that a run has drained."""

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
    """Whether what a run had set still held: nothing else was set since."""

    held: bool


def status(given: StatusInput, system: System) -> GatewayState:
    """Return what the gateway does. Raise FailedError where there is none, or it does not respond."""
    del given
    _require_program(system)
    found = parse_status(_rows(_talk(system, "status")))
    timers = systemctl(system, "list-units", "--plain", "--no-legend", "--no-pager", f"{TIMERS}*.timer")
    names = [line.split()[0] for line in timers.out.splitlines() if line.strip()]
    returning = tuple(name.removeprefix(TIMERS).removesuffix(".timer") for name in names)
    return GatewayState(found.models, found.users, found.ending, returning, _address(system))


def drain(given: DrainInput, system: System) -> DrainState:
    """Send a server no new requests, and wait for its last ones. Raise FailedError."""
    _require_program(system)
    _stop_timer(given.server, system)
    if given.undo is not None:
        # Before anything is changed: the run may be gone before it is time.
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
    # What is set now holds, in place of what a run has left behind.
    _stop_timer(given.server, system)
    if _rows(_talk(system, "ready", given.server)) != [["ready"]]:
        raise _unexpected()
    return Held(held=True)


def renew(given: RenewInput, system: System) -> Held:
    """Start the timer of a drain again, if it is there: without one, something else was set since."""
    systemctl(system, "try-restart", _timer(given.server))
    return Held(held=_is_timed(given.server, system))


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
        f"its gateway does not respond as it should: {why.removeprefix(_REFUSES)}",
        f"see `systemctl status {GATEWAY_UNIT.removesuffix('.service')}` there; `herd up` makes it as declared",
    )


def _unexpected() -> FailedError:
    return _failed("its program has printed something else than its state")


def _rows(ended: Ended) -> list[list[str]]:
    return [line.split("\t") for line in ended.out.splitlines()[:_MOST_ROWS]]


def parse_status(rows: Sequence[Sequence[str]]) -> GatewayState:
    """Return the state that the program has printed. Raise FailedError where it has printed something else."""
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
    """Return the address that this gateway shares with another one, where it does."""
    if system.entry(str(ADDRESS_PROGRAM)) is None:
        return None
    match system.run([str(ADDRESS_PROGRAM), "where"], seconds=QUERY_SECONDS).out.split():
        case [address, "here" | "elsewhere" as where]:
            return AddressRow(address, where == "here")
        case _:
            return None


VERBS = {
    "status": Verb(StatusInput, status),
    "drain": Verb(DrainInput, drain),
    "ready": Verb(ReadyInput, ready),
    "renew": Verb(RenewInput, renew),
}
