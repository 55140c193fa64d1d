"""Inspect what makes a host fail that no role declares, and read the last lines of its logs for a support bundle."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field

from llamaherd.layout import EXCHANGE
from llamaherd.onhost.reservation import run_holder
from llamaherd.onhost.status import ReleaseStatus, newest_release
from llamaherd.onhost.system import System
from llamaherd.onhost.verbs import Verb

_SECONDS = 5
_MOST_UNITS, _MOST_NAME = 50, 200


@dataclass(frozen=True)
class DoctorInput:
    """The folders whose free space counts."""

    folders: tuple[str, ...] = ()


@dataclass(frozen=True)
class DiskSpace:
    """A folder and the bytes that are free there."""

    folder: str
    free: int


@dataclass(frozen=True)
class DoctorFacts:
    """The state of a host. `clock` are seconds since 1970. `failed` are units; None if systemd did not respond.

    `holder` is the user and machine of a run that holds the lock of the host. `interrupted`: a run that exchanged
    servers did not finish.
    """

    clock: float
    python: str
    disks: tuple[DiskSpace, ...] = ()
    failed: tuple[str, ...] | None = ()
    holder: str = ""
    interrupted: bool = False
    release: ReleaseStatus | None = None


def inspect(given: DoctorInput, system: System) -> DoctorFacts:
    """Return the state of the host. Nothing is changed."""
    spaces = [(folder, system.free(folder)) for folder in given.folders]
    return DoctorFacts(
        clock=system.clock(),
        python=platform.python_version(),
        disks=tuple(DiskSpace(folder, free) for folder, free in spaces if free is not None),
        failed=_failed_units(system),
        holder=run_holder(system),
        interrupted=system.entry(str(EXCHANGE)) is not None,
        release=newest_release(system),
    )


def _failed_units(system: System) -> tuple[str, ...] | None:
    """Return the units that failed; None if systemd did not respond."""
    words = ("list-units", "--state=failed", "--plain", "--no-legend", "--full", "--no-pager")
    ended = system.run(["systemctl", *words], seconds=_SECONDS)
    if not ended.ok:
        return None
    names = [line.split()[0][:_MOST_NAME] for line in ended.out.splitlines() if line.strip()]
    return tuple(names[:_MOST_UNITS])


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


def read_logs(given: LogsInput, system: System) -> Logs:
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


VERBS = {"inspect": Verb(DoctorInput, inspect), "logs": Verb(LogsInput, read_logs)}
