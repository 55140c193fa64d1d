"""Read the last log lines of llamaherd's units and containers, for a support bundle. Bounded, and changes nothing."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field

from llamaherd.onhost.system import System
from llamaherd.onhost.verbs import Verb

_SECONDS = 5
_LINES = 300
MOST_LOG = 64 << 10
"""Characters of one log: its end."""
MOST_LOGS = 2 << 20
"""Characters of all logs of a host."""
_NO_ENTRIES = "-- No entries --"
_KERNEL = "NVRM|Xid|[Oo]ut of memory|oom-kill|I/O error"
"""Kernel messages about GPUs, memory and disks."""


@dataclass(frozen=True)
class LogsInput:
    """The units and containers of servers, whose logs are read one by one."""

    units: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Logs:
    """The name of the host, and its last log lines by name of the log."""

    hostname: str
    texts: Mapping[str, str] = field(default_factory=dict)


def read(given: LogsInput, system: System) -> Logs:
    """Return the last lines of each log that has any."""
    journal = ["journalctl", "--no-pager", "--no-hostname", "-o", "short-iso", "-n", str(_LINES)]
    commands = {
        **{unit: [*journal, "-u", f"{unit}.service"] for unit in given.units},
        **{name: ["docker", "logs", "--timestamps", "--tail", str(_LINES), name] for name in given.containers},
        "llamaherd": [*journal, "-u", "llamaherd-*"],
        "kernel": [*journal, "-k", "-g", _KERNEL],
    }
    texts: dict[str, str] = {}
    left = MOST_LOGS
    for name, command in commands.items():
        ended = system.run(command, seconds=_SECONDS)
        text = _last_lines(ended.out + ended.err, min(MOST_LOG, left))
        if ended.ok and text.strip() not in ("", _NO_ENTRIES):
            texts[name] = text
            left -= len(text)
    return Logs(platform.node(), texts)


def _last_lines(text: str, most: int) -> str:
    """Return at most so many characters of the end, from the start of a line: a part of a secret is not recognized."""
    end = text[max(0, len(text) - most) :]
    return end if len(text) <= most else end.partition("\n")[2] or end


VERBS = {"read": Verb(LogsInput, read)}
