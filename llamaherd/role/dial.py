"""Try a rig's ports from this machine: a connection or two to each, all at once, for a few seconds at most.
`reach.py` judges the results."""

from __future__ import annotations

import errno
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from ipaddress import ip_address

from llamaherd.host.ssh import settings
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.role.reach import (
    LOCKED,
    Door,
    NoWay,
    Reach,
    RigAddress,
    Tried,
    WayThere,
    judge_reach,
    judge_wall,
    networks,
)
from llamaherd.text.quoting import url_host

SECONDS = 3.0
"""For a connection: in a LAN it takes a thousandth of that, and across the world a tenth."""

_MOST_BYTES = 1 << 16
"""The most bytes of a response that are read."""

_AT_ONCE = 32
_NAMES_SECONDS = 5.0


def reached(
    connect: Connect, doors: Sequence[Door], own: Iterable[str], walls: Sequence[Door] = ()
) -> dict[str, Reach]:
    """Return the result at each door, by the name of its instance. `own`: the host's addresses, as `ip` prints them."""
    # Of `walls`, nothing where there is no way to try them.
    if not doors and not walls:
        return {}
    there = way(connect)
    tried = dial(there, (*doors, *walls)) if isinstance(there, WayThere) else {}
    addresses = networks(own)
    shut = {wall.name: judge_wall(tried[wall.name], wall) for wall in walls if wall.name in tried}
    return {door.name: judge_reach(there, tried.get(door.name), door, addresses) for door in doors} | shut


def way(connect: Connect) -> WayThere | NoWay:
    """Return the addresses of the rig that this machine reaches by itself, as ssh does; or why they are unknown."""
    if connect.host == LOCAL:
        return NoWay("it is this machine")
    try:
        options = settings(connect)
    except (OSError, subprocess.SubprocessError):
        return NoWay("`ssh -G` does not print its address")
    if {options.get("proxyjump", "none"), options.get("proxycommand", "none")} != {"none"}:
        return NoWay("ssh reaches it through another machine (ProxyJump or ProxyCommand)")
    name = options.get("hostname", connect.host)
    addresses = _addresses(name)
    if not addresses:
        return NoWay(f"{name} is no name of an address here")
    if any(ip_address(each).is_loopback for each in addresses):
        return NoWay(f"ssh reaches it by a port of this machine ({name})")
    return WayThere(tuple(RigAddress(each, _source(each)) for each in addresses))


def dial(way: WayThere, doors: Iterable[Door]) -> dict[str, Tried]:
    """Return the result of a connection to each of these doors, by the name of its instance."""
    doors = tuple(doors)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        tries = {door.name: [pool.submit(_knock, door, each) for each in way.to(door)] for door in doors}
        return {name: _together([each.result() for each in tries[name]]) for name in tries}


def _together(tries: Iterable[Tried]) -> Tried:
    """Return the result of one door at several addresses: one without a lock counts first."""
    tries = tuple(tries)
    statuses = [each.keyless for each in tries if each.keyless is not None]
    return Tried(
        tuple(at for each in tries for at in each.at),
        min(statuses, key=lambda status: (status in LOCKED, status), default=None),
        next((each.serves for each in tries if each.serves), None),
    )


def _knock(door: Door, address: RigAddress) -> Tried:
    """Return whether an address accepts connections, and its response if it must not respond to everybody."""
    problem, endpoint = _try(address, door.endpoint.port), door.endpoint
    keyless, serves = None, None
    if not problem and endpoint.for_others and endpoint.key:
        keyless = _status(_request(address, endpoint.port, "POST", endpoint.chat_path))
    if not problem and not endpoint.for_others:
        response = _request(address, endpoint.port, "GET", endpoint.models_path)
        serves = address if _status(response) == 200 and f'"{door.model}"'.encode() in response else None
    return Tried(((address, problem),), keyless, serves)


def _request(address: RigAddress, port: int, method: str, path: str) -> bytes:
    """Return the beginning of an HTTP server's response to a request without a key; empty if none comes in time."""
    end = time.monotonic() + SECONDS
    head = f"{method} {path} HTTP/1.0\r\nHost: {url_host(address.there)}:{port}\r\n"
    request = f"{head}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
    response = b""
    with suppress(OSError), socket.create_connection((address.there, port), SECONDS) as connection:
        connection.sendall((request if method == "POST" else f"{head}\r\n").encode())
        while len(response) < _MOST_BYTES and (left := end - time.monotonic()) > 0:
            connection.settimeout(left)
            if not (more := connection.recv(4096)):
                break
            response += more
    return response


def _status(response: bytes) -> int | None:
    """Return the status of an HTTP response; None if it is no HTTP."""
    found = re.match(rb"HTTP/1\.[01] (\d{3})\b", response)
    return int(found[1]) if found else None


def _try(address: RigAddress, port: int) -> str:
    """Return why the port accepts no connections; empty if it does."""
    try:
        socket.create_connection((address.there, port), SECONDS).close()
    except TimeoutError:
        return "does not respond"
    except OSError as error:
        refusals = {errno.ECONNREFUSED: "is refused", errno.EHOSTUNREACH: "is rejected", errno.EACCES: "is rejected"}
        return refusals.get(error.errno or 0) or f"cannot be reached ({os.strerror(error.errno or 0)})"
    return ""


def _addresses(name: str) -> list[str]:
    """Return the addresses of a name."""
    # A resolver that does not respond is not waited for.
    pool = ThreadPoolExecutor(1)
    try:
        found = pool.submit(socket.getaddrinfo, name, None, type=socket.SOCK_STREAM).result(_NAMES_SECONDS)
    except (OSError, TimeoutError, UnicodeError):
        return []
    finally:
        pool.shutdown(wait=False)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


def _source(address: str) -> str:
    """Return this machine's own address on the route to an address; empty without a route. Nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return str(probe.getsockname()[0])
    return ""
