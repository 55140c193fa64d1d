"""Charts as values, before their layout on a page. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from llamaherd.measure.report.tables import Table
from llamaherd.measure.results.result import Condition

Scale = Literal["linear", "log2", "log10", "date"]
MOST_SERIES = 5
"""In one pane: more than these no eye tells apart."""


@dataclass(frozen=True)
class Axis:
    """An axis. `zero`: it begins at nothing. `tokens`: its ticks are counts of tokens, as 4K; `whole`: no halves."""

    name: str
    scale: Scale = "linear"
    zero: bool = False
    tokens: bool = False
    whole: bool = False


@dataclass(frozen=True)
class Point:
    """A value, with the ends of its interval where there is one; `about` is what it says when it is pointed at."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    about: str = ""


@dataclass(frozen=True)
class Series:
    """Points that belong together. Without `line` they are not joined; `marks` False leaves the line alone."""

    name: str
    points: tuple[Point, ...]
    line: bool = True
    marks: bool = True


@dataclass(frozen=True)
class Level:
    """A line across the pane, such as a mean, with a band around it."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Pane:
    """One pair of axes with what is on it. `about` is what it shows, for whoever does not see it."""

    title: str
    about: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    levels: tuple[Level, ...] = ()


@dataclass(frozen=True)
class Bar:
    """A horizontal bar from nothing, with an interval; `grey` where it is no longer so."""

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
    """Panes under one heading, with all their values as a table; `conditions` are of the cells that are in it whole."""

    title: str
    caption: str
    panes: tuple[Pane, ...] = ()
    bars: tuple[Bars, ...] = ()
    table: Table | None = None
    conditions: tuple[Condition, ...] = ()


def fewest(series: Iterable[Series]) -> tuple[Series, ...]:
    """As many series as a pane can hold, those with most points first, and in their order."""
    every = list(series)
    kept = sorted(range(len(every)), key=lambda at: -len(every[at].points))[:MOST_SERIES]
    return tuple(every[at] for at in sorted(kept))
