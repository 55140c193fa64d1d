"""Power's part of the program on hosts: hold GPUs to limits, clocks and fan speeds, release them, and inspect that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llamaherd.layout import POWER_FANS, POWER_PROGRAM, POWER_RUN, POWER_TABLE, POWER_UNIT
from llamaherd.onhost.clients import systemctl, unit_properties
from llamaherd.onhost.files import WrittenFile, is_file, write_files
from llamaherd.onhost.services import (
    STOP_SECONDS,
    ServiceState,
    enable_units,
    find_services,
    last_lines,
    locked,
    remove_service,
)
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import NoInput, Verb

_PURPOSE = "power limits"
_START_SECONDS = 660
"""The limit of a restart, as a driver may hang. The unit may take 600 s to start."""
_RELEASE_SECONDS = 1800
"""The limit of a release. Each GPU needs several calls of nvidia-smi, of up to 60 s each."""
_LINES, _WIDTH = 40, 300
_MOST_NOTE = 4096
"""Bytes of the note about one GPU."""


@dataclass(frozen=True)
class ApplyInput:
    """The files that hold GPUs to their settings."""

    files: tuple[WrittenFile, ...]
    """Those of the programs, their table and the unit that differ."""
    restart: bool
    """True if a GPU has other limits than planned."""


def apply(given: ApplyInput, system: System) -> None:
    """Write the files that hold GPUs, and restart the unit if requested. Raise FailedError if a GPU cannot be held."""
    with locked(system, _PURPOSE):
        write_files(system, given.files)
        enable_units(system, [POWER_UNIT])
        if not given.restart:
            return
        systemctl(system, "reset-failed", POWER_UNIT)
        restarted = systemctl(system, "restart", POWER_UNIT, seconds=_START_SECONDS)
        _report_journal(system)
        if not restarted.ok:
            # Otherwise the unit would retry without end.
            systemctl(system, "stop", POWER_UNIT, seconds=STOP_SECONDS)
            raise FailedError(f"a GPU does not have its declared limits; {POWER_UNIT} reports why above")


def _report_journal(system: System) -> None:
    """Report what the unit printed in this run: settings that hold now, and settings that a GPU refuses."""
    system.run(["journalctl", "--sync"])
    run = unit_properties(system, POWER_UNIT, "InvocationID").get("InvocationID", "")
    words = ["journalctl", "-q", "-o", "cat", "--no-pager", "-n", str(_LINES)]
    for line in system.run([*words, f"_SYSTEMD_INVOCATION_ID={run}"]).out.splitlines():
        system.report(line[:_WIDTH])


def remove(_: NoInput, system: System) -> None:
    """Restore the defaults of all GPUs. Remove the unit's file last: an interrupted run is detected by it."""
    with locked(system, _PURPOSE):
        systemctl(system, "disable", "-q", "--now", POWER_UNIT, seconds=STOP_SECONDS)
        program = system.entry(str(POWER_PROGRAM))
        if program and program.mode & 0o111 and system.run(["sh", "-c", "command -v nvidia-smi"]).ok:
            released = system.run([str(POWER_PROGRAM), "release"], seconds=_RELEASE_SECONDS)
            if not released.ok:
                raise FailedError("not all GPUs have their defaults again", log=last_lines(released, _LINES))
            for line in released.out.splitlines():
                system.report(line)
        remove_service(system, [POWER_UNIT], map(str, (POWER_PROGRAM, POWER_FANS, POWER_TABLE, POWER_RUN)))


@dataclass(frozen=True)
class InspectInput:
    """The unit, and with `notes` also the settings of each GPU."""

    notes: bool


@dataclass(frozen=True)
class Found:
    """The unit, if it has a file, and the words of the note about each GPU, by UUID."""

    unit: ServiceState | None = None
    held: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def inspect(given: InspectInput, system: System) -> Found:
    """Inspect what holds GPUs. Raise UnknownStateError where systemd does not respond."""
    unit = find_services([POWER_UNIT], system).get(POWER_UNIT)
    notes = [each for each in system.names(str(POWER_RUN)) if each.startswith("GPU-")] if given.notes else []
    paths = {uuid: path for uuid in notes if is_file(path := f"{POWER_RUN}/{uuid}", system)}
    texts = {uuid: system.read(path, _MOST_NOTE) or "" for uuid, path in paths.items()}
    return Found(unit, {uuid: tuple(text.partition("\n")[0].split()) for uuid, text in texts.items()})


VERBS = {"apply": Verb(ApplyInput, apply), "remove": Verb(NoInput, remove), "inspect": Verb(InspectInput, inspect)}
