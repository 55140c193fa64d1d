"""Write figures of drift on the monitoring rig, whose exporter reads them from a file."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.layout import DRIFT_FILE, EXPORTER_UNIT, FIGURES_DATA, UNITS
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import Verb

_MOST_UNIT = 1 << 20


@dataclass(frozen=True)
class DriftInput:
    """Figures, in the exporter's format."""

    text: str


@dataclass(frozen=True)
class Delivery:
    """Whether the exporter reads the figures. Without an exporter, nothing was written."""

    read: bool


def write(given: DriftInput, system: System) -> Delivery:
    """Write figures where the exporter reads them. Raise FailedError if they cannot be written."""
    unit = system.read(str(UNITS / EXPORTER_UNIT), _MOST_UNIT) or ""
    if f"--collector.textfile.directory={FIGURES_DATA}" not in unit:
        return Delivery(read=False)
    try:
        system.write(str(DRIFT_FILE), given.text, mode=0o644)
    except OSError as error:
        reason = f"{DRIFT_FILE} could not be written: {error.strerror}"
        raise FailedError(reason, "check whether the disk is full or read-only") from error
    return Delivery(read=True)


VERBS = {"write": Verb(DriftInput, write)}
