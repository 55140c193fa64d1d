"""Print the log of a server: the journal of its unit, or the log of its container."""

from __future__ import annotations

import re
from calendar import timegm
from collections import deque
from collections.abc import Generator
from contextlib import closing, suppress
from time import strptime

from llamaherd.layout import KEYS, PROJECTS, UNITS
from llamaherd.onhost.reservation import exit_by_signals, heartbeat
from llamaherd.onhost.server_control import LogsInput
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import Verb

MOST_SEARCHED = 100_000
"""Lines of a log that are searched for a text."""
MOST_CHARACTERS = 4000
"""Characters of a line that are sent."""
SECONDS = 60
"""In which a log is read that is not followed."""
HIDDEN = "[key]"
"""Replaces the key of the server."""
_LEAST_KEY = 8
"""Characters of a key. A shorter text may be a word of the log."""

_JOURNAL = re.compile(r"(\d{1,12})\.\d+ \S+ [^:]*: (.*)")
"""A line of `journalctl -o short-unix`: seconds since 1970, the host, the program, and the text."""
_DOCKER = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\S* ?(.*)")
"""A line of `docker logs -t`, in UTC."""


def show(given: LogsInput, system: System) -> None:
    """Report the lines of a log: of each the seconds since 1970, a tab and the text.

    A line without a time has none before the tab. Raise FailedError if the host has no such server.
    """
    place = f"{UNITS}/{given.service}.service" if given.unit else f"{PROJECTS}/{given.name}/compose.yaml"
    if system.entry(place) is None:
        raise FailedError(f"there is no {given.service} on this host", "`herd up` creates it")
    if given.follow:
        with exit_by_signals(), heartbeat(system), closing(_lines(given, system)) as lines:
            for line in lines:
                system.report(line)
        return
    for line in deque(_lines(given, system), maxlen=given.lines):
        system.report(line)


def _lines(given: LogsInput, system: System) -> Generator[str, None, None]:
    """Yield the lines with the text, without the server's key."""
    keys = _keys(given.name, system)
    searched, pattern = given.grep.lower(), _JOURNAL if given.unit else _DOCKER
    for line in system.stream(_command(given, system), seconds=None if given.follow else SECONDS):
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


VERBS = {"show": Verb(LogsInput, show)}
