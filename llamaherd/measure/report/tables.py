"""Tables of a report, and the text of their numbers: four digits, an interval, a count. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llamaherd.measure.report.results import Figure, Measured, MeasuredCell
from llamaherd.measure.results.metrics import DECODE, FIRST_TOKEN, METRICS, PREFILL

NONE = "-"
"""The text of a cell without a measurement."""


def rounded(value: float) -> str:
    """Return a number with four digits, or with all digits before the point."""
    digits = len(f"{abs(value):.0f}")
    return f"{value:,.{max(0, 4 - digits)}f}"


def figure(each: Figure | None) -> str:
    """Return a value with its interval: `249.3 (247.2 to 251.4)`, or `249.3 (n = 2, too few)`."""
    if each is None:
        return NONE
    if each.ends is None:
        few = f" ({each.estimate.counted})" if each.estimate.n > 1 else ""
        return f"{rounded(each.value)}{few}"
    low, high = map(rounded, each.ends)
    return f"{rounded(each.value)} ({low} to {high})"


def plus_minus(each: Figure | None) -> str:
    """Return a value with half of its interval: `249.3 ± 2.1`. An interval wider than the value has no digits."""
    if each is None or each.ends is None:
        return figure(each)
    low, high = each.ends
    half = (high - low) / 2
    return f"{rounded(each.value)} ± {short(half) if half < each.value / 2 else 'over 50 %'}"


def short(value: float) -> str:
    """Return an error with two digits."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def share(value: float | None) -> str:
    """Return a share in percent."""
    return NONE if value is None else f"{100 * value:.1f} %"


def optional(value: float | None) -> str:
    """Return a number, or the text for an unknown one."""
    return NONE if value is None else rounded(value)


def counted(cell: MeasuredCell) -> str:
    """Return the number of independent values of a cell."""
    if not cell.figures:
        return NONE
    most = max((each.estimate for each in cell.figures), key=lambda each: each.n)
    return f"{most.n} {most.unit}s" if most.unit == "start" else str(most.n)


def tokens(value: float) -> str:
    """Return the tokens of a context: `4K`, `198K`, `1M`."""
    for unit, size in (("M", 1 << 20), ("K", 1 << 10)):
        if value >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:,.0f}"


@dataclass(frozen=True)
class Table:
    """Rows under headings; the first cell of a row is its name. `grey` are numbers of rows.

    `prose`: the last column contains sentences, which are wrapped.
    """

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    grey: frozenset[int] = frozenset()
    prose: bool = False


def without_empty(table: Table) -> Table:
    """Return the table without empty columns."""
    kept = [at for at in range(len(table.headings)) if at == 0 or any(row[at] not in (NONE, "") for row in table.rows)]
    rows = tuple(tuple(row[at] for at in kept) for row in table.rows)
    return Table(table.caption, tuple(table.headings[at] for at in kept), rows, table.grey)


def cells_table(cells: Sequence[MeasuredCell], caption: str) -> Table:
    """Return a table of cells: a row for each condition."""
    headings = ["condition", *(f"{each.name}, {each.unit}" if each.unit else each.name for each in METRICS)]
    headings += ["together, t/s", "accepted", "power, W", "J/token", "n"]
    rows = []
    for cell in cells:
        figures = [figure(cell.figure(each)) for each in METRICS]
        together = rounded(cell.total.value) if cell.total and cell.condition.concurrency > 1 else NONE
        rest = [together, share(cell.acceptance), optional(cell.watts), optional(cell.joules), counted(cell)]
        rows.append((str(cell.condition), *figures, *rest))
    return without_empty(Table(caption, tuple(headings), tuple(rows)))


def memory_table(each: Measured) -> Table | None:
    """Return a table of maximum memory use and planned memory."""
    known = [peak for peak in each.peaks if peak.held_bytes is not None]
    if not known:
        return None
    rows = []
    for peak in known:
        held, planned = (peak.held_bytes or 0) / (1 << 20), peak.planned_bytes
        beside = f"{100 * (held * (1 << 20) / planned - 1):+.1f} %" if planned else NONE
        where = "RAM" if peak.gpu is None else f"GPU {peak.gpu}"
        rows.append((where, rounded(held), rounded(planned / (1 << 20)) if planned else NONE, beside))
    headings = ("memory", "maximum, MiB", "planned, MiB", "relative to the plan")
    return without_empty(Table("Maximum memory use, relative to the plan", headings, tuple(rows)))


_JOULES_A_KWH = 3.6e6
_SHORTEST_CONTEXT = 1000
"""Tokens below which a prompt measures mostly overhead."""


def context_table(cells: Sequence[MeasuredCell]) -> Table | None:
    """Return the speeds over the context in one table, as people post them; None without decode at two depths."""
    alone = [cell for cell in cells if cell.condition.concurrency == 1 and not cell.condition.power_limit_watts]
    decode = {cell.condition.depth: cell for cell in alone if cell.condition.depth and cell.figure(DECODE)}
    prefill = {_depth(cell): cell for cell in alone if cell.figure(PREFILL) and not cell.answers}
    depths = sorted(depth for depth in {*decode, *prefill} if depth >= _SHORTEST_CONTEXT)
    rows = tuple(_context_row(depth, prefill.get(depth), decode.get(depth)) for depth in depths)
    headings = ("context", "prefill, t/s", "decode, t/s", "first token, ms", "power, W", "decode, tokens/kWh")
    return without_empty(Table("Speeds over the context", headings, rows)) if len(decode) > 1 else None


def _depth(cell: MeasuredCell) -> int:
    """Return the tokens in the cache before a prompt, or the length of a prompt that fills an empty cache."""
    return cell.condition.depth or cell.condition.prompt or 0


def _context_row(depth: int, prefill: MeasuredCell | None, decode: MeasuredCell | None) -> tuple[str, ...]:
    return (
        tokens(depth),
        plus_minus(prefill.figure(PREFILL) if prefill else None),
        plus_minus(decode.figure(DECODE) if decode else None),
        plus_minus(prefill.figure(FIRST_TOKEN) if prefill else None),
        optional(decode.watts if decode else None),
        rounded(_JOULES_A_KWH / decode.joules) if decode and decode.joules else NONE,
    )
