"""Check the state of a host as its program returned it: every value is one that a host can have. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from llamaherd.history.release import Release, release_of
from llamaherd.host.protocol import UnaskedError
from llamaherd.onhost.gateway import GatewayState
from llamaherd.onhost.status import MOST_CARDS, CardStatus, GatewayError, HostStatus
from llamaherd.onhost.status_probe import ServerStatus

_MOST_COUNT = 10**15
_WORD = re.compile(r"[a-z-]{0,30}")
_HTTP = re.compile(r"(?:[0-9]{3}|refused|silent|broken)?")
_STILL = ("", "stopped", "idle")
_MOST_MODELS, _MOST_CHARACTERS = 64, 200
_MOST_FIGURE = 1e9


@dataclass
class HostTold:
    """The state of a host. `driver` contains why it lists no GPUs."""

    servers: Mapping[str, ServerStatus]
    cards: Sequence[CardStatus] = field(default_factory=list)
    driver: str = ""
    release: tuple[int, Release] | None = None
    gateway: GatewayState | GatewayError | None = None


def checked_status(found: HostStatus, services: Collection[str]) -> HostTold:
    """Return the state of a host that has these servers. Raise UnaskedError if no host can have this state."""
    try:
        if unknown := found.servers.keys() - {*services}:
            raise ValueError(f"a server {min(unknown)!r}")
        if len(found.cards) > MOST_CARDS:
            raise ValueError(f"{len(found.cards)} GPUs")
        servers = {name: _server(found.servers.get(name, ServerStatus())) for name in services}
    except ValueError as error:
        raise UnaskedError(str(error)) from None
    # A release of a later version is left out.
    release = release_of(found.release.text.encode()) if found.release else None
    return HostTold(
        servers=servers,
        cards=[*map(_card, found.cards)],
        driver=found.driver[:_MOST_CHARACTERS],
        release=(found.release.number, release) if found.release and release else None,
        gateway=found.gateway or found.gateway_error,
    )


def _server(found: ServerStatus) -> ServerStatus:
    """Return a server's state. Raise ValueError where it cannot be one."""
    for word in (found.active, found.doing, found.ended, *found.models.values()):
        _require(bool(_WORD.fullmatch(word)), word)
    _require(bool(_HTTP.fullmatch(found.health)), found.health)
    _require(found.still in _STILL, found.still)
    _require(len(found.models) <= _MOST_MODELS, f"{len(found.models)} models")
    for count in (found.slots, found.busy, found.reading, found.waiting, *(found.wrote or ())):
        _require(count is None or 0 <= count <= _MOST_COUNT, str(count))
    _require(found.wrote is None or found.wrote[1] > 0, "0 milliseconds")
    return replace(found, models={name[:_MOST_CHARACTERS]: word for name, word in found.models.items()})


def _require(is_possible: bool, what: str) -> None:
    if not is_possible:
        raise ValueError(what)


def _card(found: CardStatus) -> CardStatus:
    """Return a GPU with figures that a GPU can have."""
    return CardStatus(
        uuid=found.uuid[:_MOST_CHARACTERS],
        pci=found.pci[:_MOST_CHARACTERS],
        used=_figure(found.used),
        total=_figure(found.total),
        watts=_figure(found.watts),
        limit=_figure(found.limit),
        celsius=_figure(found.celsius),
        busy=_figure(found.busy),
        name=found.name[:_MOST_CHARACTERS],
    )


def _figure(value: float | None) -> float | None:
    return value if value is not None and math.fabs(value) < _MOST_FIGURE else None
