"""What the fleet does now, as tables of text: the same ones on a terminal and on a page. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.report.tables import Table
from llamaherd.report.values import NONE, number, short
from llamaherd.status.now import CardNow, InstanceNow, RigNow, Speed, StatusNow

INSTANCES = ("rig", "instance", "state", "port", "model", "streams", "waiting", "t/s now", "measured")
CARDS = ("rig", "GPU", "memory", "power", "heat", "busy", "model")
CHANGES = ("rig", "change", "when", "by", "what")
GATEWAYS = ("gateway", "model", "waiting", "server", "state", "streams", "answered")
USERS = ("gateway", "user", "streams")
_GIB = 1 << 30


def tables(now: StatusNow) -> tuple[Table, ...]:
    """Those that have rows."""
    made = (
        Table("Instances", INSTANCES, tuple(row for rig in now.rigs for row in _instances(rig))),
        Table("GPUs", CARDS, tuple(_card(rig.name, card) for rig in now.rigs for card in rig.cards)),
        Table("Last changes", CHANGES, tuple(row for rig in now.rigs for row in _changes(rig)), prose=True),
        Table("Gateways", GATEWAYS, tuple(row for rig in now.rigs for row in _servers(rig))),
        Table("Users of gateways", USERS, tuple(row for rig in now.rigs for row in _users(rig))),
    )
    return tuple(table for table in made if table.rows)


def about(now: StatusNow) -> str:
    """All of it in a line."""
    every = [each for rig in now.rigs for each in rig.instances]
    serves = f"{sum(each.ok for each in every)} of {len(every)} instances serve"
    away = sum(bool(rig.away) for rig in now.rigs)
    hosts = f", {away} of {len(now.rigs)} rigs not reached" if away else ""
    address = f", {now.address.line}" if now.address and now.address.ok else ""
    return f"{serves}{hosts}{address}, {now.at}"


def _instances(rig: RigNow) -> Iterator[tuple[str, ...]]:
    if rig.away:
        yield (rig.name, NONE, "away", *(NONE,) * (len(INSTANCES) - 3))
    for each in rig.instances:
        yield (
            *(rig.name, each.name, each.state, str(each.port), each.model),
            *(_of(each.streams, each.slots), _count(each.waiting), _rate(each), _measured(each)),
        )


def _rate(each: InstanceNow) -> str:
    """Tokens a second; `reading` where all that it works on are prompts."""
    if not each.streams or each.tokens_per_second is None:
        return NONE
    if not each.tokens_per_second and each.reading == each.streams:
        return "reading"
    # A second tells no more digits.
    return f"{each.tokens_per_second:.0f}" if each.tokens_per_second >= 100 else f"{each.tokens_per_second:.1f}"


def _measured(each: InstanceNow) -> str:
    if each.measured:
        return _plus_minus(each.measured)
    return f"{each.expected:g} expected" if each.expected else NONE


def _plus_minus(speed: Speed) -> str:
    """As a report writes it."""
    if speed.low is None or speed.high is None:
        return f"{number(speed.value)} ({speed.counted})"
    half = (speed.high - speed.low) / 2
    return f"{number(speed.value)} ± {short(half) if half < speed.value / 2 else 'over 50 %'}"


def _card(rig: str, card: CardNow) -> tuple[str, ...]:
    memory = NONE
    if card.memory_used is not None and card.memory_total is not None:
        memory = f"{card.memory_used / _GIB:.1f} of {card.memory_total / _GIB:.1f} GiB"
    return (rig, card.name, memory, _power(card), _unit(card.celsius, "°C"), _unit(card.busy_percent, "%"), card.model)


def _power(card: CardNow) -> str:
    if card.watts is None or card.limit_watts is None:
        return _unit(card.watts, "W")
    return f"{card.watts:.0f} of {card.limit_watts:.0f} W"


def _changes(rig: RigNow) -> Iterator[tuple[str, ...]]:
    change = rig.change
    if change is None:
        return
    first, more = (change.changes or ("nothing",))[0], len(change.changes) - 1
    what = f"{first}{f', and {more} more' if more > 0 else ''}"
    failed = f"failed: {change.failed[0]}" if change.failed else what
    yield rig.name, str(change.number), change.at, change.who or NONE, failed


def _servers(rig: RigNow) -> Iterator[tuple[str, ...]]:
    for model in rig.gateway.models if rig.gateway else ():
        for server in model.servers:
            streams = _of(server.streams, server.most)
            yield rig.name, model.name, str(model.waiting), server.name, server.state, streams, str(server.answered)


def _users(rig: RigNow) -> Iterator[tuple[str, ...]]:
    for user in rig.gateway.users if rig.gateway else ():
        yield rig.name, user.name, _of(user.streams, user.most)


def _of(some: int | None, every: int | None) -> str:
    return NONE if some is None else f"{some} of {every}" if every is not None else str(some)


def _count(value: int | None) -> str:
    return NONE if value is None else str(value)


def _unit(value: float | None, unit: str) -> str:
    return NONE if value is None else f"{value:.0f} {unit}"
