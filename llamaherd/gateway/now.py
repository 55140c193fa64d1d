"""What a gateway does now, as its host says: servers, queues, users. Pure: it is asked by `ask.py`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from typing import Any, Literal

from llamaherd.host.protocol import take_facts
from llamaherd.host.remote import RemoteError
from llamaherd.text.numbers import parse_whole

ServerState = Literal["up", "down", "draining"]

_REFUSES = "the gateway does not do as it is told: "
"""How the host's program begins to say why."""
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


@dataclass(frozen=True)
class Drained:
    """What a server has left to answer, as far as that is counted: `ending` as of `GatewayNow`."""

    left: int
    ending: int


def parse_now(lines: Sequence[str]) -> GatewayNow:
    """What a host says that its gateway does. Raises RemoteError where it says nothing, or what was not asked."""
    models: dict[str, tuple[int, list[ServerNow]]] = {}
    users: list[UserNow] = []
    ending = 0
    returning: list[str] = []
    address: AddressNow | None = None

    def take(kind: str, fields: list[str]) -> bool:
        nonlocal ending, address
        match kind, fields:
            case "model", [name, waiting]:
                models[_name(name)] = (_count(waiting), [])
            case "server", [model, name, status, *figures]:
                models[model][1].append(ServerNow(_name(name), _state(status), *_counts(figures, 3)))
            case "user", [name, *figures]:
                users.append(UserNow(_name(name), *_counts(figures, 2)))
            case "ending", [count]:
                ending = _count(count)
            case "returning", [name]:
                returning.append(_name(name))
            case "address", [said, "here" | "elsewhere" as where]:
                address = AddressNow(str(ip_address(said)), where == "here")
            case _:
                return False
        return True

    take_facts(_answered(lines), take)
    made = tuple(ModelNow(name, waiting, tuple(servers)) for name, (waiting, servers) in models.items())
    return GatewayNow(made, tuple(users), ending, tuple(returning), address)


def parse_drained(lines: Sequence[str]) -> Drained:
    """What is left of a server's streams. Raises as `parse_now` does."""
    found = {"left": 0, "ending": 0}

    def take(kind: str, fields: list[str]) -> bool:
        if kind in found:
            (found[kind],) = _counts(fields, 1)
        return kind in found

    take_facts(_answered(lines), take)
    return Drained(**found)


def parse_ready(lines: Sequence[str]) -> None:
    """Whether a server takes requests again. Raises as `parse_now` does."""
    take_facts(_answered(lines), lambda kind, fields: (kind, fields) == ("ready", []))


def parse_held(lines: Sequence[str]) -> bool:
    """Whether what a run had asked for still held: nobody had said otherwise. Raises as `parse_now` does."""
    held: list[bool] = []

    def take(kind: str, fields: list[str]) -> bool:
        held.append(kind != "otherwise")
        return kind in ("ready", "renewed", "otherwise") and not fields

    take_facts(_answered(lines), take)
    return all(held)


def _answered(lines: Sequence[str]) -> Sequence[str]:
    """The lines of an answer that is one. Raises RemoteError where the host says why there is none."""
    match [line.split("\t") for line in lines[:1]]:
        case [["none"]]:
            raise RemoteError("there is no gateway on its host", "`herd up` brings it")
        case [["older"]]:
            raise RemoteError("its gateway is of another version of llamaherd", "`herd up` brings this one's")
        case [["silent", why]]:
            raise RemoteError(
                f"its gateway does not do as it is told: {why.removeprefix(_REFUSES)}",
                "see `systemctl status llamaherd-gateway` there; `herd up` makes it as declared",
            )
        case []:
            raise RemoteError("its gateway says nothing", "see `systemctl status llamaherd-gateway` there")
        case _:
            return lines


def _state(status: str) -> ServerState:
    """HAProxy's word for a server: `UP 1/2` has failed a check, `DOWN 1/2` is about to be up, `MAINT` is our drain.

    A name that cannot be looked up is `MAINT (resolution)`: nobody has drained that.
    """
    if status == "MAINT" or status.partition(" ")[0] == "DRAIN":
        return "draining"
    return "up" if status.partition(" ")[0] in ("UP", "no") else "down"


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("no name")
    return text


def _count(text: str) -> int:
    return parse_whole(text, _MOST_COUNT)


def _counts(fields: list[str], number: int) -> list[int]:
    if len(fields) != number:
        raise ValueError("another number of fields")
    return [_count(field) for field in fields]
