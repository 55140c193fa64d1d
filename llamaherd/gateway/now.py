"""What a gateway does now, as its host reports it: servers, queues, users. Pure: `ask.py` queries it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from typing import Any, Literal

from llamaherd.host.protocol import UnaskedError
from llamaherd.onhost.gateway import GatewayState

ServerState = Literal["up", "down", "draining"]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,80}")
_MOST_COUNT = 10**15


@dataclass(frozen=True)
class ServerNow:
    """A server of a model: its state, requests of how many at once, and answers since the gateway began to count."""

    name: str
    state: ServerState
    streams: int
    most: int
    answered: int


@dataclass(frozen=True)
class ModelNow:
    """A model: its servers, and the requests that wait for one of them."""

    name: str
    waiting: int
    servers: tuple[ServerNow, ...]


@dataclass(frozen=True)
class UserNow:
    """A user: requests that are answered or wait, of how many at once."""

    name: str
    streams: int
    most: int


@dataclass(frozen=True)
class AddressNow:
    """An address that two gateways have in turn, and whether this one has it."""

    address: str
    here: bool


@dataclass(frozen=True)
class GatewayNow:
    """A gateway. `ending`: processes from before a reload, with streams of their own that nobody counts.

    `returning`: servers that a run has drained; where that does not take them back, a timer does. `address` is known of
    a gateway that has one in turn with another.
    """

    models: tuple[ModelNow, ...]
    users: tuple[UserNow, ...]
    ending: int
    returning: tuple[str, ...] = ()
    address: AddressNow | None = None

    @property
    def down(self) -> tuple[str, ...]:
        """Servers that are down, each once."""
        rows = (server for model in self.models for server in model.servers)
        return tuple(dict.fromkeys(server.name for server in rows if server.state == "down"))

    def alone(self, server: str) -> tuple[str, ...]:
        """Models of which this server is the only one that is up."""
        ups = {model.name: [each.name for each in model.servers if each.state == "up"] for model in self.models}
        return tuple(model for model, names in ups.items() if names == [server])

    def without(self, server: str, fallbacks: Mapping[str, str | None]) -> tuple[str, ...]:
        """Models that nobody would answer without this server: no other one is up of theirs, nor of a fallback's."""
        others = {
            model.name: any(each.state == "up" and each.name != server for each in model.servers)
            for model in self.models
        }

        def answered(name: str | None, seen: frozenset[str] = frozenset()) -> bool:
            if name is None or name in seen:
                return False
            return others.get(name, False) or answered(fallbacks.get(name), seen | {name})

        return tuple(name for name in self.alone(server) if not answered(name))

    def takes(self, server: str) -> bool:
        """Whether it sends this server requests, or would but for a run that was cut off."""
        rows = [each.state for model in self.models for each in model.servers if each.name == server]
        return "up" in rows or ("draining" in rows and server in self.returning)

    def absent(self, declared: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        """Servers, of these models and servers, that the gateway does not have: it runs by another declaration."""
        has = {(model.name, server.name) for model in self.models for server in model.servers}
        return tuple(dict.fromkeys(server for model, server in declared if (model, server) not in has))

    def as_json(self) -> dict[str, Any]:
        """The same for machines."""
        return asdict(self)


def gateway_now(found: GatewayState) -> GatewayNow:
    """Return the state of a gateway from its host's result. Raise UnaskedError if no gateway can have this state."""
    try:
        models = tuple(
            ModelNow(
                _name(model.name),
                _count(model.waiting),
                tuple(
                    ServerNow(
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
        users = tuple(UserNow(_name(each.name), _count(each.streams), _count(each.most)) for each in found.users)
        shared = found.address
        address = AddressNow(str(ip_address(shared.address)), shared.here) if shared else None
        return GatewayNow(models, users, _count(found.ending), tuple(map(_name, found.returning)), address)
    except ValueError as error:
        raise UnaskedError(str(error)) from None


def _state(status: str) -> ServerState:
    """HAProxy's word for a server: `UP 1/2` has failed a check, `DOWN 1/2` is about to be up, `MAINT` is our drain.

    A name that cannot be looked up is `MAINT (resolution)`: nobody has drained that.
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
