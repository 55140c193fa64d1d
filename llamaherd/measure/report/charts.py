"""Charts as values: axes, series, panes, bars. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal

from llamaherd.measure.report.tables import Table
from llamaherd.measure.results.result import Condition


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


def fewest(series: Iterable[Series]) -> tuple[Series, ...]:
    """Return as many series as a pane can hold: those with the most points, in their order."""
    every = list(series)
    kept = sorted(range(len(every)), key=lambda at: -len(every[at].points))[:MOST_SERIES]
    return tuple(every[at] for at in sorted(kept))


def days(moment: str) -> float:
    """Return a time as days since 1970."""
    return datetime.fromisoformat(moment).timestamp() / _DAY
