"""Inspect what makes a host fail that no role declares: its clock, disks, failed units, and an interrupted run."""

from __future__ import annotations

import platform
from dataclasses import dataclass

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


VERBS = {"inspect": Verb(DoctorInput, inspect)}
