#!/usr/bin/python3 -I
"""Sends a wake-on-LAN packet to a rig, into every network of this host.

`wake RIG` wakes a rig of the table. Without a word, it reads the name of the rig from stdin, one line, as the gateway
sends it through a socket of systemd. It prints the number of networks.
"""

# For Python 3.10 and its standard library alone.
import os
import re
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path

TABLE = os.environ.get("WAKE_TABLE", "/etc/llamaherd/wake")
ROUTES = os.environ.get("WAKE_ROUTES", "/proc/net/route")
PORT = int(os.environ.get("WAKE_PORT", "9"))
MOST_NAME = 100
WHOLE = 0xFFFFFFFF


def packet(mac: str) -> bytes:
    """Return the magic packet: six bytes of ones, then the address sixteen times."""
    return b"\xff" * 6 + bytes.fromhex(mac.replace(":", "")) * 16


def broadcasts(routes: str) -> list[str]:
    """Return the broadcast addresses of this host's networks, by the kernel's table of routes."""
    found: dict[str, None] = {}
    for line in routes.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 8 or not all(re.fullmatch("[0-9A-F]{8}", fields[at]) for at in (1, 2, 7)):
            continue
        network, gateway, mask = (socket.ntohl(int(fields[at], 16)) for at in (1, 2, 7))
        if gateway == 0 and mask not in (0, WHOLE):
            found[socket.inet_ntoa(struct.pack(">I", network | (WHOLE & ~mask)))] = None
    return list(found)


def mac_of(rig: str, table: str) -> str:
    """Return the address of a rig in the table."""
    rows = {words[0]: words[1] for line in table.splitlines() if len(words := line.split()) == 2}
    if rig not in rows:
        raise ValueError("it is not in the table of rigs")
    return rows[rig]


def send(mac: str) -> int:
    """Send the packet into each network. Return the number of networks."""
    sent, why = 0, "this host has no network"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        for address in broadcasts(Path(ROUTES).read_text(encoding="ascii")):
            try:
                line.sendto(packet(mac), (address, PORT))
                sent += 1
            except OSError as error:
                why = str(error)
    if not sent:
        raise ValueError(why)
    return sent


def main(words: list[str]) -> int:
    """Wake the rig; return 1 if no packet could be sent."""
    rig = words[0] if words else sys.stdin.readline(MOST_NAME).strip()
    try:
        print(send(mac_of(rig, Path(TABLE).read_text(encoding="ascii"))))
    except (OSError, ValueError) as error:
        print(f"cannot wake {rig[:MOST_NAME]!r}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        sys.exit(main(sys.argv[1:]))
