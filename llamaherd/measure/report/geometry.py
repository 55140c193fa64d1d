"""The geometry of charts: axis ticks, and lines, bars and labels at their coordinates, for the SVG template. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, floor, log2, log10

from llamaherd.measure.report.charts import Axis, Bars, Level, Pane, Point, Series
from llamaherd.measure.report.tables import tokens

_ABOUT = 5
"""Marks that an axis should have."""
_MILLIONS, _MONTHS = 5e5, 300
"""Steps from which on values are told in millions, and days from which on dates have years."""
_DAYS = (*(each / 1440 for each in (1, 5, 15, 60, 180, 360, 720)), 1, 2, 7, 14, 28, 91, 182, 365, 730, 3650)
_DAY = 86_400.0


@dataclass(frozen=True)
class Scaled:
    """An axis with its ends, and its marks with what they say."""

    axis: Axis
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def share(self, value: float) -> float:
        """Where a value lies: 0 at the low end, 1 at the high one, and nowhere beyond."""
        low, high, at = (_along(self.axis, each) for each in (self.low, self.high, value))
        return min(max((at - low) / (high - low), 0.0), 1.0) if high > low else 0.5


def _along(axis: Axis, value: float) -> float:
    if axis.scale in ("log2", "log10"):
        return log2(value) if value > 0 else -1e3
    return value


def scaled(axis: Axis, values: Sequence[float]) -> Scaled:
    """The axis on which all values can be seen."""
    if axis.scale in ("log2", "log10"):
        positive = [each for each in values if each > 0] or [1.0]
        return (_by_two if axis.scale == "log2" else _by_ten)(axis, min(positive), max(positive))
    low, high = min(values, default=0.0), max(values, default=1.0)
    if axis.scale == "date":
        return _by_day(axis, low, high)
    return _linear(axis, min(low, 0.0) if axis.zero else low, high)


def _linear(axis: Axis, low: float, high: float) -> Scaled:
    if high <= low:
        # A single value: something to either side, that it can be seen to be alone.
        low, high = (0.0 if axis.zero else low - abs(low) * 0.1 - 1e-9), high + abs(high) * 0.1 + 1e-9
    step = nice_step((high - low) / _ABOUT)
    if axis.whole:
        step = max(1.0, float(ceil(step)))
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    marks = [at * step for at in range(first, last + 1)]
    return Scaled(axis, marks[0], marks[-1], tuple((each, _tick_text(axis, each, step)) for each in marks))


def nice_step(rough: float) -> float:
    """The next larger one of 1, 2, 2.5 and 5 times a power of ten."""
    power: float = 10.0 ** floor(log10(rough))
    return next((each * power for each in (1.0, 2.0, 2.5, 5.0) if each * power >= rough * (1 - 1e-9)), 10 * power)


def _tick_text(axis: Axis, value: float, step: float) -> str:
    if axis.tokens:
        return tokens(value)
    digits = next((each for each in range(12) if abs(step * 10**each - round(step * 10**each)) < 1e-6), 12)
    return f"{value / 1e6:,g}M" if step >= _MILLIONS else f"{value + 0.0:,.{digits}f}"


def _by_two(axis: Axis, low: float, high: float) -> Scaled:
    """Powers of two; the ends are those of the values, or of the one mark that there would be."""
    first, last = ceil(log2(low) - 1e-9), floor(log2(high) + 1e-9)
    if last <= first:
        first, last = floor(log2(low) + 1e-9), max(ceil(log2(high) - 1e-9), floor(log2(low) + 1e-9) + 1)
        low, high = min(low, 2.0**first), max(high, 2.0**last)
    every = max(1, ceil((last - first) / 6))
    marks = [2.0**at for at in range(first, last + 1, every)]
    said = tuple((each, tokens(each) if axis.tokens else f"{each:g}") for each in marks)
    return Scaled(axis, low, high, said)


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
    """Days since 1970, with marks at midnight, or at hours where all is within few days."""
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
    """A time as days since 1970."""
    return datetime.fromisoformat(moment).timestamp() / _DAY


WIDTH, HEIGHT = 400, 250
TOP, BOTTOM, LEFT, RIGHT = 26, 40, 60, 20
LETTER, _GAP = 7.1, 14.0
"""How wide a letter is at most on average, and how far lines of text are apart."""
_SIZE = 3.2
_REACH = 0.5
"""How much of its value an interval may be, to be seen as a whole."""


@dataclass(frozen=True)
class Text:
    """Words at a place."""

    x: str
    y: str
    text: str


@dataclass(frozen=True)
class Mark:
    """A marker with its interval as one path, and what it says when it is pointed at."""

    path: str
    whisker: str
    about: str


@dataclass(frozen=True)
class DrawnSeries:
    """A series: `number` decides on its colour, dash and marker."""

    number: int
    line: str
    band: str
    marks: tuple[Mark, ...]
    label: Text | None
    leader: str


@dataclass(frozen=True)
class DrawnPane:
    """A pane. `grid` are its horizontal lines, `levels` those across it with their bands."""

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
    """Where the axes of a pane are."""

    x: Scaled
    y: Scaled
    right: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The place of a value."""
        return self.across(x), self.up(y)

    def across(self, x: float) -> float:
        """How far to the right a value is."""
        return LEFT + self.x.share(x) * (self.right - LEFT)

    def up(self, y: float) -> float:
        """How far down a value is."""
        return HEIGHT - BOTTOM - self.y.share(y) * (HEIGHT - BOTTOM - TOP)


def draw_pane(pane: Pane) -> DrawnPane:
    """A pane with everything at its place."""
    points = [point for series in pane.series for point in series.points]
    ends = [end for point in points for end in (point.y, *_visible_ends(point)) if end is not None]
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
        y_ticks=tuple(Text(place(LEFT - 6), place(frame.up(each) + 4), said) for each, said in frame.y.ticks),
        x_name=Text(place((LEFT + frame.right) / 2), place(HEIGHT - 6), pane.x.name),
        y_name=Text("4", "14", pane.y.name),
        levels=tuple(_level(level, frame) for level in pane.levels),
        series=tuple(_series(pane, frame)),
    )


def _visible_ends(point: Point) -> tuple[float | None, float | None]:
    """The ends of an interval, as far as they can be seen: of two values it is so wide that nothing else could be."""
    reach = _REACH * abs(point.y)
    low = None if point.low is None else max(point.low, point.y - reach)
    return low, None if point.high is None else min(point.high, point.y + reach)


def _labelled(pane: Pane) -> bool:
    return len(pane.series) > 1


def _x_ticks(frame: Frame) -> Iterator[Text]:
    """Those that do not run into the one before."""
    until = -1e9
    for each, said in frame.x.ticks:
        at, half = frame.across(each), len(said) * LETTER / 2
        if at - half > until + 4:
            yield Text(place(at), place(HEIGHT - BOTTOM + 16), said)
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
    """The area between the ends of the intervals, where all points have one."""
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
    """A circle, a square, a triangle, a diamond, a triangle on its head."""
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
    """Places at least so far apart, as near as may be to where they were, within bounds, and in their order."""
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
    """A coordinate: a tenth of a pixel is enough, and -0 is 0."""
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
    """Bars, one under the other."""

    title: str
    about: str
    width: int
    height: int
    y_name: Text
    bars: tuple[DrawnBar, ...]


def draw_bars(chart: Bars) -> DrawnBars:
    """Bars that begin at nothing, each under its name, with its value behind it."""
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
