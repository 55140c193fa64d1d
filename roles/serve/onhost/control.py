"""Stop servers, start them, pause them, and print their logs. A paused server starts again by a timer of the host.

Each step may be the last one of a killed run. A server is stopped last and started first, so that the same command,
`herd up` or the timer completes what a killed run has begun.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, suppress
from time import strptime
from typing import Literal

from llamaherd.layout import KEPT, KEYS, LOCK_WAIT, PROJECTS, UNITS
from llamaherd.onhost.clients import docker, systemctl, unit_properties
from llamaherd.onhost.document import dump
from llamaherd.onhost.reporting import LINES, find_reason
from llamaherd.onhost.reservation import RunLockInput, changing, exit_by_signals, heartbeat
from llamaherd.onhost.server_control import (
    ControlInput,
    ControlledServer,
    ControlResult,
    LogsInput,
    Pause,
    PauseEndInput,
    ServerResult,
    left_of,
    read_pause,
    record_of,
)
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import Verb
from roles.serve.onhost.backends import ContainerBackend, UnitBackend, free_port
from roles.serve.onhost.kept import read_version
from roles.serve.onhost.pause_timer import end_pause, write_timer
from roles.serve.onhost.probation import end_probation
from roles.serve.onhost.removal import LOAD_SECONDS, drain_kept
from roles.serve.onhost.tools import TOOLS, Tools

Kind = Literal["unit", "container"]

_SPARE_SECONDS = 120
_MOST_LINE = 200
"""Characters of a last line."""
_EARLY_SECONDS = 5
"""A timer that ends a pause may be so much early. A pause with more left was extended meanwhile."""

_JOURNAL = re.compile(r"\S+ \S+ ([^:\[]*)[^:]*: (.*)")
"""A line of `journalctl -o short-unix`: the program, and the text."""


def stop(given: ControlInput, system: System, tools: Tools = TOOLS) -> ControlResult:
    """Stop servers until they are started, also over a boot. A pause of theirs ends. Raise FailedError."""

    def stop_one(server: ControlledServer) -> ServerResult:
        was_paused = read_pause(server.service, system) is not None
        done = _stop(server, system, tools)
        end_pause(server.name, server.service, system)
        return done if not was_paused else ServerResult(done.seconds, True, done.why)

    return _each(given, "stopping", stop_one, system)


def start(given: ControlInput, system: System, tools: Tools = TOOLS) -> ControlResult:
    """Start servers, or restart them, and wait until they are healthy. A pause of theirs ends. Raise FailedError."""
    return _each(given, "starting", lambda server: _start_and_end(server, system, tools, anew=given.anew), system)


def pause(given: ControlInput, system: System, tools: Tools = TOOLS) -> ControlResult:
    """Stop servers for so many seconds: then the host starts them again, also after a boot. Raise FailedError."""
    since = system.clock()

    def pause_one(server: ControlledServer) -> ServerResult:
        write_timer(server, since + given.seconds, system)
        system.write(record_of(server.service), dump(Pause(server.name, since, since + given.seconds)), mode=0o644)
        return _stop(server, system, tools)

    return _each(given, "pausing", pause_one, system)


def resume(given: ControlInput, system: System, tools: Tools = TOOLS) -> ControlResult:
    """Start those of the servers that are paused, and end their pauses. Raise FailedError."""

    def resume_one(server: ControlledServer) -> ServerResult:
        if read_pause(server.service, system) is None:
            end_pause(server.name, server.service, system)
            return ServerResult(0, False)
        return _start_and_end(server, system, tools, anew=False)

    return _each(given, "resuming", resume_one, system)


def end(given: PauseEndInput, system: System, tools: Tools = TOOLS) -> None:
    """Start a server because its pause is over. The timer of the host runs this.

    Raise FailedError if another run keeps the host: systemd tries it again.
    """
    server = given.server
    if (left_of(server.service, system) or 0) > _EARLY_SECONDS:
        return  # the timer runs this once after each boot, too
    lock = RunLockInput("", f"the end of the pause of {server.service}", LOCK_WAIT)
    with changing(lock, system, f"resuming {server.service}"):
        left = left_of(server.service, system)
        if left is None:
            end_pause(server.name, server.service, system)
        elif left <= _EARLY_SECONDS:
            done = _start_and_end(server, system, tools, anew=False)
            if done.why:
                system.warn(f"{server.service} does not serve after its pause: {done.why}")
            else:
                system.report(f"{server.service} serves again, after {done.seconds:.0f} s")


def _each(
    given: ControlInput, doing: str, change: Callable[[ControlledServer], ServerResult], system: System
) -> ControlResult:
    """Change each server while this run alone changes the host. Raise FailedError if one of them does not exist."""
    with changing(given.lock, system, f"{doing} {_names(given.servers)}"):
        for server in given.servers:
            _kind(server, system)
        return ControlResult({server.name: change(server) for server in given.servers})


def _names(servers: Iterable[ControlledServer]) -> str:
    return " and ".join(each.service for each in servers)


def _kind(server: ControlledServer, system: System) -> Kind:
    """Return how a server runs, by its file. Raise FailedError if the host has no such server."""
    if system.entry(f"{UNITS}/{server.service}.service"):
        return "unit"
    if system.entry(_project(server)):
        return "container"
    raise FailedError(f"there is no {server.service} on this host", "`herd up` creates it")


def _project(server: ControlledServer) -> str:
    return f"{PROJECTS}/{server.name}/compose.yaml"


def _runs(server: ControlledServer, kind: Kind, system: System) -> bool:
    """Return whether a server runs, starts or stops; True where that is unknown."""
    if kind == "unit":
        state = unit_properties(system, f"{server.service}.service", "ActiveState").get("ActiveState", "unknown")
        return state not in ("inactive", "failed")
    ended = docker(system, "inspect", "--type", "container", "--format", "{{.State.Status}}", server.service)
    if not ended.ok:
        return "no such" not in ended.err.lower()
    return ended.out.strip() not in ("exited", "created", "dead")


def _stop(server: ControlledServer, system: System, tools: Tools) -> ServerResult:
    """Let the running requests of a server end, and stop it. It does not start at the next boot."""
    kind, began = _kind(server, system), system.now()
    # Before the requests are counted, too: its prompts are no client's.
    end_probation(server.service, system)
    ran = _runs(server, kind, system)
    if kind == "unit":
        # Before the stop: a host that is rebooted in between leaves it stopped. Docker remembers a stop by itself.
        systemctl(system, "-q", "disable", f"{server.service}.service")
    if ran:
        _drain_and_stop(server, kind, system, tools)
    if kind == "unit":
        # One that had to be killed is "failed", which is no fault of it.
        systemctl(system, "reset-failed", f"{server.service}.service")
    still = _runs(server, kind, system)
    why = f"it still runs: see `systemctl status {server.service}`" if still else ""
    return ServerResult(system.now() - began, ran, why)


def _drain_and_stop(server: ControlledServer, kind: Kind, system: System, tools: Tools) -> None:
    drain_kept(system, f"{KEPT}/{server.service}", tools, server.drain_seconds)
    (UnitBackend(system) if kind == "unit" else ContainerBackend(system)).stop(server.service)
    tools.let_in(system)
    free_port(system, server.port)


def _start_and_end(server: ControlledServer, system: System, tools: Tools, *, anew: bool) -> ServerResult:
    """Start a server, and end its pause. A server that fails is no longer paused: it is down."""
    paused = read_pause(server.service, system) is not None
    done = _start(server, system, tools, anew=anew)
    end_pause(server.name, server.service, system)
    return ServerResult(done.seconds, done.changed or paused, done.why)


def _start(server: ControlledServer, system: System, tools: Tools, *, anew: bool) -> ServerResult:
    """Start a server by the file that is in place, and wait until it is healthy."""
    kind, began, clock = _kind(server, system), system.now(), system.clock()
    ran = _runs(server, kind, system)
    if anew or not ran:
        end_probation(server.service, system)
    if ran and anew:
        _drain_and_stop(server, kind, system, tools)
    version = read_version(system, f"{KEPT}/{server.service}")
    seconds = version.seconds if version else LOAD_SECONDS
    if kind == "unit":
        unit = f"{server.service}.service"
        systemctl(system, "-q", "--no-reload", "enable", unit)
        systemctl(system, "daemon-reload")
        systemctl(system, "reset-failed", unit)
        healthy = systemctl(system, "start", unit, seconds=seconds + _SPARE_SECONDS).ok
    else:
        healthy = ContainerBackend(system).start_file(_project(server), seconds, anew=False)
    took = system.now() - began
    if healthy:
        return ServerResult(took, anew or not ran)
    error = last_error(server.service, kind, clock, system)
    why = f"it is not healthy after {took:.0f} s" + (f"; its last error: {error}" if error else "")
    return ServerResult(took, True, why)


def last_error(service: str, kind: Kind, since: float, system: System) -> str:
    """Return the reason that a server has printed since a time, else its last line; empty if it printed nothing."""
    if kind == "unit":
        words = ["-q", "--no-pager", "-o", "short-unix", "-u", f"{service}.service", "-n", str(LINES)]
        found = system.run(["journalctl", *words, f"--since=@{since:.0f}"]).out.splitlines()
        matched = [each for line in found if (each := _JOURNAL.fullmatch(line))]
        lines = [each[2] for each in matched if each[1] != "systemd"]
    else:
        ended = docker(system, "logs", "--tail", str(LINES), f"--since={since:.0f}", service)
        lines = (ended.out + ended.err).splitlines()
    lines = [line.strip() for line in lines if line.strip()]
    return find_reason(lines) or "".join(lines[-1:])[:_MOST_LINE]


MOST_SEARCHED = 100_000
"""Lines of a log that are searched for a text."""
MOST_CHARACTERS = 4000
"""Characters of a line that are sent."""
LOG_SECONDS = 60
"""In which a log is read that is not followed."""
HIDDEN = "[key]"
"""Replaces the key of the server."""
_LEAST_KEY = 8
"""Characters of a key. A shorter text may be a word of the log."""

_JOURNAL_LINE = re.compile(r"(\d{1,12})\.\d+ \S+ [^:]*: (.*)")
"""A line of `journalctl -o short-unix`: seconds since 1970, the host, the program, and the text."""
_DOCKER_LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\S* ?(.*)")
"""A line of `docker logs -t`, in UTC."""


def show_log(given: LogsInput, system: System) -> None:
    """Report the lines of a log: of each the seconds since 1970, a tab and the text.

    A line without a time has none before the tab. Raise FailedError if the host has no such server.
    """
    place = f"{UNITS}/{given.service}.service" if given.unit else f"{PROJECTS}/{given.name}/compose.yaml"
    if system.entry(place) is None:
        raise FailedError(f"there is no {given.service} on this host", "`herd up` creates it")
    if given.follow:
        with exit_by_signals(), heartbeat(system), closing(_log_lines(given, system)) as lines:
            for line in lines:
                system.report(line)
        return
    for line in deque(_log_lines(given, system), maxlen=given.lines):
        system.report(line)


def _log_lines(given: LogsInput, system: System) -> Generator[str, None, None]:
    """Yield the lines with the text, without the server's key."""
    keys = _keys(given.name, system)
    searched, pattern = given.grep.lower(), _JOURNAL_LINE if given.unit else _DOCKER_LINE
    for line in system.stream(_command(given, system), seconds=None if given.follow else LOG_SECONDS):
        if not given.unit and line.startswith("Error response from daemon"):
            raise FailedError(f"Docker has no container {given.service}", "`herd start` or `herd up` starts it")
        found = pattern.fullmatch(line)
        seconds, text = (_seconds(found[1]), found[2]) if found else ("", line)
        if searched in text.lower():
            for key in keys:
                text = text.replace(key, HIDDEN)
            yield f"{seconds}\t{text[:MOST_CHARACTERS]}"


def _command(given: LogsInput, system: System) -> list[str]:
    """Return the program that prints the log. What is searched for a text is longer than what is printed."""
    lines = str(MOST_SEARCHED if given.grep and not given.follow else given.lines)
    since = [] if given.since is None else [f"{system.clock() - given.since:.0f}"]
    if given.unit:
        follow = ["-f"] if given.follow else []
        words = ["-q", "--no-pager", "-o", "short-unix", "-u", f"{given.service}.service", "-n", lines]
        return ["journalctl", *words, *follow, *(f"--since=@{each}" for each in since)]
    follow = ["--follow"] if given.follow else []
    return ["docker", "logs", "-t", "--tail", lines, *follow, *(f"--since={each}" for each in since), given.service]


def _seconds(time: str) -> str:
    """Return a time as seconds since 1970; empty for a time that does not exist."""
    if time.isdecimal():
        return time
    with suppress(ValueError):
        return str(timegm(strptime(time, "%Y-%m-%dT%H:%M:%S")))
    return ""


def _keys(name: str, system: System) -> list[str]:
    """Return the keys that the server accepts: an engine may print its arguments or a request."""
    lines = (system.read(f"{KEYS}/{name}") or "").splitlines()
    return [line.strip() for line in lines if len(line.strip()) >= _LEAST_KEY]


VERBS = {
    "stop": Verb(ControlInput, stop),
    "start": Verb(ControlInput, start),
    "pause": Verb(ControlInput, pause),
    "resume": Verb(ControlInput, resume),
    "end": Verb(PauseEndInput, end),
    "log": Verb(LogsInput, show_log),
}
