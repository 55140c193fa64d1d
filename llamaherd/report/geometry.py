"""Charts as lines and letters at their places: all that a template needs to write SVG. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llamaherd.report.charts import Level, Pane, Point, Series
from llamaherd.report.ticks import Scaled, scaled

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
class Drawn:
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


def draw(pane: Pane) -> Drawn:
    """A pane with everything at its place."""
    points = [point for series in pane.series for point in series.points]
    ends = [end for point in points for end in (point.y, *_seen(point)) if end is not None]
    ends += [end for level in pane.levels for end in (level.low, level.value, level.high) if end is not None]
    names = [series.name for series in pane.series] if _labelled(pane) else []
    room = max((len(each) * LETTER + 12 for each in names), default=0)
    frame = Frame(scaled(pane.x, [point.x for point in points]), scaled(pane.y, ends), WIDTH - RIGHT - room)
    return Drawn(
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


def _seen(point: Point) -> tuple[float | None, float | None]:
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
