"""What the fleet does now, on a terminal: lines that never wrap, and keep the columns that tell most. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap

from llamaherd.report.tables import Table
from llamaherd.report.values import NONE
from llamaherd.status.now import StatusNow
from llamaherd.status.tables import about, tables
from llamaherd.text.terminal import shown

Paint = Callable[[str, str], str]
"""Gives a text a colour, by its name."""

COLOURS = {
    **dict.fromkeys(("serves", "up"), "green"),
    **dict.fromkeys(("busy", "loads", "draining"), "yellow"),
    **dict.fromkeys(("hangs", "down", "away"), "red"),
}
"""Of states."""
_CUT = ("what", "model", "instance", "server", "by", "rig", "gateway", "user", "GPU")
"""Columns that are cut where there is no room, the first ones first."""
_LEFT_OUT = ("busy", "port", "answered", "model", "measured", "by", "waiting", "when")
"""Those that go then."""
_LEAST = 6
"""Cells that a column keeps which is cut."""
_GAP = 2


def status_lines(now: StatusNow, width: int | None, paint: Paint) -> Iterator[str]:
    """All of it, each line of at most `width` cells; of any length where that is None."""
    yield paint(_cut(about(now), width), "green" if now.ok else "red")
    for problem in now.problems:
        # It ends in what to do: nothing of it is cut off.
        lines = wrap(shown(problem), width, subsequent_indent="  ") if width else [shown(problem)]
        yield from (paint(_cut(line, width), "red") for line in lines)
    for table in tables(now):
        yield ""
        yield from _table_lines(table, width, paint)


def _table_lines(table: Table, width: int | None, paint: Paint) -> Iterator[str]:
    rows = [[shown(cell) for cell in row] for row in (table.headings, *table.rows)]
    kept = [at for at, _ in enumerate(table.headings) if any(row[at] not in (NONE, "") for row in rows[1:])]
    widths = _widths(table.headings, rows, kept, width)
    first = ""
    for number, row in enumerate(rows):
        again = number > 1 and row[0] == first
        first = row[0]
        cells = [("" if again and at == 0 else row[at], wide) for at, wide in widths.items()]
        texts = [_padded(_cut(text, wide), wide) for text, wide in cells]
        painted = [paint(text, COLOURS[text.strip()]) if text.strip() in COLOURS else text for text in texts]
        line = (" " * _GAP).join(painted).rstrip()
        yield paint(line, "bold") if number == 0 else line


def _widths(
    headings: Sequence[str], rows: Sequence[Sequence[str]], kept: list[int], width: int | None
) -> dict[int, int]:
    """The cells of each column that is shown: first some are cut, then some left out, where there is no room."""
    widths = {at: max(cells(row[at]) for row in rows) for at in kept}
    if width is None:
        return widths

    def over() -> int:
        return sum(widths.values()) + _GAP * (len(widths) - 1) - width

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
    """The cells of a terminal that a text takes: an ideograph takes two, a combining mark none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _cut(text: str, width: int | None) -> str:
    """A text that takes no more cells."""
    if width is None or cells(text) <= width:
        return text
    while text and cells(text) > width - 1:
        text = text[: -max(1, (cells(text) - width) // 2)]
    return f"{text}…" if width > 0 else ""


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cells(text))
