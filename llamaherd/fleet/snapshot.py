"""The state of the fleet at one moment, as values. Terminal, page and JSON are written from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from llamaherd.fleet.gateway_snapshot import AddressLine, GatewaySnapshot, ServerState, address_line

InstanceState = Literal["serves", "waits", "busy", "loads", "hangs", "down", "paused", "asleep"]

ANSWERS: tuple[InstanceState, ...] = ("serves", "waits", "busy", "asleep")
"""States in which requests are served, perhaps a little later."""


@dataclass(frozen=True)
class Speed:
    """Tokens a second of one measurement, with the 95 % interval if there is one; `began` in UTC.

    `counted` is the number of runs or starts: `n = 2, too few`.
    """

    value: float
    low: float | None
    high: float | None
    began: str
    counted: str


@dataclass(frozen=True)
class CardSnapshot:
    """A GPU: bytes, watts, degrees Celsius, percent; None for a value that it does not report. `name` is as
    declared.
    """

    name: str
    model: str
    memory_used: int | None
    memory_total: int | None
    watts: float | None
    limit_watts: float | None
    celsius: float | None
    busy_percent: float | None


@dataclass(frozen=True)
class InstanceSnapshot:
    """An instance. `why` is the reason why it does not serve, in a few words.

    `group` is that of instances of one server: one that `waits` is loaded when a client requests it.

    `streams` are its running requests, `reading` those of them whose prompt is still read, of `slots` at once;
    `waiting` come after them. `tokens_per_second` are those of all streams together in about one second. `measured` is
    the last result of `herd bench`, `expected` the declared value.
    """

    name: str
    model: str
    port: int
    state: InstanceState
    why: str = ""
    streams: int | None = None
    slots: int | None = None
    reading: int | None = None
    waiting: int | None = None
    tokens_per_second: float | None = None
    measured: Speed | None = None
    expected: float | None = None
    group: str | None = None

    @property
    def ok(self) -> bool:
        """Return whether it serves requests: one that is busy, or must be loaded first, does so a little later."""
        return self.state in ANSWERS


@dataclass(frozen=True)
class LastChange:
    """The newest release of a host: `at` in UTC, its user, its changes in a sentence each, and its failures."""

    number: int
    at: str
    who: str
    changes: tuple[str, ...]
    failed: tuple[str, ...]


@dataclass(frozen=True)
class RigSnapshot:
    """A rig. `away` is why its host could not be queried: then `declared` is all that is known.

    `declared` is the number of its instances in the inventory. `problems` are sentences, each with a fix. `gateway` is
    the state of the gateway on it. `asleep`: its host does not respond, and a gateway can wake it.
    """

    name: str
    instances: tuple[InstanceSnapshot, ...] = ()
    cards: tuple[CardSnapshot, ...] = ()
    change: LastChange | None = None
    problems: tuple[str, ...] = ()
    gateway: GatewaySnapshot | None = None
    away: str = ""
    declared: int = 0
    asleep: bool = False

    @property
    def ok(self) -> bool:
        """Return whether all of it serves."""
        return not self.problems and not self.away


@dataclass(frozen=True)
class FleetSnapshot:
    """The fleet at `at`, in UTC."""

    at: str
    rigs: tuple[RigSnapshot, ...]

    @property
    def ok(self) -> bool:
        """Return whether all of it serves."""
        return all(rig.ok for rig in self.rigs) and (self.address is None or self.address.ok)

    @property
    def problems(self) -> tuple[str, ...]:
        """All problems, a sentence each, that names its rig."""
        return tuple(self._problems())

    def _problems(self) -> Iterator[str]:
        for rig in self.rigs:
            if rig.away:
                yield f"{rig.name}: {rig.away}"
            for problem in rig.problems:
                yield f"{rig.name}: {problem}"
        address = self.address
        if address and not address.ok:
            yield address.line

    @property
    def pauses(self) -> tuple[str, ...]:
        """The paused servers and the sleeping rigs, a sentence each."""
        return tuple(dict.fromkeys(line for rig in self.rigs for line in _pauses(rig)))

    @property
    def address(self) -> AddressLine | None:
        """The location of the address that two gateways share; None without one, or if it is unknown."""
        gateways = {rig.name: rig.gateway for rig in self.rigs if rig.gateway}
        return address_line(gateways) if len(gateways) > 1 else None

    def rows(self) -> list[dict[str, Any]]:
        """Return the state of each rig as plain JSON values."""
        every = [(asdict(rig), rig.ok) for rig in self.rigs]
        return [{"rig": values.pop("name"), **values, "ok": ok} for values, ok in every]


def _pauses(rig: RigSnapshot) -> Iterator[str]:
    if rig.asleep:
        yield f"{rig.name}: it sleeps, or is off; a request for its models or `herd up {rig.name}` wakes it"
    for each in rig.instances:
        if each.state == "paused":
            server = each.group or each.name
            yield f"{rig.name}: {server} is paused {each.why}; `herd resume {rig.name}/{server}` starts it"


def judge_gateways(rigs: Sequence[RigSnapshot]) -> tuple[RigSnapshot, ...]:
    """Return rigs with the problems of their gateways: servers that are down, and not paused or asleep there."""
    states: dict[str, ServerState] = {}
    for rig in rigs:
        for each in rig.instances:
            if each.state == "paused" or (each.state == "asleep" and rig.asleep):
                states[f"{rig.name}.{each.group or each.name}"] = each.state
    found = []
    for rig in rigs:
        gateway = rig.gateway.with_states(states) if rig.gateway else None
        down = gateway.down if gateway else ()
        wrong = [f"the gateway reports {server} as down; `herd gateway status` reports more" for server in down]
        found.append(replace(rig, gateway=gateway, problems=(*rig.problems, *wrong)))
    return tuple(found)
