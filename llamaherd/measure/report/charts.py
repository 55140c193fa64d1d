"""Charts as values, before their layout on a page. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from llamaherd.measure.report.tables import Table
from llamaherd.measure.results.result import Condition

Scale = Literal["linear", "log2", "log10", "date"]
MOST_SERIES = 5
"""The most series in one pane: more are hard to distinguish."""


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
