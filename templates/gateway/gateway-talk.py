#!/usr/bin/python3 -I
"""Talks to the gateway that runs, by its socket: what it has read, what has changed since, and what it does now.

`gateway-talk state` prints its description, and whether its maps are those of the files: `same` or `other`.
`gateway-talk maps` makes them so, each at once: no request is lost, and no stream is cut.
`gateway-talk status` prints a line for each model, server and user, and how many processes end beside it.
`gateway-talk drain SERVER [SECONDS]` sends a server nothing new, and waits so long until it has no stream left.
`gateway-talk ready SERVER` takes that back.
"""

import csv
import os
import re
import socket
import sys
import time
from pathlib import Path

SOCKET = os.environ.get("GATEWAY_SOCKET", "/run/llamaherd-gateway/admin.sock")
FOLDER = os.environ.get("GATEWAY_FOLDER", "/etc/llamaherd/gateway")
# A new user's key comes last: by then it is known what the user may do.
MAPS = ("streams.map", "models.map", "lists.map", "keys.map")
MOST = 64 << 20
BACKEND, SERVER = "1", "2"
MODEL = "m_"
ANSWERS = ("hrsp_2xx", "hrsp_3xx", "hrsp_4xx", "hrsp_5xx", "hrsp_other")


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


def counted(kind):
    """What it counts of models or of their servers, a row each by the names of its columns."""
    rows = csv.DictReader(ask("show stat").removeprefix("# ").splitlines())
    return [row for row in rows if row["type"] == kind and row["pxname"].startswith(MODEL)]


def number(row, *columns):
    """The sum of columns; one that is empty counts nothing."""
    return sum(int(row[column] or 0) for column in columns)


def status():
    """What it does now, in facts."""
    servers = counted(SERVER)
    for row in counted(BACKEND):
        own = [each for each in servers if each["pxname"] == row["pxname"]]
        # Models whose server has one of them at a time wait in one queue.
        for name in row["pxname"].removeprefix(MODEL).split(":"):
            yield "model", name, sum(number(each, "qcur") for each in (row, *own))
            for each in own:
                figures = number(each, "scur"), number(each, "slim"), number(each, *ANSWERS)
                yield "server", name, each["svname"], each["status"], *figures
    at_once = dict(re.findall(r"key=(\S+) .*\bconn_cur=(\d+)", ask("show table users")))
    for user, most in map(str.split, running("streams.map")):
        yield "user", user, at_once.get(user, 0), most
    yield "ending", ending()


def ending():
    """Processes from before a reload, which go on with streams that nobody here can count."""
    own = next(line.partition(": ")[2] for line in ask("show info").splitlines() if line.startswith("Pid:"))
    parent = re.search(r"^PPid:\s*(\d+)$", Path("/proc", own, "status").read_text(encoding="ascii"), re.MULTILINE)[1]
    children = Path("/proc", parent, "task", parent, "children").read_text(encoding="ascii").split()
    return len(set(children) - {own})


def rows_of(server):
    """A server's rows, one for each model that it answers for. What is no server's name goes into no command."""
    rows = [row for row in counted(SERVER) if row["svname"] == server]
    if not rows:
        raise ValueError("it has no such server")
    return rows


def turn(server, state):
    """Put a server into a state, for every model."""
    for row in rows_of(server):
        said = ask(f"set server {row['pxname']}/{server} state {state}")
        if said.strip():
            raise ValueError("it does not take that state")


def drain(server, seconds):
    """Send it nothing new; what is left of its streams once there is none, or the time is over.

    It is the state `maint`: in `drain` a server still gets the sessions that stay on it.
    """
    turn(server, "maint")
    until = time.monotonic() + seconds
    while (left := sum(number(row, "scur") for row in rows_of(server))) and time.monotonic() < until:
        time.sleep(0.5)
    return left


def tell(*facts):
    """Print facts: a line each, whose fields are parted by tabs."""
    print("\n".join("\t".join(map(str, fact)) for fact in facts))


def main(words):
    """Do what is asked; 1 where the gateway does not answer, or takes nothing."""
    try:
        if words == ["state"]:
            print(description() or "-", "other" if any(map(different, MAPS)) else "same")
        elif words == ["maps"]:
            for name in filter(different, MAPS):
                replace(name)
        elif words == ["status"]:
            tell(*status())
        elif len(words) in (2, 3) and words[0] == "drain":
            tell(("left", drain(words[1], int((*words, 0)[2]))), ("ending", ending()))
        elif len(words) == 2 and words[0] == "ready":
            turn(words[1], "ready")
            tell(("ready",))
        else:
            print("usage: gateway-talk state|maps|status|drain SERVER [SECONDS]|ready SERVER", file=sys.stderr)
            return 2
    except (OSError, ValueError, LookupError) as error:
        print(f"the gateway does not do as it is told: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
