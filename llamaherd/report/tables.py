"""Tables of a report: headings and rows of text, whatever they are written in. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llamaherd.bench.results.metrics import METRICS
from llamaherd.report.measured import Measured, MeasuredCell
from llamaherd.report.values import NONE, counted, figure, number, optional, share


@dataclass(frozen=True)
class Table:
    """Rows under headings; the first cell of each says what the row is of. `grey` are rows by their numbers.

    `prose`: the last column has sentences, which are wrapped.
    """

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    grey: frozenset[int] = frozenset()
    prose: bool = False


def without_empty(table: Table) -> Table:
    """The table without columns in which nothing was measured."""
    kept = [at for at in range(len(table.headings)) if at == 0 or any(row[at] not in (NONE, "") for row in table.rows)]
    rows = tuple(tuple(row[at] for at in kept) for row in table.rows)
    return Table(table.caption, tuple(table.headings[at] for at in kept), rows, table.grey)


def cells_table(cells: Sequence[MeasuredCell], caption: str) -> Table:
    """All that was measured under some conditions: a row for each."""
    headings = ["condition", *(f"{each.name}, {each.unit}" if each.unit else each.name for each in METRICS)]
    headings += ["together, t/s", "accepted", "power, W", "J/token", "n"]
    rows = []
    for cell in cells:
        figures = [figure(cell.figure(each)) for each in METRICS]
        together = number(cell.total.value) if cell.total and cell.condition.concurrency > 1 else NONE
        rest = [together, share(cell.acceptance), optional(cell.watts), optional(cell.joules), counted(cell)]
        rows.append((str(cell.condition), *figures, *rest))
    return without_empty(Table(caption, tuple(headings), tuple(rows)))


def memory_table(each: Measured) -> Table | None:
    """The most memory that was held, beside what was planned."""
    known = [peak for peak in each.peaks if peak.held_bytes is not None]
    if not known:
        return None
    rows = []
    for peak in known:
        held, planned = (peak.held_bytes or 0) / (1 << 20), peak.planned_bytes
        beside = f"{100 * (held * (1 << 20) / planned - 1):+.1f} %" if planned else NONE
        where = "RAM" if peak.gpu is None else f"GPU {peak.gpu}"
        rows.append((where, number(held), number(planned / (1 << 20)) if planned else NONE, beside))
    headings = ("memory", "most held, MiB", "planned, MiB", "beside the plan")
    return without_empty(Table("The most memory that was held, beside the plan", headings, tuple(rows)))
