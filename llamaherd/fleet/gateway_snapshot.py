"""The state of a gateway at one moment: servers, queues and users, as values and as lines of text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from ipaddress import ip_address
from typing import Any, Literal, NamedTuple

from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.onhost.gateway import AddressRow, GatewayState, UserRow

ServerState = Literal["up", "down", "draining", "paused", "asleep"]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,80}")
_MOST_COUNT = 10**15


@dataclass(frozen=True)
class ServerSnapshot:
    """A server of a model: its state, its requests of how many at once, and the responses since the gateway began to
    count.
    """

    name: str
    state: ServerState
    streams: int
    most: int
    answered: int


@dataclass(frozen=True)
class ModelSnapshot:
    """A model: its servers, and the requests that wait for one of them."""

    name: str
    waiting: int
    servers: tuple[ServerSnapshot, ...]


@dataclass(frozen=True)
class GatewaySnapshot:
    """A gateway. `ending`: processes from before a reload, whose streams are not counted.

    `returning`: servers that a run has drained; if the run does not undo that, a timer does. `address` is set for a
    gateway that shares one with another.
    """

    models: tuple[ModelSnapshot, ...]
    users: tuple[UserRow, ...]
    ending: int
    returning: tuple[str, ...] = ()
    address: AddressRow | None = None

    @property
    def down(self) -> tuple[str, ...]:
        """Servers that are down, each once."""
        return self._in_state("down")

    @property
    def paused(self) -> tuple[str, ...]:
        """Servers that are paused, each once."""
        return self._in_state("paused")

    @property
    def draining(self) -> tuple[str, ...]:
        """Servers that receive no new requests, each once."""
        return self._in_state("draining")

    @property
    def asleep(self) -> tuple[str, ...]:
        """Servers whose rigs sleep, each once."""
        return self._in_state("asleep")

    def _in_state(self, state: ServerState) -> tuple[str, ...]:
        rows = (server for model in self.models for server in model.servers)
        return tuple(dict.fromkeys(server.name for server in rows if server.state == state))

    def with_states(self, states: Mapping[str, ServerState]) -> GatewaySnapshot:
        """Return the gateway with the states that its servers have on their rigs, for those that are down for it."""

        def marked(server: ServerSnapshot) -> ServerSnapshot:
            return replace(server, state=states.get(server.name, "down")) if server.state == "down" else server

        models = (replace(model, servers=tuple(map(marked, model.servers))) for model in self.models)
        return replace(self, models=tuple(models))

    def alone(self, server: str) -> tuple[str, ...]:
        """Return the models of which this server is the only one that is up."""
        ups = {model.name: [each.name for each in model.servers if each.state == "up"] for model in self.models}
        return tuple(model for model, names in ups.items() if names == [server])

    def without(self, server: str, fallbacks: Mapping[str, str | None]) -> tuple[str, ...]:
        """Return the models that no server would serve without this one: no other one is up, nor one of a fallback."""
        others = {
            model.name: any(each.state == "up" and each.name != server for each in model.servers)
            for model in self.models
        }

        def served(name: str | None, passed: frozenset[str] = frozenset()) -> bool:
            if name is None or name in passed:
                return False
            return others.get(name, False) or served(fallbacks.get(name), passed | {name})

        return tuple(name for name in self.alone(server) if not served(name))

    def takes(self, server: str) -> bool:
        """Return whether it sends this server requests, or would but for an interrupted run."""
        rows = [each.state for model in self.models for each in model.servers if each.name == server]
        return "up" in rows or ("draining" in rows and server in self.returning)

    def absent(self, declared: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        """Return the declared servers that the gateway does not have: its configuration is another one."""
        has = {(model.name, server.name) for model in self.models for server in model.servers}
        return tuple(dict.fromkeys(server for model, server in declared if (model, server) not in has))

    def as_json(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return asdict(self)


def gateway_snapshot(found: GatewayState) -> GatewaySnapshot:
    """Return the state of a gateway from its host's result.

    Raise UnexpectedLineError if no gateway can have this state.
    """
    try:
        models = tuple(
            ModelSnapshot(
                _name(model.name),
                _count(model.waiting),
                tuple(
                    ServerSnapshot(
                        _name(each.name),
                        _state(each.status),
                        _count(each.streams),
                        _count(each.most),
                        _count(each.answered),
                    )
                    for each in model.servers
                ),
            )
            for model in found.models
        )
        users = tuple(UserRow(_name(each.name), _count(each.streams), _count(each.most)) for each in found.users)
        shared = found.address
        address = AddressRow(str(ip_address(shared.address)), shared.here) if shared else None
        return GatewaySnapshot(models, users, _count(found.ending), tuple(map(_name, found.returning)), address)
    except ValueError as error:
        raise UnexpectedLineError(str(error)) from None


def _state(status: str) -> ServerState:
    """Return the state for HAProxy's status: `UP 1/2` has failed a check, `DOWN 1/2` is about to be up, `MAINT` is our
    drain.

    A name that cannot be resolved is `MAINT (resolution)`: that is not a drain.
    """
    if status == "MAINT" or status.partition(" ")[0] == "DRAIN":
        return "draining"
    return "up" if status.partition(" ")[0] in ("UP", "no") else "down"


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is not a name")
    return text


def _count(count: int) -> int:
    if not 0 <= count <= _MOST_COUNT:
        raise ValueError(f"{count} is not a count")
    return count


_SERVERS = ("model", "waiting", "server", "state", "streams", "answered")
_USERS = ("user", "streams")


def gateway_lines(now: GatewaySnapshot) -> Iterator[str]:
    """Yield its servers by model, then its users, each a line."""
    yield from _columns([_SERVERS, *(row for model in now.models for row in _rows(model))])
    if now.users:
        yield ""
        yield from _columns([_USERS, *((user.name, f"{user.streams} of {user.most}") for user in now.users)])
    for server in now.returning:
        yield f"  {server} is drained by `herd up` or a measurement, and returns by itself"


def _rows(model: ModelSnapshot) -> Iterator[Sequence[str]]:
    """Yield a line of each server; the first contains the model and its waiting requests."""
    of_model = (model.name, str(model.waiting))
    for server in model.servers:
        yield (*of_model, server.name, server.state, f"{server.streams} of {server.most}", str(server.answered))
        of_model = ("", "")


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip()


def ending_line(ending: int) -> str:
    """Describe processes from before a reload, whose streams are not counted."""
    processes = "a process" if ending == 1 else f"{ending} processes"
    return f"{processes} from before a reload still {'has' if ending == 1 else 'have'} streams, which are not counted"


class AddressLine(NamedTuple):
    """The location of the address of two gateways, in a sentence, and whether that is on one of them."""

    line: str
    ok: bool


def address_line(gateways: Mapping[str, GatewaySnapshot]) -> AddressLine | None:
    """Return which of these gateways has the address that they share; None without one."""
    addresses = {rig: now.address for rig, now in gateways.items() if now.address}
    if not addresses:
        return None
    address = next(iter(addresses.values())).address
    owners = [rig for rig, each in addresses.items() if each.here]
    if len(owners) == 1:
        return AddressLine(f"{address} is on {owners[0]}", True)
    if owners:
        fix = "let their VRRP messages through between them: protocol 112"
        return AddressLine(f"{address} is on {' and '.join(owners)} at once: {fix}", False)
    where = ", nor on ".join(addresses)
    return AddressLine(f"{address} is not on {where}: see `systemctl status llamaherd-address` there", False)
