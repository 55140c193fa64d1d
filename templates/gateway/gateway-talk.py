#!/usr/bin/python3 -I
"""Talks to the gateway that runs, by its socket: what it has read, and what has changed in its maps since.

`gateway-talk state` prints its description, and whether its maps are those of the files: `same` or `other`.
`gateway-talk maps` makes them so, each at once: no request is lost, and no stream is cut.
"""

import os
import socket
import sys
from pathlib import Path

SOCKET = os.environ.get("GATEWAY_SOCKET", "/run/llamaherd-gateway/admin.sock")
FOLDER = os.environ.get("GATEWAY_FOLDER", "/etc/llamaherd/gateway")
# A new user's key comes last: by then it is known what the user may do.
MAPS = ("streams.map", "models.map", "lists.map", "keys.map")
MOST = 64 << 20


def ask(command):
    """What the gateway answers to one command."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(10)
        line.connect(SOCKET)
        line.sendall(command.encode() + b"\n")
        answer = b""
        while len(answer) < MOST:
            part = line.recv(1 << 16)
            if not part:
                return answer.decode()
            answer += part
    raise ValueError("it says too much")


def description():
    """What it says of itself: the hash of its configuration, and its port."""
    lines = ask("show info").splitlines()
    return next((line.partition(": ")[2] for line in lines if line.lower().startswith("description:")), "")


def wanted(name):
    """The lines of a map's file."""
    return [line for line in Path(FOLDER, name).read_text(encoding="ascii").split("\n") if line]


def running(name):
    """The lines of a map as the gateway has it: each begins with where it lies in memory."""
    lines = ask("show map " + name).splitlines()
    return [line.partition(" ")[2] for line in lines if line.startswith("0x")]


def different(name):
    """Whether the gateway has another map than the file."""
    return sorted(running(name)) != sorted(wanted(name))


def replace(name):
    """Put a map in another's place, all of it at once."""
    said = ask("prepare map " + name)
    version = said.rpartition(":")[2].strip()
    if not version.isdigit():
        raise ValueError("it takes no new " + name)
    lines = wanted(name)
    # What one command may hold is bounded by the gateway's buffers.
    for first in range(0, len(lines), 100):
        part = "\n".join(lines[first : first + 100])
        said = ask(f"add map @{version} {name} <<\n{part}\n")
        if said.strip():
            raise ValueError("it does not take a line of " + name)
    ask(f"commit map @{version} {name}")
    if different(name):
        raise ValueError("it has not taken " + name)


def main(words):
    """Do what is asked; 1 where the gateway does not answer, or takes nothing."""
    try:
        if words == ["state"]:
            print(description() or "-", "other" if any(map(different, MAPS)) else "same")
        elif words == ["maps"]:
            for name in filter(different, MAPS):
                replace(name)
        else:
            print("usage: gateway-talk state|maps", file=sys.stderr)
            return 2
    except (OSError, ValueError) as error:
        print(f"the gateway does not do as it is told: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
