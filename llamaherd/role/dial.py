"""A rig's ports, tried from this machine: one TCP connection to each, all at once, for a few seconds at most.

`reach.py` says what follows from it.
"""

from __future__ import annotations

import errno
import os
import socket
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from ipaddress import ip_address

from llamaherd.host.ssh import settings
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.role.reach import Door, NoWay, Reach, RigAddress, Tried, WayThere, judge_reach, networks

SECONDS = 3.0
"""For a connection: in a LAN it takes a thousandth of that, and across the world a tenth."""

_AT_ONCE = 32
_NAMES_SECONDS = 5.0


def reached(connect: Connect, doors: Sequence[Door], own: Iterable[str]) -> dict[str, Reach]:
    """What is known of each door, by the name of its instance. `own`: the host's addresses, as `ip` prints them."""
    if not doors:
        return {}
    there = way(connect)
    tried = dial(there, doors) if isinstance(there, WayThere) else {}
    addresses = networks(own)
    return {door.name: judge_reach(there, tried.get(door.name), door, addresses) for door in doors}


def way(connect: Connect) -> WayThere | NoWay:
    """Which addresses of the rig this machine reaches by itself, as ssh does; or why that is not known."""
    if connect.host == LOCAL:
        return NoWay("it is this machine")
    try:
        said = settings(connect)
    except (OSError, subprocess.SubprocessError):
        return NoWay("`ssh -G` does not say where it is")
    if {said.get("proxyjump", "none"), said.get("proxycommand", "none")} != {"none"}:
        return NoWay("ssh reaches it through another machine (ProxyJump or ProxyCommand)")
    name = said.get("hostname", connect.host)
    addresses = _addresses(name)
    if not addresses:
        return NoWay(f"{name} is no name of an address here")
    if any(ip_address(each).is_loopback for each in addresses):
        return NoWay(f"ssh reaches it by a port of this machine ({name})")
    return WayThere(tuple(RigAddress(each, _source(each)) for each in addresses))


def dial(way: WayThere, doors: Iterable[Door]) -> dict[str, Tried]:
    """What came of a connection to each of these doors, by the name of its instance."""
    doors = tuple(doors)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        tries = {
            door.name: [(each, pool.submit(_try, each, door.endpoint.port)) for each in way.to(door)] for door in doors
        }
        return {name: Tried(tuple((each, tried.result()) for each, tried in tries[name])) for name in tries}


def _try(address: RigAddress, port: int) -> str:
    """Nothing where the port takes connections; else why not."""
    try:
        socket.create_connection((address.there, port), SECONDS).close()
    except TimeoutError:
        return "does not answer"
    except OSError as error:
        refusals = {errno.ECONNREFUSED: "is refused", errno.EHOSTUNREACH: "is rejected", errno.EACCES: "is rejected"}
        return refusals.get(error.errno or 0) or f"cannot be reached ({os.strerror(error.errno or 0)})"
    return ""


def _addresses(name: str) -> list[str]:
    """The addresses of a name; a resolver that does not answer is not waited for."""
    pool = ThreadPoolExecutor(1)
    try:
        found = pool.submit(socket.getaddrinfo, name, None, type=socket.SOCK_STREAM).result(_NAMES_SECONDS)
    except (OSError, TimeoutError, UnicodeError):
        return []
    finally:
        pool.shutdown(wait=False)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


def _source(address: str) -> str:
    """This machine's own address on the way there; nothing is sent. Empty where there is no way."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return str(probe.getsockname()[0])
    return ""
