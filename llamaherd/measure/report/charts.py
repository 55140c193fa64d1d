"""Tables and charts as values, and the text of their numbers: four digits, an interval, a count. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal

from llamaherd.measure.report.results import Figure, Measured, MeasuredCell
from llamaherd.measure.results.metrics import DECODE, FIRST_TOKEN, METRICS, PREFILL
from llamaherd.measure.results.result import Condition

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
    headings = ["condition", *(each.heading for each in METRICS)]
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
    prefill = {_depth(cell): cell for cell in alone if cell.figure(PREFILL) and not cell.generates}
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


@dataclass(frozen=True)
class Scheme:
    """The colours of pages and charts in a light or a dark scheme; `c0` to `c4` are those of series.

    Those of series are by Okabe and Ito, and have a contrast of at least 3 with the paper.
    """

    paper: str
    ink: str
    soft: str
    line: str
    c0: str
    c1: str
    c2: str
    c3: str
    c4: str

    @property
    def series(self) -> tuple[str, ...]:
        """Return the colours of series."""
        return self.c0, self.c1, self.c2, self.c3, self.c4

    @property
    def css(self) -> str:
        """Return the colours as variables of CSS."""
        return " ".join(f"--{name}: {colour};" for name, colour in asdict(self).items())


# matplotlib leaves black out of an SVG: it would stay black in the dark scheme.
LIGHT = Scheme("#ffffff", "#1a1a1a", "#595959", "#d0d0d0", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#111111")
DARK = Scheme("#121212", "#ececec", "#b0b0b0", "#444444", "#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442")

ImageForm = Literal["png", "svg"]
Scale = Literal["linear", "log2", "log10", "date"]
MOST_SERIES = 5
"""The most series in one pane: more are hard to distinguish."""
_REACH = 0.5
"""The largest ratio of an interval to its value at which the axis shows the whole interval."""
_DAY = 86_400.0


@dataclass(frozen=True)
class Axis:
    """An axis. `zero`: it starts at 0. `tokens`: its ticks are numbers of tokens such as 4K; `whole`: no fractions."""

    name: str
    scale: Scale = "linear"
    zero: bool = False
    tokens: bool = False
    whole: bool = False


@dataclass(frozen=True)
class Point:
    """A value with the ends of its interval, if it has one. `about` is its tooltip."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    about: str = ""

    @property
    def ends(self) -> tuple[float, float] | None:
        """Return the ends of the interval; None without one."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def visible_ends(self) -> tuple[float, float]:
        """Return the ends for the size of the axis: an interval of two runs can be wide enough to hide all values."""
        low, high = self.ends or (self.y, self.y)
        reach = _REACH * abs(self.y)
        return max(low, self.y - reach), min(high, self.y + reach)


@dataclass(frozen=True)
class Series:
    """Points of one series. Without `line` they are not joined; without `marks` only the line is drawn."""

    name: str
    points: tuple[Point, ...]
    line: bool = True
    marks: bool = True


@dataclass(frozen=True)
class Level:
    """A horizontal line across the pane, such as a mean, with a band around it."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Pane:
    """One pair of axes with its series. `about` is its description for screen readers."""

    title: str
    about: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    levels: tuple[Level, ...] = ()


@dataclass(frozen=True)
class Bar:
    """A horizontal bar from 0, with an interval; `grey` if the value is outdated."""

    name: str
    value: float
    low: float | None
    high: float | None
    text: str
    grey: bool = False


@dataclass(frozen=True)
class Bars:
    """Bars on one axis."""

    title: str
    about: str
    unit: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Chart:
    """Panes under one heading, with a table of their values. `conditions` are those of the cells shown completely."""

    title: str
    caption: str
    panes: tuple[Pane, ...] = ()
    bars: tuple[Bars, ...] = ()
    table: Table | None = None
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class CardFigure:
    """A large number of a card: its name, value with unit, half of its 95 % interval, and its condition."""

    name: str
    value: str
    error: str
    condition: str


@dataclass(frozen=True)
class Card:
    """A card. It has the decode speed over the context as a curve, or by kind of text as bars."""

    title: str
    hardware: str
    software: str
    figures: tuple[CardFigure, ...]
    curve: Pane | None
    bars: tuple[Bar, ...]
    doubt: str
    origin: str


def fewest(series: Iterable[Series]) -> tuple[Series, ...]:
    """Return as many series as a pane can hold: those with the most points, in their order."""
    every = list(series)
    kept = sorted(range(len(every)), key=lambda at: -len(every[at].points))[:MOST_SERIES]
    return tuple(every[at] for at in sorted(kept))


def days(moment: str) -> float:
    """Return a time as days since 1970."""
    return datetime.fromisoformat(moment).timestamp() / _DAY
