"""Charts as values, and their geometry: ticks, lines, bars and labels for the SVG template. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, floor, log2, log10
from typing import Literal

from llamaherd.measure.report.tables import Table, tokens
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


_ABOUT = 5
"""The number of marks that an axis should have."""
_MILLIONS, _MONTHS = 5e5, 300
"""The step from which values are shown in millions, and the days from which dates show years."""
_DAYS = (*(each / 1440 for each in (1, 5, 15, 60, 180, 360, 720)), 1, 2, 7, 14, 28, 91, 182, 365, 730, 3650)
_DAY = 86_400.0


@dataclass(frozen=True)
class Scaled:
    """An axis with its ends, and its marks with their labels."""

    axis: Axis
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def share(self, value: float) -> float:
        """Return the relative position of a value, limited to 0 at the low end and 1 at the high end."""
        low, high, at = (_along(self.axis, each) for each in (self.low, self.high, value))
        return min(max((at - low) / (high - low), 0.0), 1.0) if high > low else 0.5


def _along(axis: Axis, value: float) -> float:
    if axis.scale in ("log2", "log10"):
        return log2(value) if value > 0 else -1e3
    return value


def scaled(axis: Axis, values: Sequence[float]) -> Scaled:
    """Return the axis that shows all values."""
    if axis.scale in ("log2", "log10"):
        positive = [each for each in values if each > 0] or [1.0]
        return (_by_two if axis.scale == "log2" else _by_ten)(axis, min(positive), max(positive))
    low, high = min(values, default=0.0), max(values, default=1.0)
    if axis.scale == "date":
        return _by_day(axis, low, high)
    return _linear(axis, min(low, 0.0) if axis.zero else low, high)


def _linear(axis: Axis, low: float, high: float) -> Scaled:
    if high <= low:
        # A single value: space on both sides shows that it is alone.
        low, high = (0.0 if axis.zero else low - abs(low) * 0.1 - 1e-9), high + abs(high) * 0.1 + 1e-9
    step = nice_step((high - low) / _ABOUT)
    if axis.whole:
        step = max(1.0, float(ceil(step)))
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    marks = [at * step for at in range(first, last + 1)]
    return Scaled(axis, marks[0], marks[-1], tuple((each, _tick_text(axis, each, step)) for each in marks))


def nice_step(rough: float) -> float:
    """Return the next larger value of 1, 2, 2.5 or 5 times a power of ten."""
    power: float = 10.0 ** floor(log10(rough))
    return next((each * power for each in (1.0, 2.0, 2.5, 5.0) if each * power >= rough * (1 - 1e-9)), 10 * power)


def _tick_text(axis: Axis, value: float, step: float) -> str:
    if axis.tokens:
        return tokens(value)
    digits = next((each for each in range(12) if abs(step * 10**each - round(step * 10**each)) < 1e-6), 12)
    return f"{value / 1e6:,g}M" if step >= _MILLIONS else f"{value + 0.0:,.{digits}f}"


def _by_two(axis: Axis, low: float, high: float) -> Scaled:
    """Return marks at powers of two. The ends are those of the values, or around a single mark."""
    first, last = ceil(log2(low) - 1e-9), floor(log2(high) + 1e-9)
    if last <= first:
        first, last = floor(log2(low) + 1e-9), max(ceil(log2(high) - 1e-9), floor(log2(low) + 1e-9) + 1)
        low, high = min(low, 2.0**first), max(high, 2.0**last)
    every = max(1, ceil((last - first) / 6))
    marks = [2.0**at for at in range(first, last + 1, every)]
    labels = tuple((each, tokens(each) if axis.tokens else f"{each:g}") for each in marks)
    return Scaled(axis, low, high, labels)


def _by_ten(axis: Axis, low: float, high: float) -> Scaled:
    first, last = floor(log10(low) + 1e-9), ceil(log10(high) - 1e-9)
    last = max(last, first + 1)
    parts = tuple(range(1, 10)) if high < 5 * low else (1, 2, 5) if last - first <= 3 else (1,)
    marks = [part * 10.0**at for at in range(first, last + 1) for part in parts]
    inside = [each for each in marks if _below(marks, low) <= each <= _above(marks, high)]
    return Scaled(axis, inside[0], inside[-1], tuple((each, f"{each:,.10g}") for each in inside))


def _below(marks: Sequence[float], low: float) -> float:
    return max((each for each in marks if each <= low * (1 + 1e-9)), default=marks[0])


def _above(marks: Sequence[float], high: float) -> float:
    return min((each for each in marks if each >= high * (1 - 1e-9)), default=marks[-1])


def _by_day(axis: Axis, low: float, high: float) -> Scaled:
    """Return an axis of days since 1970, with marks at midnight, or at hours for a range of few days."""
    if high <= low:
        low, high = low - 0.5, high + 0.5
    every = next((each for each in _DAYS if (high - low) / each <= _ABOUT), _DAYS[-1])
    marks = [at * every for at in range(ceil(low / every), floor(high / every) + 1)] or [low]
    return Scaled(axis, low, high, tuple((each, _moment(each, every, high - low)) for each in marks))


def _moment(day: float, every: float, span: float) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)
    if every < 1 and (moment.hour or moment.minute):
        return f"{moment:%H:%M}"
    return f"{moment:%d %b}" if span < _MONTHS else f"{moment:%b %Y}"


def days(moment: str) -> float:
    """Return a time as days since 1970."""
    return datetime.fromisoformat(moment).timestamp() / _DAY


WIDTH, HEIGHT = 400, 250
TOP, BOTTOM, LEFT, RIGHT = 26, 40, 60, 20
LETTER, _GAP = 7.1, 14.0
"""The largest average width of a letter, and the distance of text lines."""
_SIZE = 3.2
_REACH = 0.5
"""The largest ratio of an interval to its value at which the axis shows the whole interval."""


@dataclass(frozen=True)
class Text:
    """A text at a position."""

    x: str
    y: str
    text: str


@dataclass(frozen=True)
class Mark:
    """A marker with its interval as one path, and its tooltip."""

    path: str
    whisker: str
    about: str


@dataclass(frozen=True)
class DrawnSeries:
    """A series: `number` selects its colour, dash and marker."""

    number: int
    line: str
    band: str
    marks: tuple[Mark, ...]
    label: Text | None
    leader: str


@dataclass(frozen=True)
class DrawnPane:
    """A pane. `grid` are its horizontal grid lines, `levels` its level lines with their bands."""

    title: str
    about: str
    width: int
    height: int
    grid: str
    frame: str
    x_ticks: tuple[Text, ...]
    y_ticks: tuple[Text, ...]
    x_name: Text
    y_name: Text
    levels: tuple[tuple[str, str], ...]
    series: tuple[DrawnSeries, ...]


@dataclass(frozen=True)
class Frame:
    """The position of a pane's axes."""

    x: Scaled
    y: Scaled
    right: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the position of a value."""
        return self.across(x), self.up(y)

    def across(self, x: float) -> float:
        """Return the horizontal position of a value."""
        return LEFT + self.x.share(x) * (self.right - LEFT)

    def up(self, y: float) -> float:
        """Return the vertical position of a value."""
        return HEIGHT - BOTTOM - self.y.share(y) * (HEIGHT - BOTTOM - TOP)


def draw_pane(pane: Pane) -> DrawnPane:
    """Return a pane with the coordinates of all its parts."""
    points = [point for series in pane.series for point in series.points]
    ends = [end for point in points for end in (point.y, *visible_ends(point)) if end is not None]
    ends += [end for level in pane.levels for end in (level.low, level.value, level.high) if end is not None]
    names = [series.name for series in pane.series] if _labelled(pane) else []
    room = max((len(each) * LETTER + 12 for each in names), default=0)
    frame = Frame(scaled(pane.x, [point.x for point in points]), scaled(pane.y, ends), WIDTH - RIGHT - room)
    return DrawnPane(
        title=pane.title,
        about=pane.about,
        width=WIDTH,
        height=HEIGHT,
        grid="".join(f"M{LEFT} {place(frame.up(each))}H{place(frame.right)}" for each, _ in frame.y.ticks),
        frame=f"M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{place(frame.right)}",
        x_ticks=tuple(_x_ticks(frame)),
        y_ticks=tuple(Text(place(LEFT - 6), place(frame.up(each) + 4), label) for each, label in frame.y.ticks),
        x_name=Text(place((LEFT + frame.right) / 2), place(HEIGHT - 6), pane.x.name),
        y_name=Text("4", "14", pane.y.name),
        levels=tuple(_level(level, frame) for level in pane.levels),
        series=tuple(_series(pane, frame)),
    )


def visible_ends(point: Point) -> tuple[float | None, float | None]:
    """Return the visible ends of an interval: with two values it can be wide enough to hide everything else."""
    reach = _REACH * abs(point.y)
    low = None if point.low is None else max(point.low, point.y - reach)
    return low, None if point.high is None else min(point.high, point.y + reach)


def _labelled(pane: Pane) -> bool:
    return len(pane.series) > 1


def _x_ticks(frame: Frame) -> Iterator[Text]:
    """Return the marks whose labels do not overlap the previous one."""
    until = -1e9
    for each, label in frame.x.ticks:
        at, half = frame.across(each), len(label) * LETTER / 2
        if at - half > until + 4:
            yield Text(place(at), place(HEIGHT - BOTTOM + 16), label)
            until = at + half


def _level(level: Level, frame: Frame) -> tuple[str, str]:
    y = frame.up(level.value)
    band = ""
    if level.low is not None and level.high is not None:
        top, bottom = frame.up(level.high), frame.up(level.low)
        band = f"M{LEFT} {place(top)}H{place(frame.right)}V{place(bottom)}H{LEFT}z"
    return f"M{LEFT} {place(y)}H{place(frame.right)}", band


def _series(pane: Pane, frame: Frame) -> Iterator[DrawnSeries]:
    ends = [frame.at(series.points[-1].x, series.points[-1].y) for series in pane.series]
    heights = spread([y for _, y in ends], _GAP, TOP + 4, HEIGHT - BOTTOM)
    for number, (series, (x, y), height) in enumerate(zip(pane.series, ends, heights, strict=True)):
        at = [frame.at(point.x, point.y) for point in series.points]
        label = Text(place(frame.right + 12), place(height + 4), series.name) if _labelled(pane) else None
        yield DrawnSeries(
            number=number,
            line="M" + "L".join(f"{place(x)} {place(y)}" for x, y in at) if series.line and len(at) > 1 else "",
            band=_band(series, frame) if series.line else "",
            marks=tuple(_marks(series, number, frame)),
            label=label,
            leader=f"M{place(x + 4)} {place(y)}L{place(frame.right + 9)} {place(height)}" if label else "",
        )


def _band(series: Series, frame: Frame) -> str:
    """Return the area between the ends of the intervals, if all points have one."""
    known = [(point.x, point.low, point.high) for point in series.points]
    if len(known) < 2 or any(low is None or high is None for _, low, high in known):
        return ""
    upper = [frame.at(x, high or 0.0) for x, _, high in known]
    lower = [frame.at(x, low or 0.0) for x, low, _ in reversed(known)]
    return "M" + "L".join(f"{place(x)} {place(y)}" for x, y in [*upper, *lower]) + "z"


def _marks(series: Series, number: int, frame: Frame) -> Iterator[Mark]:
    for point in series.points if series.marks else ():
        x, y = frame.at(point.x, point.y)
        yield Mark(_marker(number, x, y), _whisker(point, x, frame), point.about)


def _whisker(point: Point, x: float, frame: Frame) -> str:
    if point.low is None or point.high is None:
        return ""
    top, bottom = frame.up(point.high), frame.up(point.low)
    return f"M{place(x)} {place(top)}V{place(bottom)}" if bottom - top > 2 * _SIZE else ""


def _marker(number: int, x: float, y: float) -> str:
    """Return the path of a marker: circle, square, triangle, diamond, inverted triangle."""
    double = place(2 * _SIZE)
    match number % 5:
        case 0:
            return f"M{place(x)} {place(y)}h0"  # round, by the ends of its line
        case 1:
            return f"M{place(x - _SIZE)} {place(y - _SIZE)}h{double}v{double}h-{double}z"
        case 2:
            return f"M{place(x)} {place(y - 4)}l4 7h-8z"
        case 3:
            return f"M{place(x)} {place(y - 4.4)}l4.4 4.4l-4.4 4.4l-4.4-4.4z"
        case _:
            return f"M{place(x)} {place(y + 4)}l4-7h-8z"


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions with a minimum distance, close to the given ones, within bounds and in the same order."""
    order = sorted(range(len(places)), key=lambda at: (places[at], at))
    gap = min(gap, (high - low) / max(1, len(places) - 1))
    groups: list[list[float]] = []  # middle and number of places that lie gap by gap
    for at in order:
        groups.append([places[at], 1])
        while len(groups) > 1 and _runs_into(groups[-2], groups[-1], gap):
            middle, many = groups.pop()
            before, several = groups[-1]
            groups[-1] = [(before * several + middle * many) / (several + many), several + many]
    found = [middle + (each - (many - 1) / 2) * gap for middle, many in groups for each in range(int(many))]
    for at in range(len(found)):
        found[at] = max(found[at], low + at * gap)
    for at in range(len(found)):
        back = len(found) - 1 - at
        found[back] = min(found[back], high - at * gap)
    return [found[order.index(at)] for at in range(len(places))]


def _runs_into(above: Sequence[float], below: Sequence[float], gap: float) -> bool:
    return above[0] + (above[1] - 1) / 2 * gap + gap > below[0] - (below[1] - 1) / 2 * gap


def place(value: float) -> str:
    """Return a coordinate, rounded to a tenth of a pixel; -0 becomes 0."""
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


_ROW, _TOP, _WIDER = 34, 26, 1.15


@dataclass(frozen=True)
class DrawnBar:
    """A bar below its name."""

    name: Text
    bar: str
    whisker: str
    value: Text
    grey: bool


@dataclass(frozen=True)
class DrawnBars:
    """Bars, one below the other."""

    title: str
    about: str
    width: int
    height: int
    y_name: Text
    bars: tuple[DrawnBar, ...]


def draw_bars(chart: Bars) -> DrawnBars:
    """Return bars that begin at 0, each below its name, with its value at the end."""
    most = _WIDER * max((each.value for each in chart.bars), default=1.0) or 1.0
    room = WIDTH - 16 - max((len(each.text) * LETTER for each in chart.bars), default=0) - 8
    made = []
    for at, each in enumerate(chart.bars):
        top, end = _TOP + at * _ROW, 8 + each.value / most * room
        reach = 8 + min(each.high or each.value, most) / most * room
        whisker = ""
        if each.low is not None and each.high is not None:
            low = 8 + each.low / most * room
            whisker = f"M{place(low)} {top + 21}H{place(reach)}M{place(low)} {top + 17}v8M{place(reach)} {top + 17}v8"
        made.append(
            DrawnBar(
                name=Text("8", place(top + 11), _cut(each.name)),
                bar=f"M8 {top + 15}H{place(end)}v12H8z",
                whisker=whisker,
                value=Text(place(max(end, reach) + 6), place(top + 25), each.text),
                grey=each.grey,
            )
        )
    height = _TOP + len(chart.bars) * _ROW + 4
    return DrawnBars(chart.title, chart.about, WIDTH, height, Text("4", "14", chart.unit), tuple(made))


def _cut(name: str) -> str:
    most = int((WIDTH - 20) / LETTER)
    return name if len(name) <= most else f"{name[: most - 1]}…"
