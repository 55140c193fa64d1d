"""Judge whether other machines can reach the servers that are for them, and no others, and not without the key. Pure.

A server may be unreachable because of the host's firewall, a router, or another network. It counts as a failure only if
nothing lies between: this machine has an address in a network of the host. Otherwise it is a doubt. If the host's
address is unknown, nothing is tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_interface

from llamaherd.plan import Endpoint, Plan
from llamaherd.text.quoting import url_host

Network = IPv4Interface | IPv6Interface
"""An address of the host, and the network that it is in."""

LOCKED = (401, 403)
"""The statuses of a request without its key."""

_READ = range(200, 500)
"""Statuses of a server that has read the request: one that is closed, or not ready, returns 500 or more."""


@dataclass(frozen=True)
class RigAddress:
    """An address of the rig, and this machine's own on the way there."""

    there: str
    here: str


@dataclass(frozen=True)
class Door:
    """Where an instance takes connections from others, or is to take none. `model` is what it serves."""

    name: str
    endpoint: Endpoint
    model: str = ""


@dataclass(frozen=True)
class WayThere:
    """How this machine reaches a rig by itself."""

    addresses: tuple[RigAddress, ...]

    def to(self, door: Door) -> tuple[RigAddress, ...]:
        """Return the addresses to try a door at: all of them, if it must accept no connections."""
        shut = not door.endpoint.for_others
        return tuple(each for each in self.addresses if shut or door.endpoint.takes(each.there))


@dataclass(frozen=True)
class NoWay:
    """Why it is not known how this machine would reach a rig."""

    why: str


@dataclass(frozen=True)
class Tried:
    """The result of the connections to a door: by address, why it failed; empty if it accepted the connection.

    `keyless` is the HTTP status of a chat without the key, if a key is declared. `serves` is an address at which a door
    that must accept no connections lists its model.
    """

    at: tuple[tuple[RigAddress, str], ...]
    keyless: int | None = None
    serves: RigAddress | None = None


@dataclass(frozen=True)
class Reach:
    """What is known of an instance's door. `ok` is False where it is surely shut, and `doubt` where it may be."""

    ok: bool
    detail: str
    doubt: bool = False


def doors(plan: Plan, well: Iterable[str]) -> list[Door]:
    """Return the doors of the instances that are for other machines and are healthy on their own host."""
    names = set(well)
    return [
        Door(instance.name, instance.endpoint)
        for instance in plan.instances
        if instance.name in names and instance.endpoint.for_others
    ]


def walls(plan: Plan, well: Iterable[str]) -> list[Door]:
    """Return the doors that must accept no connections: of healthy instances for their own host alone."""
    names = set(well)
    return [
        Door(instance.name, instance.endpoint, instance.model)
        for instance in plan.instances
        if instance.name in names and not instance.endpoint.for_others
    ]


def networks(lines: Iterable[str]) -> list[Network]:
    """Return the host's own addresses, as `ip` prints them: with the length of the network's prefix."""
    found = []
    for line in lines:
        with suppress(ValueError):
            found.append(ip_interface(line.strip()))
    return found


def judge_reach(way: WayThere | NoWay, tried: Tried | None, door: Door, own: Sequence[Network]) -> Reach:
    """Return the result of the attempts at a door. `own` are the host's addresses, as the host reports them."""
    if isinstance(way, NoWay):
        return Reach(True, f"not tried from here: {way.why}")
    at, port = tried.at if tried else (), door.endpoint.port
    if not at:
        return Reach(
            True, f"not tried from here: it listens on {door.endpoint.listen}, but ssh connects to another address"
        )
    for address, problem in at:
        if not problem:
            return _open(f"{url_host(address.there)}:{port}", tried.keyless if tried else None)
    address, problem = next(((a, p) for a, p in at if _in_same_network(a, own)), at[0])
    where = f"{url_host(address.there)}:{port} {problem} from this machine, though the server responds on its host"
    if _in_same_network(address, own):
        return Reach(
            False,
            f"{where}, which is in the same network: a firewall of the host is most likely "
            f"(`nft list ruleset`, `ufw status`, or Windows' own under WSL); let port {port} through there",
        )
    if all(ip_address(address.there) != each.ip for each in own):
        return Reach(
            True,
            f"{where}; {address.there} is no address of the host's own, so that the port may have to be forwarded",
            doubt=True,
        )
    return Reach(
        True,
        f"{where}; a firewall of the host may be why (`nft list ruleset`, `ufw status`), or a router: this machine "
        f"is in another network ({address.here or 'without an address there'}). Try it from where its clients are",
        doubt=True,
    )


def judge_wall(tried: Tried, door: Door) -> Reach:
    """Return the result of the attempts at a door that must accept no connections."""
    port = door.endpoint.port
    if tried.serves:
        return Reach(
            False,
            f"it can be used from this machine at {url_host(tried.serves.there)}:{port}, and listens on "
            f"{door.endpoint.listen} alone: something on the host passes connections on (a proxy, a tunnel, or a rule "
            "of its firewall); end that, or declare `listen` and `api_key`",
        )
    return Reach(True, f"takes no connections of this machine at port {port}")


def _open(where: str, keyless: int | None) -> Reach:
    """Return a door that accepts connections, with its response to a chat without the key, if one is declared."""
    if keyless is not None and keyless in _READ and keyless not in LOCKED:
        return Reach(
            False, f"responds to this machine at {where} without the API key that is declared (HTTP {keyless})"
        )
    return Reach(True, f"takes connections of this machine at {where}{', with the key' if keyless in LOCKED else ''}")


def _in_same_network(address: RigAddress, own: Iterable[Network]) -> bool:
    """Return whether this machine is in the network of this address of the host: nothing is between them."""
    there = ip_address(address.there)
    networks = [each.network for each in own if each.ip == there]
    return bool(address.here) and any(ip_address(address.here) in network for network in networks)
