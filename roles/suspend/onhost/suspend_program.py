#!/usr/bin/env -S python3 -IS
"""Suspend this host when it is not used. A timer runs this program each minute, with the path of its table.

It stops the servers before, since a suspend does not keep the memory of GPUs, and starts them afterwards. The record of
the stopped servers is written first: whatever ends the program, its next run starts them.
"""

# Shipped alone: for Python 3.10 and its standard library, without a module of llamaherd.
from __future__ import annotations

import array
import fcntl
import http.client
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.parse import urlsplit

RUN = Path("/run/llamaherd/suspend")
STATE = Path("/var/lib/llamaherd/suspend")
LOCKS = Path("/run/llamaherd/locks")
NETWORK = Path("/sys/class/net")
OUR_LOCKS = ("run", "host")
"""The locks that runs of `herd` hold. This program holds them from the first stop to the last start."""
JOBS = ("llamaherd-build-*", "llamaherd-fetch.service", "llamaherd-probation-*", "llamaherd-arm*")
REQUEST_SECONDS, PROGRAM_SECONDS, STOP_SECONDS = 5.0, 30, 300
SLEEP_SECONDS = 90
"""Seconds in which the host must fall asleep."""
NOT_LOADED = 400
"""The HTTP status of a server of several models for a model that it has not loaded."""
_MOST = 1 << 20
_IN_FLIGHT = re.compile(
    r"^(?:llamacpp:requests_(?:processing|deferred)|vllm:num_requests_(?:running|waiting))\S* ([0-9.e+]+)$",
    re.MULTILINE,
)
_COUNTERS = re.compile(
    r"^(?:llamacpp:(?:prompt_tokens|tokens_predicted)_total|vllm:(?:prompt_tokens|generation_tokens)_total)\S* \S+$",
    re.MULTILINE,
)
_GET_WOL, _SET_WOL, _ETHTOOL, _MAGIC = 0x05, 0x06, 0x8946, 0x20
"""ETHTOOL_GWOL, ETHTOOL_SWOL, SIOCETHTOOL and WAKE_MAGIC of linux/ethtool.h and linux/sockios.h."""


class InUseError(Exception):
    """The host is in use, or it cannot be suspended, with the reason."""


@dataclass(frozen=True)
class Server:
    """A server: its unit or container, and where it reports its requests. `props` is set if it unloads its model."""

    service: str
    unit: bool
    metrics: tuple[str, ...]
    props: str = ""
    key: str = ""


@dataclass(frozen=True)
class Idle:
    """Since when nothing was done, what servers had counted by then, and for how long the host had slept."""

    since: float
    counted: dict[str, str]
    slept: float


def run(*words: str, seconds: float = PROGRAM_SECONDS) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. One that cannot be started, or does not end, has failed."""
    env = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.run(words, env=env, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(words, 127, "", str(error))


def time_slept() -> float:
    """Return the seconds since the boot for which the host has slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


def check_sessions() -> None:
    """Raise InUseError if a login session is open, or if the sessions are unknown."""
    listed = run("loginctl", "list-sessions", "--no-legend")
    if listed.returncode:
        raise InUseError("loginctl does not list the login sessions")
    for line in listed.stdout.splitlines():
        number = (line.split() or [""])[0]
        shown = run("loginctl", "show-session", number, "-p", "Class", "-p", "State").stdout
        values = dict(each.split("=", 1) for each in shown.splitlines() if "=" in each)
        if values.get("Class", "").startswith("user") and values.get("State") != "closing":
            raise InUseError(f"login session {number} is open")


def check_jobs() -> None:
    """Raise InUseError if a build, a fetch, a probation or a measurement runs, or a program holds a lock."""
    listed = run("systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating", *JOBS)
    if listed.returncode or listed.stdout.strip():
        raise InUseError(f"{(listed.stdout.split() or ['a job'])[0]} runs")
    for path in sorted(LOCKS.iterdir()) if LOCKS.is_dir() else ():
        with held_lock(path):
            pass


@contextmanager
def held_lock(path: Path) -> Iterator[None]:
    """Hold a lock of `herd`. Raise InUseError if another program holds it."""
    with path.open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InUseError(f"another program holds {path}") from None
        yield


def is_running(server: Server) -> bool:
    """Return whether a server runs. Raise InUseError if it starts or stops, or if that is unknown."""
    stopped: tuple[str, ...]
    if server.unit:
        state = run("systemctl", "show", "-P", "ActiveState", f"{server.service}.service").stdout.strip()
        stopped, running = ("inactive", "failed"), "active"
    else:
        form = "{{.State.Status}}"
        found = run("docker", "inspect", "--type", "container", "--format", form, server.service)
        state = "exited" if "no such" in found.stderr.lower() else found.stdout.strip()
        stopped, running = ("exited", "created", "dead"), "running"
    if state not in (*stopped, running):
        raise InUseError(f"{server.service} is {state or 'in an unknown state'}")
    return state == running


def counted(server: Server, before: str) -> str:
    """Return what a server has counted of its requests. Raise InUseError if it has a request, or does not respond."""
    if server.props and b'"is_sleeping":true' in fetch(server, server.props)[1].replace(b" ", b""):
        return before  # a request for its metrics would load the model, in earlier versions
    counters = []
    for url in server.metrics:
        status, body = fetch(server, url)
        text = body.decode(errors="replace")
        if status == NOT_LOADED and len(server.metrics) > 1:
            continue
        if status != http.client.OK:
            raise InUseError(f"{server.service} returns {status or 'nothing'} when its metrics are requested")
        if any(float(number) for number in _IN_FLIGHT.findall(text)):
            raise InUseError(f"{server.service} works on a request")
        counters += _COUNTERS.findall(text)
    return "\n".join(counters)


def fetch(server: Server, url: str) -> tuple[int, bytes]:
    """Return the status and the begin of a page of a server on this host; 0 if there is no response in time."""
    parts = urlsplit(url)
    headers = {}
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=REQUEST_SECONDS)
    try:
        if server.key:
            with Path(server.key).open(encoding="utf-8") as file:
                headers["Authorization"] = f"Bearer {file.readline().strip()}"
        connection.request("GET", f"{parts.path}{f'?{parts.query}' if parts.query else ''}", headers=headers)
        response = connection.getresponse()
        return response.status, response.read(_MOST)
    except (OSError, ValueError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


def enable_wake(mac: str) -> None:
    """Let a packet wake the network card with this address. Raise InUseError if the card cannot do that."""
    names = [path.parent.name for path in NETWORK.glob("*/address") if path.read_text().strip().lower() == mac]
    names = [name for name in names if (NETWORK / name / "device").exists()] or names
    if not names:
        raise InUseError(f"no network card has the address {mac}, so that nothing could wake this host")
    try:
        supported, options = wake_options(names[0])
        if not supported & _MAGIC:
            raise InUseError(f"network card {names[0]} cannot be woken by a packet")
        if not options & _MAGIC:
            wake_options(names[0], options | _MAGIC)
    except OSError as error:
        raise InUseError(f"network card {names[0]} cannot be woken by a packet: {error}") from None


def wake_options(name: str, options: int | None = None) -> tuple[int, int]:
    """Return what can wake a network card, and what does; set the latter if it is given. Raise OSError."""
    command = _GET_WOL if options is None else _SET_WOL
    data = array.array("B", struct.pack("=III6s2x", command, 0, options or 0, b""))
    request = struct.pack("16sP", name.encode(), data.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        fcntl.ioctl(line, _ETHTOOL, request)
    _, supported, found = struct.unpack("=III", data.tobytes()[:12])
    return int(supported), int(found)


def check_use(servers: Sequence[Server], before: Idle | None) -> dict[str, str]:
    """Return what running servers have counted. Raise InUseError if the host is in use."""
    check_sessions()
    check_jobs()
    known = before.counted if before else {}
    return {each.service: counted(each, known.get(each.service, "")) for each in servers if is_running(each)}


def read_idle() -> Idle | None:
    """Return the note of the last run; None if there is none since the boot."""
    with suppress(OSError, ValueError, TypeError):
        return Idle(**json.loads((RUN / "idle.json").read_text()))
    return None


def write_idle(idle: Idle) -> None:
    """Write the note for the next run."""
    _write(RUN / "idle.json", {"since": idle.since, "counted": idle.counted, "slept": idle.slept})


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(value))
    new.rename(path)


def start_stopped() -> bool:
    """Start the servers that this program has stopped. Return whether there were some."""
    record = STATE / "stopped.json"
    if not record.exists():
        return False
    for service, unit in json.loads(record.read_text()).items():
        words = ("systemctl", "--no-block", "start", f"{service}.service") if unit else ("docker", "start", service)
        done = run(*words, seconds=STOP_SECONDS)
        if done.returncode:
            print(f"{service} was not started: {done.stderr.strip()[:200]}")
    record.unlink()
    return True


def stop_servers(servers: Sequence[Server]) -> None:
    """Stop the servers that run. Raise InUseError if one has a request again, or does not stop."""
    running = [each for each in servers if is_running(each)]
    # Docker remembers a stop, also after a reboot: so does this record.
    _write(STATE / "stopped.json", {each.service: each.unit for each in running})
    for each in running:
        counted(each, "")
        words = ("systemctl", "stop", f"{each.service}.service") if each.unit else ("docker", "stop", each.service)
        if run(*words, seconds=STOP_SECONDS).returncode or is_running(each):
            raise InUseError(f"{each.service} does not stop")


def suspend(servers: Sequence[Server], mac: str) -> None:
    """Let the host sleep, and return after it has woken. Raise InUseError if it does not fall asleep."""
    enable_wake(mac)
    with ExitStack() as locks:
        for name in OUR_LOCKS:
            LOCKS.mkdir(mode=0o700, parents=True, exist_ok=True)
            locks.enter_context(held_lock(LOCKS / name))
        try:
            stop_servers(servers)
            slept = time_slept()
            done = run("systemctl", "suspend", "--check-inhibitors=yes")
            if done.returncode:
                raise InUseError(f"systemd does not suspend this host: {done.stderr.strip()[:200]}")
            until = monotonic() + SLEEP_SECONDS
            while time_slept() - slept < 1:
                if monotonic() > until:
                    raise InUseError(f"the host did not fall asleep in {SLEEP_SECONDS} s")
                sleep(0.2)
            print(f"the host slept for {time_slept() - slept:.0f} s")
        finally:
            start_stopped()


def main(table: str) -> int:
    """Let the host sleep if it was not used for long enough. Return the exit code."""
    declared = json.loads(Path(table).read_text(encoding="utf-8"))
    servers = [Server(**{**each, "metrics": tuple(each["metrics"])}) for each in declared["servers"]]
    now, slept, before = monotonic(), time_slept(), read_idle()
    if start_stopped() or before is None or slept - before.slept >= 1:
        before = None
    try:
        found = check_use(servers, before)
    except InUseError:
        write_idle(Idle(now, {}, slept))
        return 0
    if before is None or found != before.counted:
        write_idle(Idle(now, found, slept))
        return 0
    if now - before.since < declared["after"]:
        return 0
    try:
        suspend(servers, declared["mac"])
    except InUseError as error:
        print(f"not suspended: {error}", file=sys.stderr)
        return 1
    finally:
        write_idle(Idle(monotonic(), {}, time_slept()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
