"""The servers of this host that are paused, by a record of each: a file that `herd pause` writes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from llamaherd.layout import PAUSED
from llamaherd.onhost.document import DocumentError, decode, parse_document
from llamaherd.onhost.system import System
from llamaherd.onhost.verbs import NoInput, Verb

_MOST_BYTES = 1 << 12
_MOST_SERVERS = 1000


@dataclass(frozen=True)
class Pause:
    """The record of a pause: its server, its begin and its end, in seconds since 1970 by the clock of the host."""

    server: str
    since: float
    until: float


@dataclass(frozen=True)
class Pauses:
    """The seconds that are left of each pause, by the name of the server. 0 for a pause that is about to end."""

    left: Mapping[str, float] = field(default_factory=dict)


def record_of(service: str) -> str:
    """Return the path of a server's record."""
    return f"{PAUSED}/{service}/pause.json"


def read_pause(service: str, system: System) -> Pause | None:
    """Return the record of a server; None if it is not paused."""
    data = system.read_bytes(record_of(service), _MOST_BYTES)
    with suppress(DocumentError):
        return None if data is None else decode(Pause, parse_document(data))
    return None


def left_of(service: str, system: System) -> float | None:
    """Return the seconds that are left of a server's pause; None if it is not paused."""
    pause = read_pause(service, system)
    return _left(pause, system) if pause else None


def _left(pause: Pause, system: System) -> float:
    """Return the seconds that are left of a pause.

    The host's clock alone decides, so clocks that differ do not matter. If that clock is set back, no more is left than
    the whole pause.
    """
    return max(0.0, min(pause.until - system.clock(), pause.until - pause.since))


def pauses(given: NoInput, system: System) -> Pauses:
    """Return all pauses of this host."""
    del given
    records = (read_pause(service, system) for service in system.names(str(PAUSED))[:_MOST_SERVERS])
    return Pauses({pause.server: _left(pause, system) for pause in records if pause})


VERBS = {"read": Verb(NoInput, pauses)}
