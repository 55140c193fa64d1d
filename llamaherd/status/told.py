"""What a host tells of itself in one look (`templates/status/now.py`), taken apart. Pure, and judges nothing."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from llamaherd.history.release import Release, release_of
from llamaherd.host.protocol import take_facts
from llamaherd.host.remote import RemoteError
from llamaherd.onhost.nvidia_smi import parse_number
from llamaherd.text.numbers import parse_whole

CARD_FIELDS = (
    *("uuid", "pci.bus_id", "memory.used", "memory.total", "power.draw", "power.limit"),
    *("temperature.gpu", "utilization.gpu", "name"),
)
"""What nvidia-smi is asked; the name comes last, since nobody promises that none has a comma."""

_MOST_COUNT = 10**15
_WORD = re.compile(r"[a-z-]{0,30}")
_HTTP = re.compile(r"[0-9]{3}|refused|silent|broken")
_MOST_CARDS, _MOST_MODELS, _LETTERS = 64, 64, 200


@dataclass(frozen=True)
class CardTold:
    """A GPU, as the driver has it: MiB, watts, degrees Celsius, percent; None for what it does not tell."""

    uuid: str
    pci: str
    used: float | None
    total: float | None
    watts: float | None
    limit: float | None
    celsius: float | None
    busy: float | None
    name: str


@dataclass
class ServerTold:
    """A server: what systemd or Docker say of it, and how it answers.

    `health` is an HTTP status, or `refused`, `silent`, `broken`. `still`: it was silent, and has done nothing
    meanwhile (`idle`) or is stopped (`stopped`). `models` are what it says of each of several that it has in turn, such
    as `loaded`, or `failed`. `slots` are those that it has, `busy` those with a request, `reading`
    those of them whose prompt is still read. `wrote` are tokens, in so many milliseconds.
    """

    active: str = ""
    doing: str = ""
    ended: str = ""
    health: str = ""
    still: str = ""
    silent: bool = False
    slots: int | None = None
    busy: int | None = None
    reading: int | None = None
    waiting: int | None = None
    wrote: tuple[int, int] | None = None
    models: dict[str, str] = field(default_factory=dict)


@dataclass
class HostTold:
    """All of it. `driver` is why it says nothing of GPUs. `gateway` are lines that `gateway/now.py` takes apart."""

    servers: dict[str, ServerTold]
    cards: list[CardTold] = field(default_factory=list)
    driver: str = ""
    release: tuple[int, Release] | None = None
    gateway: Sequence[str] | None = None


def parse_told(lines: Sequence[str], services: Collection[str]) -> HostTold:
    """What a host said that has these servers. Raises RemoteError where it said nothing, or what was not asked."""
    told = HostTold({service: ServerTold() for service in services})
    own = list(takewhile(lambda line: line != "gateway", lines))
    if len(own) < len(lines):
        told.gateway = lines[len(own) + 1 :]
    if own == ["python"]:
        raise RemoteError("there is no python3 on the host", "`herd up` installs it")
    if own[-1:] != ["told"]:
        raise RemoteError("the host did not say how it is", "look at the host's load and memory, then try again")
    take_facts(own[:-1], lambda kind, fields: _take(told, kind, fields))
    return told


def _take(told: HostTold, kind: str, fields: list[str]) -> bool:
    """Take in one fact. Raises ValueError and LookupError on one that cannot have been printed."""
    match kind, fields:
        case "card", [*_] if len(fields) == len(CARD_FIELDS) and len(told.cards) < _MOST_CARDS:
            told.cards.append(_card(fields))
        case "driver", [why]:
            told.driver = why[:_LETTERS]
        case "release", [said, content]:
            # One that a later version has written is left out.
            number, release = _count(said), release_of(base64.b64decode(content, validate=True))
            told.release = (number, release) if release else None
        case _, [service, *rest]:
            return _take_of_server(told.servers[service], kind, rest)
        case _:
            return False
    return True


def _take_of_server(server: ServerTold, kind: str, fields: list[str]) -> bool:
    match kind, fields:
        case "unit", [active, doing, ended]:
            server.active, server.doing, server.ended = _word(active), _word(doing), _word(ended)
        case "container", [status, health]:
            server.active, server.doing = _word(status), _word(health)
        case "health", [status] if _HTTP.fullmatch(status):
            server.health = status
        case "still", ["stopped" | "idle" as how]:
            server.still = how
        case "silent", []:
            server.silent = True
        case "model", [name, value] if len(server.models) < _MOST_MODELS:
            server.models[name[:_LETTERS]] = _word(value)
        case "slots", [slots, busy, reading]:
            server.slots, server.busy, server.reading = _count(slots), _count(busy), _count(reading)
        case "running", [count]:
            server.busy = _count(count)
        case "waiting", [count]:
            server.waiting = _count(count)
        case "wrote", [tokens, milliseconds]:
            server.wrote = _count(tokens), max(1, _count(milliseconds))
        case _:
            return False
    return True


def _card(fields: list[str]) -> CardTold:
    uuid, pci, *figures, name = fields
    used, total, watts, limit, celsius, busy = map(_figure, figures)
    return CardTold(uuid[:_LETTERS], pci[:_LETTERS], used, total, watts, limit, celsius, busy, name[:_LETTERS])


def _figure(text: str) -> float | None:
    """A figure that a GPU can have: one beyond all bounds is none."""
    value = parse_number(text)
    return value if value is not None and math.fabs(value) < 1e9 else None


def _word(text: str) -> str:
    if not _WORD.fullmatch(text):
        raise ValueError("no word")
    return text


def _count(text: str) -> int:
    return parse_whole(text, _MOST_COUNT)
