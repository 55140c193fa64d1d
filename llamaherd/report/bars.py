"""Bars as rectangles and letters at their places. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.report.charts import Bars
from llamaherd.report.geometry import LETTER, WIDTH, Text, place

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
