"""Drain a server before it stops: wait for the requests in flight, and then refuse new connections for a moment."""

from __future__ import annotations

import time
from collections.abc import Mapping
from string import Template
from urllib.parse import urlsplit

from llamaherd.onhost.document import DocumentError
from llamaherd.onhost.system import System
from roles.serve.onhost.declared import DeclaredServer, parse_declared
from roles.serve.onhost.wire import direct_group, requests_in_flight

NFT = "/usr/sbin/nft"
_NFT_SECONDS = 5
_ARRIVES = 0.05
"""Seconds in which a request follows its connection."""
_POLL_SECONDS = 0.2
_TABLE = "llamaherd-shut"
# The kernel lets all in again by itself, whatever is killed in the middle. Connections that are redirected do not get
# here: a rule for that comes later on a packet's way. Only this program, by its group, gets through on the host itself.
_SHUT = Template("""
table inet $table {}
delete table inet $table
table inet $table {
    set ports { type inet_service; flags timeout; timeout 3s; elements = { $ports }; }
    chain others {
        type filter hook prerouting priority -150
        iifname != "lo" $new tcp dport @ports reject with tcp reset
    }
    chain local {
        type filter hook output priority -150
        meta skgid != $group $new tcp dport @ports reject with tcp reset
    }
}
""")
_NEW = "fib daddr type local tcp flags & (fin | syn | rst | ack) == syn"


def drain(
    question: Mapping[str, object],
    *,
    key: str | None,
    seconds: float,
    group: int,
    led: bool,
    system: System,
) -> None:
    """Wait until a server responds to no request, for so many seconds at most, and then refuse new connections.

    They are refused for three seconds, where the host can do that: `let_in` is to follow once the server has stopped.
    `key` is that of the server that runs, `group` the one that is let through meanwhile. `led`: new connections are
    redirected to another server, and none are refused. A question without metrics is not waited for.
    """
    try:
        server = parse_declared(question, key)
    except DocumentError:
        return
    end = time.monotonic() + seconds
    reported = False
    while count := _in_flight(server) or (0 if led else _shut_out(server, group, system)):
        if time.monotonic() > end:
            system.report(f"{count} of them did not end in time, and {'are' if count > 1 else 'is'} cut off")
            return
        if not reported:
            plural = "s" if count > 1 else ""
            system.report(f"waiting for {count} request{plural} in flight, for up to {seconds:g} s")
            reported = True
        time.sleep(_POLL_SECONDS)


def let_in(system: System) -> None:
    """Accept new connections again."""
    system.run([NFT, "delete", "table", "inet", _TABLE], seconds=_NFT_SECONDS)


def _in_flight(server: DeclaredServer) -> int:
    return requests_in_flight(server.metrics, server.key)


def _shut_out(server: DeclaredServer, group: int, system: System) -> int:
    """Refuse new connections, and return the requests that have come since they were counted: then none are refused."""
    ports = sorted({str(port) for url in server.metrics if (port := urlsplit(url).port)})
    if not ports:
        return 0
    rules = _SHUT.substitute(table=_TABLE, ports=", ".join(ports), new=_NEW, group=group)
    try:
        with direct_group(group):
            if not system.run([NFT, "-f", "-"], seconds=_NFT_SECONDS, text=rules).ok:
                return 0
            time.sleep(_ARRIVES)
            count = _in_flight(server)
    except OSError:  # not as root
        return 0
    if count:
        let_in(system)
    return count
