"""The state of the fleet as tables, as lines of a terminal that never wrap, and as an HTML page. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from textwrap import wrap

from llamaherd import __version__
from llamaherd.fleet.snapshot import CardSnapshot, FleetSnapshot, InstanceSnapshot, RigSnapshot, Speed
from llamaherd.measure.report.charts import NONE, Table, rounded, short
from llamaherd.text.terminal import shown

INSTANCES = ("rig", "instance", "state", "port", "model", "streams", "waiting", "t/s now", "measured")
CARDS = ("rig", "GPU", "memory", "power", "heat", "busy", "model")
CHANGES = ("rig", "change", "when", "by", "what")
GATEWAYS = ("gateway", "model", "waiting", "server", "state", "streams", "answered")
USERS = ("gateway", "user", "streams")
_GIB = 1 << 30
_MOST_NAMED = 2
"""Unreachable rigs that the summary names."""


def status_tables(now: FleetSnapshot) -> tuple[Table, ...]:
    """Return the tables that have rows."""
    made = (
        Table("Instances", INSTANCES, tuple(row for rig in now.rigs for row in _instances(rig))),
        Table("GPUs", CARDS, tuple(_card(rig.name, card) for rig in now.rigs for card in rig.cards)),
        Table("Last changes", CHANGES, tuple(row for rig in now.rigs for row in _changes(rig)), prose=True),
        Table("Gateways", GATEWAYS, tuple(row for rig in now.rigs for row in _servers(rig))),
        Table("Users of gateways", USERS, tuple(row for rig in now.rigs for row in _users(rig))),
    )
    return tuple(table for table in made if table.rows)


def status_summary(now: FleetSnapshot) -> str:
    """Return a summary of all rigs in a line."""
    every = [each for rig in now.rigs for each in rig.instances]
    declared = sum(max(rig.declared, len(rig.instances)) for rig in now.rigs)
    serves = f"{sum(each.ok for each in every)} of {declared} instances serve"
    paused = sum(each.state == "paused" for each in every)
    serves += f", {paused} paused" if paused else ""
    away = [rig.name for rig in now.rigs if rig.away]
    which = " and ".join(away) if len(away) <= _MOST_NAMED else f"{len(away)} of {len(now.rigs)} rigs"
    hosts = f", {which} unreachable" if away else ""
    asleep = " and ".join(rig.name for rig in now.rigs if rig.asleep)
    hosts += f", {asleep} asleep" if asleep else ""
    address = f", {now.address.line}" if now.address and now.address.ok else ""
    return f"{serves}{hosts}{address}, {now.at}"


def _instances(rig: RigSnapshot) -> Iterator[tuple[str, ...]]:
    if rig.away:
        yield (rig.name, NONE, "unreachable", *(NONE,) * (len(INSTANCES) - 3))
    for each in rig.instances:
        yield (
            *(rig.name, each.name, each.state, str(each.port), each.model),
            *(count_of(each.streams, each.slots), _count(each.waiting), _rate(each), _measured(each)),
        )


def _rate(each: InstanceSnapshot) -> str:
    """Return tokens a second; `reading` if all running requests are prompts."""
    if not each.streams or each.tokens_per_second is None:
        return NONE
    if not each.tokens_per_second and each.reading == each.streams:
        return "reading"
    # One second is not precise enough for more digits.
    return f"{each.tokens_per_second:.0f}" if each.tokens_per_second >= 100 else f"{each.tokens_per_second:.1f}"


def _measured(each: InstanceSnapshot) -> str:
    if each.measured:
        return _plus_minus(each.measured)
    return f"{each.expected:g} expected" if each.expected else NONE


def _plus_minus(speed: Speed) -> str:
    """Format a speed like a report."""
    if speed.low is None or speed.high is None:
        return f"{rounded(speed.value)} ({speed.counted})"
    half = (speed.high - speed.low) / 2
    return f"{rounded(speed.value)} ± {short(half) if half < speed.value / 2 else 'over 50 %'}"


def _card(rig: str, card: CardSnapshot) -> tuple[str, ...]:
    memory = NONE
    if card.memory_used is not None and card.memory_total is not None:
        memory = f"{card.memory_used / _GIB:.1f} of {card.memory_total / _GIB:.1f} GiB"
    return (
        rig,
        card.name,
        memory,
        _power(card),
        with_unit(card.celsius, "°C"),
        with_unit(card.busy_percent, "%"),
        card.model,
    )


def _power(card: CardSnapshot) -> str:
    if card.watts is None or card.limit_watts is None:
        return with_unit(card.watts, "W")
    return f"{card.watts:.0f} of {card.limit_watts:.0f} W"


def _changes(rig: RigSnapshot) -> Iterator[tuple[str, ...]]:
    change = rig.change
    if change is None:
        return
    first, more = (change.changes or ("nothing",))[0], len(change.changes) - 1
    what = f"{first}{f', and {more} more' if more > 0 else ''}"
    failed = f"failed: {change.failed[0]}" if change.failed else what
    yield rig.name, str(change.number), change.at, change.who or NONE, failed


def _servers(rig: RigSnapshot) -> Iterator[tuple[str, ...]]:
    for model in rig.gateway.models if rig.gateway else ():
        for server in model.servers:
            streams = count_of(server.streams, server.most)
            yield rig.name, model.name, str(model.waiting), server.name, server.state, streams, str(server.answered)


def _users(rig: RigSnapshot) -> Iterator[tuple[str, ...]]:
    for user in rig.gateway.users if rig.gateway else ():
        yield rig.name, user.name, count_of(user.streams, user.most)


def count_of(some: int | None, every: int | None) -> str:
    """Return `2 of 4`; only the first number if the second one is unknown."""
    return NONE if some is None else f"{some} of {every}" if every is not None else str(some)


def _count(value: int | None) -> str:
    return NONE if value is None else str(value)


def with_unit(value: float | None, unit: str) -> str:
    """Return a number without digits after the point, and its unit."""
    return NONE if value is None else f"{value:.0f} {unit}"


Paint = Callable[[str, str], str]
"""Gives a text a colour, by its name."""

COLOURS = {
    **dict.fromkeys(("serves", "up"), "green"),
    **dict.fromkeys(("busy", "loads", "draining", "paused", "asleep"), "yellow"),
    **dict.fromkeys(("hangs", "down", "unreachable"), "red"),
}
"""The colours of states."""
_CUT = ("what", "model", "instance", "server", "by", "rig", "gateway", "user", "GPU")
"""Columns that are cut if there is no room, the first ones first."""
_LEFT_OUT = ("busy", "port", "answered", "model", "measured", "by", "waiting", "when")
"""Columns that are left out then."""
_OPTIONAL = ("port",)
"""Columns that are left out before anything is cut."""
_LEAST = 6
"""The fewest cells that a column keeps when it is cut."""
_GAP = 2
_MOST_LINES = 4
"""The most lines of a sentence in a table."""


def status_lines(now: FleetSnapshot, width: int | None, paint: Paint) -> Iterator[str]:
    """Yield all lines, each of at most `width` cells; of any length if that is None."""
    yield paint(_cut(status_summary(now), width), "green" if now.ok else "red")
    for sentences, colour in ((now.problems, "red"), (now.pauses, "yellow")):
        for sentence in sentences:
            yield from (paint(_cut(line, width), colour) for line in wrapped(sentence, width))
    for table in status_tables(now):
        yield ""
        yield from table_lines(table, width, paint, _OPTIONAL)


def wrapped(sentence: str, width: int | None) -> list[str]:
    """Return the lines of a sentence. It ends in its fix: nothing of it is cut off."""
    return wrap(shown(sentence), width, subsequent_indent="  ") if width else [shown(sentence)]


def table_lines(table: Table, width: int | None, paint: Paint, optional: Sequence[str] = ()) -> Iterator[str]:
    """Yield the lines of a table, each of at most `width` cells; of any length if that is None.

    Without room, `optional` columns are left out before anything is cut. Sentences are wrapped.
    """
    rows = [[shown(cell) for cell in row] for row in (table.headings, *table.rows)]
    kept = [at for at, _ in enumerate(table.headings) if any(row[at] not in (NONE, "") for row in rows[1:])]
    widths = _widths(table.headings, rows, kept, width, optional)
    last = max(widths, default=0)
    indent = " " * sum(wide + _GAP for at, wide in widths.items() if at != last)
    first = ""
    for number, row in enumerate(rows):
        again = number > 1 and row[0] == first
        first = row[0]
        more: list[str] = []
        if table.prose and width:
            row[last], *more = wrap(row[last], widths[last], max_lines=_MOST_LINES, placeholder="…") or [""]
        cells = [("" if again and at == 0 else row[at], wide) for at, wide in widths.items()]
        texts = [_padded(_cut(text, wide), wide) for text, wide in cells]
        painted = [paint(text, COLOURS[text.strip()]) if text.strip() in COLOURS else text for text in texts]
        line = (" " * _GAP).join(painted).rstrip()
        yield paint(line, "bold") if number == 0 else line
        yield from (indent + _cut(text, widths[last]) for text in more)


def _widths(
    headings: Sequence[str], rows: Sequence[Sequence[str]], kept: list[int], width: int | None, optional: Sequence[str]
) -> dict[int, int]:
    """Return the cells of each column that is shown. Without room, optional columns are left out, then some columns
    are cut, then some left out.
    """
    widths = {at: max(cells(row[at]) for row in rows) for at in kept}
    if width is None:
        return widths

    def over() -> int:
        return sum(widths.values()) + _GAP * (len(widths) - 1) - width

    for name in optional:
        if name in headings and over() > 0:
            widths.pop(headings.index(name), None)
    for name in _CUT:
        at = headings.index(name) if name in headings else -1
        if at in widths and over() > 0:
            widths[at] = max(min(widths[at], _LEAST), widths[at] - over())
    for name in _LEFT_OUT:
        if name in headings and over() > 0:
            widths.pop(headings.index(name), None)
    while over() > 0 and len(widths) > 1:
        widths.popitem()
    return widths if over() <= 0 else dict.fromkeys(widths, width)


def cells(text: str) -> int:
    """Return the cells of a terminal that a text takes: an ideograph takes two, a combining mark none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _cut(text: str, width: int | None) -> str:
    """Cut a text to so many cells."""
    if width is None or cells(text) <= width:
        return text
    while text and cells(text) > width - 1:
        text = text[: -max(1, (cells(text) - width) // 2)]
    return f"{text}…" if width > 0 else ""


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cells(text))


FASTEST_RELOAD = 5
"""The fewest seconds between two reloads of a page: a reload loses what a reader has selected."""


def to_html(now: FleetSnapshot, every: float | None = None, *, ended: bool = False) -> str:
    """Return the whole page. Texts from hosts are escaped, and never markup.

    `every`: the seconds after which the file is written again, so the page reloads itself. `ended`: it was, until now.
    """
    from llamaherd.measure.report.export import html_environment  # late: the other forms need no template

    reload = None if every is None or ended else max(FASTEST_RELOAD, ceil(every))
    template = html_environment("status").get_template("page.html.j2")
    about, tables = status_summary(now), status_tables(now)
    return template.render(now=now, about=about, tables=tables, version=__version__, reload=reload, ended=ended)
