"""Draw charts and cards with matplotlib, which only the extra `llamaherd[report]` installs, for pages and as files.

Everything is drawn in the colours of a scheme. In an SVG they become variables of CSS, so that one drawing is light or
dark as its reader's system is.
"""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from math import ceil, floor, log2
from typing import Any, Literal
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from llamaherd.measure.report.charts import (
    DARK,
    LIGHT,
    Axis,
    Bar,
    Bars,
    Card,
    Chart,
    ImageForm,
    Pane,
    Scheme,
    Series,
    tokens,
)
from llamaherd.text.terminal import shown

WIDTH, HEIGHT = 400, 250
"""Units of a pane: the pixels that it has on a page of a phone."""
_LEFT, _RIGHT, _TOP, _BOTTOM, _LEGEND, _NAMES = 60, 18, 30, 44, 17, 3
"""Room around axes, the height of a row of the legend, and its names in a row."""
_BAR, _NAME_LINE, _NAME_LETTERS, _WIDER = 21, 16, 54, 1.4
"""Heights of a bar and of a line of its name, the letters of such a line, and the room for values."""
_FONT = 12.0
_LINES = ("-", (0, (7, 3)), (0, (2, 3)), (0, (9, 3, 2, 3)), (0, (4, 2)))
_MARKERS = ("o", "s", "^", "D", "v")
_TICKS, _STEPS = 6, [1, 2, 2.5, 5, 10]
_DPI = 72
"""Dots of an inch, so that a point is a unit."""
_NO_DATES: dict[str, Any] = {"Date": None, "Creator": None, "Format": None, "Type": None}


@contextmanager
def settings(letters: Literal["path", "none"] = "path") -> Iterator[None]:
    """Set how to draw: letters of an SVG are paths, or `none`: text. Missing letters are boxes, without a warning."""
    chosen = rc_context(
        {
            "font.family": "DejaVu Sans",
            "font.size": _FONT,
            "text.parse_math": False,
            "axes.unicode_minus": False,
            "svg.hashsalt": "llamaherd",
            "svg.fonttype": letters,
        }
    )
    with chosen, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def draw_pane(axes: Axes, pane: Pane, scheme: Scheme) -> None:
    """Draw the levels and the series of a pane, with both axes."""
    _set_x(axes, pane)
    for number, level in enumerate(pane.levels):
        axes.axhline(level.value, color=scheme.soft, linewidth=1, linestyle=(0, (5, 3)), zorder=1.5)
        if level.low is not None and level.high is not None:
            axes.axhspan(level.low, level.high, color=scheme.series[number], alpha=0.16, linewidth=0)
    for number, series in enumerate(pane.series):
        _draw_series(axes, series, number, scheme)
    _set_y(axes, pane)
    axes.set_xlabel(shown(pane.x.name), color=scheme.soft, labelpad=4)
    axes.grid(axis="y", color=scheme.line, linewidth=0.7)
    _style(axes, scheme)


def _draw_series(axes: Axes, series: Series, number: int, scheme: Scheme) -> None:
    colour = scheme.series[number]
    across, up = [point.x for point in series.points], [point.y for point in series.points]
    ends = [point.ends for point in series.points]
    known = [each for each in ends if each is not None]
    if series.line and len(known) == len(ends) > 1:
        lows, highs = zip(*known, strict=True)
        axes.fill_between(across, lows, highs, color=colour, alpha=0.16, linewidth=0)
    elif known:
        at = [x for x, each in zip(across, ends, strict=True) if each is not None]
        axes.vlines(at, *zip(*known, strict=True), color=colour, linewidth=1.5)
    (drawn,) = axes.plot(
        across,
        up,
        color=colour,
        label=shown(series.name),
        linestyle=_LINES[number] if series.line else "none",
        linewidth=2,
        marker=_MARKERS[number] if series.marks else "none",
        markersize=6,
        markeredgewidth=0,
        clip_on=False,
    )
    drawn.set_gid(f"series-{number}")


def _set_x(axes: Axes, pane: Pane) -> None:
    values = [point.x for series in pane.series for point in series.points]
    low, high = min(values), max(values)
    if pane.x.scale == "log2":
        if high < 2 * low:  # less than an octave may have no power of two in it
            low, high = 2.0 ** floor(log2(low)), 2.0 ** (floor(log2(low)) + max(1, ceil(log2(high) - floor(log2(low)))))
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(LogLocator(base=2, numticks=_TICKS))
    elif pane.x.scale == "date":
        dates = AutoDateLocator(minticks=2, maxticks=_TICKS - 1)
        axes.xaxis.set_major_locator(dates)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(dates))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(_TICKS - 1, steps=_STEPS, integer=pane.x.whole))
        low = min(low, 0.0) if pane.x.zero else low
    if pane.x.scale != "date":
        axes.xaxis.set_major_formatter(FuncFormatter(_texts(pane.x)))
    axes.xaxis.set_minor_locator(NullLocator())
    room = 0.5 if high == low else 0.03 * (high - low) if pane.x.scale in ("linear", "date") else 0.0
    axes.set_xlim(low - room, high + room)


def _set_y(axes: Axes, pane: Pane) -> None:
    every = [end for series in pane.series for point in series.points for end in point.visible_ends]
    every += [end for level in pane.levels for end in (level.low, level.value, level.high) if end is not None]
    low, high = min(every), max(every)
    if pane.y.scale == "log10":
        axes.set_yscale("log")
        subs = tuple(range(1, 10)) if high < 5 * low else (1, 2, 5)
        axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=_TICKS + 2))
        axes.set_ylim(low / 1.1, high * 1.1)
    else:
        room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
        marks = MaxNLocator(_TICKS - 1, steps=_STEPS, integer=pane.y.whole)
        axes.yaxis.set_major_locator(marks)
        shown_marks = marks.tick_values(min(low, 0.0) if pane.y.zero else low - room, high)
        axes.set_ylim(min(shown_marks[0], low), max(shown_marks[-1], high))
    axes.yaxis.set_major_formatter(FuncFormatter(_texts(pane.y)))
    axes.yaxis.set_minor_locator(NullLocator())


def _texts(axis: Axis) -> Any:
    """Return the function that writes a mark of an axis."""

    def text(value: float, _: object) -> str:
        if axis.tokens:
            return tokens(value)
        return f"{value / 1e6:,.10g}M" if abs(value) >= 1e6 else f"{value:,.6g}"

    return text


def _style(axes: Axes, scheme: Scheme) -> None:
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
    axes.tick_params(length=0, labelcolor=scheme.ink, pad=5)
    axes.tick_params(axis="x", pad=8)
    axes.xaxis.get_offset_text().set_color(scheme.ink)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(scheme.soft)


def draw_bars(axes: Axes, bars: Bars, scheme: Scheme) -> None:
    """Draw bars that begin at 0, each below its name, with its value at its end."""
    most = _WIDER * max([each.value for each in bars.bars], default=1.0) or 1.0
    names = [_name_lines(each.name) for each in bars.bars]
    lines = max(map(len, names))
    for row, (each, name) in enumerate(zip(bars.bars, names, strict=True)):
        middle = (row + 1) * (lines * _NAME_LINE + _BAR) - _BAR / 2 - 4
        ink = scheme.soft if each.grey else scheme.ink
        for number, line in enumerate(reversed(name)):
            axes.text(0, middle - _BAR / 2 - number * _NAME_LINE, line, color=ink)
        axes.barh(middle, each.value, height=_BAR - 9, color=scheme.c0, alpha=0.4 if each.grey else 1)
        end = each.value
        if each.low is not None and each.high is not None:
            end = min(max(end, each.high), most)
            axes.plot([each.low, end], [middle, middle], color=scheme.ink, linewidth=1.5, marker="|", markersize=8)
        axes.text(end + most / 60, middle, shown(each.text), color=scheme.ink, va="center")
    axes.set_xlim(0, most)
    axes.set_ylim(len(bars.bars) * (lines * _NAME_LINE + _BAR), 0)
    axes.set_axis_off()


def _name_lines(name: str) -> list[str]:
    """Return the name of a bar on up to two lines."""
    return textwrap.wrap(shown(name), _NAME_LETTERS, max_lines=2, placeholder="…") or [""]


def _size(drawn: Pane | Bars) -> tuple[float, float]:
    """Return the height of a drawing and the room above its axes."""
    if isinstance(drawn, Bars):
        lines = max(len(_name_lines(each.name)) for each in drawn.bars)
        return 26.0 + (lines * _NAME_LINE + _BAR) * len(drawn.bars), 26.0
    rows = _legend_rows(drawn)
    return HEIGHT + rows * _LEGEND, _TOP + rows * _LEGEND


def _legend_rows(pane: Pane) -> int:
    """Return the rows of a pane's legend; a single series has none."""
    return ceil(len(pane.series) / _NAMES) if len(pane.series) > 1 else 0


def _draw(figure: Figure, drawn: Pane | Bars, scheme: Scheme, left: float, top: float, width: float) -> None:
    """Draw a pane with its title and legend, or bars, at a place in a figure."""
    whole, tall = (float(each) * _DPI for each in figure.get_size_inches())
    height, above = _size(drawn)
    sides = (4.0, 4.0, 0.0) if isinstance(drawn, Bars) else (_LEFT, _RIGHT, _BOTTOM)
    box = (left + sides[0], tall - top - height + sides[2], width - sides[0] - sides[1], height - above - sides[2])
    axes = figure.add_axes((box[0] / whole, box[1] / tall, box[2] / whole, box[3] / tall))
    unit = drawn.unit if isinstance(drawn, Bars) else drawn.y.name
    title = shown(", ".join(filter(None, [drawn.title, unit])))
    lines = textwrap.shorten(title, int(width / 7.2), placeholder="…")
    text = figure.text((left + 4) / whole, 1 - (top + 15) / tall, lines, color=scheme.ink, fontweight="bold")
    text.set_fontsize(_FONT + 1)
    if isinstance(drawn, Bars):
        draw_bars(axes, drawn, scheme)
        return
    draw_pane(axes, drawn, scheme)
    if len(drawn.series) > 1:
        place = (0.0, 1.0 + 2 / box[3])
        axes.legend(
            loc="lower left",
            bbox_to_anchor=place,
            ncols=ceil(len(drawn.series) / _legend_rows(drawn)),
            frameon=False,
            borderaxespad=0,
            borderpad=0,
            labelspacing=0.2,
            columnspacing=1.2,
            handlelength=2.2,
            handletextpad=0.5,
            labelcolor=scheme.ink,
        )


def page_svg(drawn: Pane | Bars, name: str) -> Markup:
    """Return a pane or bars as SVG for a page, with title and description. `name` begins its identifiers.

    ElementTree has escaped all texts.
    """
    height, _ = _size(drawn)
    to = io.BytesIO()
    with settings("none"):
        figure = Figure(figsize=(WIDTH / _DPI, height / _DPI), dpi=_DPI)
        figure.patch.set_visible(False)
        _draw(figure, drawn, LIGHT, 0, 0, WIDTH)
        figure.savefig(to, format="svg", metadata=_NO_DATES)
    return Markup(_for_page(to.getvalue(), drawn, name))


_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_FONTS = re.compile(r"font-family: [^;]*;? ?")
_NUMBER = re.compile(r"-?\d+\.\d+")
_SERIES = re.compile(r"series-(\d)")
_COLOUR = re.compile("|".join(asdict(LIGHT).values()))
_NAMES_OF = {colour: f"var(--{name})" for name, colour in asdict(LIGHT).items()}


def _for_page(data: bytes, drawn: Pane | Bars, name: str) -> str:
    """Return a drawing of matplotlib without what a page has once: identifiers, fonts, and colours as values."""
    root = ElementTree.fromstring(data)
    made = ElementTree.Element("svg", {"viewBox": root.get("viewBox", ""), "role": "img"})
    made.set("aria-labelledby", f"{name}-t {name}-d")
    ElementTree.SubElement(made, "title", {"id": f"{name}-t"}).text = shown(drawn.title)
    ElementTree.SubElement(made, "desc", {"id": f"{name}-d"}).text = shown(drawn.about)
    used = {each.get("id", ""): each for each in root.iter(f"{_SVG}path") if each.get("id")}
    series = drawn.series if isinstance(drawn, Pane) else ()
    made.extend(each for each in _parts(root, used, series) if each.get("style") != "fill: none")
    return ElementTree.tostring(made, encoding="unicode").replace(" />", "/>")


def _parts(
    group: ElementTree.Element, used: Mapping[str, ElementTree.Element], series: Sequence[Series]
) -> Iterator[ElementTree.Element]:
    """Yield all paths and texts of a group in their order."""
    for each in group.findall(f"{_SVG}g"):
        if found := _SERIES.fullmatch(each.get("id", "")):
            yield from _with_tooltips(each, used, series[int(found[1])])
        else:
            yield from _shapes(each, used)
            yield from _parts(each, used, series)


def _with_tooltips(
    series: ElementTree.Element, used: Mapping[str, ElementTree.Element], drawn: Series
) -> list[ElementTree.Element]:
    """Return the line and the markers of a series; a marker has its value as tooltip."""
    line = list(_shapes(series, used))
    markers = [each for group in series.iter(f"{_SVG}g") if group is not series for each in _shapes(group, used)]
    for each in line:
        each.set("class", "l")
    for each, point in zip(markers, drawn.points, strict=False):
        each.set("class", "p")
        if point.about:
            ElementTree.SubElement(each, "title").text = shown(point.about)
        line.append(each)
    return line


def _shapes(group: ElementTree.Element, used: Mapping[str, ElementTree.Element]) -> Iterator[ElementTree.Element]:
    """Yield the paths and texts of a group itself. A shape that is used in several places is a path at each of them."""
    for each in group:
        style = _COLOUR.sub(lambda found: _NAMES_OF[found[0]], _FONTS.sub("", each.get("style", "")))
        given = {"style": style} if style else {}
        if each.tag == f"{_SVG}path":
            yield ElementTree.Element("path", {"d": _short(each.get("d", "")), **given})
        elif each.tag == f"{_SVG}use":
            at = f"translate({_short(each.get('x', '0'))} {_short(each.get('y', '0'))})"
            shape = used[each.get(_LINK, "")[1:]]
            yield ElementTree.Element("path", {"d": _short(shape.get("d", "")), "transform": at, **given})
        elif each.tag == f"{_SVG}text":
            text = ElementTree.Element(
                "text", {"x": _short(each.get("x", "")), "y": _short(each.get("y", "")), **given}
            )
            text.text = each.text
            yield text


def _short(text: str) -> str:
    """Return a path or a place, rounded to a tenth of a unit."""
    rounded = _NUMBER.sub(lambda found: f"{round(float(found[0]), 1) + 0.0:g}", text)
    return " ".join(rounded.split())


_COLUMNS, _GAP, _HEAD, _FOOT, _MARGIN = 2, 24, 64, 26, 20
"""Of a picture: panes in a row, the room between them, above, below, and around."""


def chart_image(chart: Chart, heading: str, form: ImageForm, scheme: Scheme) -> bytes:
    """Return a chart with all its panes as a picture. `heading`: what was measured."""
    drawn: list[Pane | Bars] = [*chart.panes, *chart.bars]
    columns = min(_COLUMNS, len(drawn))
    rows = [drawn[at : at + columns] for at in range(0, len(drawn), columns)]
    heights = [max(_size(each)[0] for each in row) for row in rows]
    width = 2 * _MARGIN + columns * WIDTH + (columns - 1) * _GAP
    letters = int((width - 2 * _MARGIN) / 6.6)
    caption = textwrap.wrap(shown(chart.caption), letters)
    height = _HEAD + sum(heights) + _GAP * (len(rows) - 1) + _FOOT + 15 * len(caption)
    with settings():
        figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, facecolor=scheme.paper)

        def write(text: str, top: float, size: float, colour: str, weight: str = "normal") -> None:
            figure.text(_MARGIN / width, 1 - top / height, shown(text), fontsize=size, color=colour, fontweight=weight)

        write(textwrap.shorten(chart.title, int(letters * 0.7), placeholder="…"), 26, 16, scheme.ink, "bold")
        write(textwrap.shorten(heading, letters, placeholder="…"), 46, 11, scheme.soft)
        top = float(_HEAD)
        for row, tall in zip(rows, heights, strict=True):
            for column, each in enumerate(row):
                _draw(figure, each, scheme, _MARGIN + column * (WIDTH + _GAP), top, WIDTH)
            top += tall + _GAP
        for number, line in enumerate(caption):
            write(line, top + 15 * number, 11, scheme.soft)
        return image_bytes(figure, form, scheme, 2 * _DPI)


def image_bytes(figure: Figure, form: ImageForm, scheme: Scheme, dpi: int) -> bytes:
    """Return a figure as a picture: a PNG in its scheme, or an SVG for both schemes."""
    to = io.BytesIO()
    if form == "png":
        figure.savefig(to, format="png", dpi=dpi, metadata={"Software": None})
        return to.getvalue()
    figure.savefig(to, format="svg", metadata=_NO_DATES)
    return _adaptive(to.getvalue().decode(), scheme).encode()


def _adaptive(svg: str, scheme: Scheme) -> str:
    """Return an SVG with its colours as variables, which are those of the reader's scheme."""
    names = {colour: f"var(--{name})" for name, colour in asdict(scheme).items()}
    text = re.sub("|".join(names), lambda found: names[found[0]], svg)
    style = f"<style>svg {{ {LIGHT.css} }} @media (prefers-color-scheme: dark) {{ svg {{ {DARK.css} }} }}</style>"
    return re.sub(r"(<svg [^>]*>)", lambda found: found[1] + style, text, count=1)


CARD_WIDTH, CARD_HEIGHT = 1200, 630
"""Pixels of a card: the size that pages show of a link."""
_CARD_DPI = 100
_CARD_LEFT, _ERRORS, _MIDDLE = 0.05, 0.3, 0.5
"""Where columns begin, as shares of the width."""
_SMALL_LINE = 132
"""Letters of the small print in a line."""


def draw_card(card: Card, form: ImageForm, scheme: Scheme) -> bytes:
    """Return the card as a picture of 1200 by 630 pixels. An SVG is light or dark as its reader's system is."""
    with settings():
        figure = Figure(
            figsize=(CARD_WIDTH / _CARD_DPI, CARD_HEIGHT / _CARD_DPI), dpi=_CARD_DPI, facecolor=scheme.paper
        )
        _write_texts(figure, card, scheme)
        _write_figures(figure, card, scheme)
        axes = figure.add_axes((0.56, 0.23, 0.39, 0.47))
        if card.curve:
            draw_pane(axes, card.curve, scheme)
            title = f"{card.curve.title}, {card.curve.y.name}"
        else:
            _draw_bars(axes, card.bars, scheme)
            title = "Decode by kind of text, t/s"
        axes.set_title(title, loc="left", fontsize=13, color=scheme.soft)
        return image_bytes(figure, form, scheme, _CARD_DPI)


def _write_texts(figure: Figure, card: Card, scheme: Scheme) -> None:
    ink, soft = scheme.ink, scheme.soft
    _write(figure, 0.9, card.title, ink, size=27, weight="bold")
    _write(figure, 0.835, card.hardware, ink, size=14.5)
    _write(figure, 0.785, card.software, soft, size=14.5)
    small = textwrap.wrap(shown(card.doubt), _SMALL_LINE)
    for number, line in enumerate([*small[:1], " ".join(small[1:])]):
        _write(figure, 0.095 - 0.033 * number, line, soft, size=10.5)
    _write(figure, 0.028, card.origin, soft, size=10.5)


def _write_figures(figure: Figure, card: Card, scheme: Scheme) -> None:
    ink, soft = scheme.ink, scheme.soft
    for number, each in enumerate(card.figures):
        top = 0.665 - 0.185 * number
        _write(figure, top, each.name, soft, size=13, right=_MIDDLE)
        _write(figure, top - 0.085, each.value, ink, size=33, weight="bold", right=_MIDDLE)
        _write(figure, top - 0.06, each.error, ink, size=14, left=_ERRORS, right=_MIDDLE)
        _write(figure, top - 0.097, each.condition, soft, size=11, left=_ERRORS, right=_MIDDLE)


def _write(
    figure: Figure,
    height: float,
    text: str,
    colour: str,
    *,
    size: float,
    left: float = _CARD_LEFT,
    right: float = 1 - _CARD_LEFT,
    weight: str = "normal",
) -> None:
    """Write a text on one line, cut to the room that it has."""
    text = shown(text)
    written = figure.text(left, height, text, fontsize=size, color=colour, fontweight=weight)
    while text and written.get_window_extent().x1 > right * CARD_WIDTH:
        text = text[: len(text) * 19 // 20]
        written.set_text(f"{text.rstrip()}…")


def _draw_bars(axes: Axes, bars: tuple[Bar, ...], scheme: Scheme) -> None:
    """Draw the decode speed by kind of text: a bar with its name before it and its value behind it."""
    most = 1.3 * max([1.0, *(bar.value for bar in bars), *(bar.high for bar in bars if bar.high is not None)])
    axes.barh([bar.name for bar in bars], [bar.value for bar in bars], color=scheme.c0, height=0.55)
    for row, bar in enumerate(bars):
        if bar.low is not None and bar.high is not None:
            axes.plot([bar.low, bar.high], [row, row], color=scheme.ink, linewidth=1.6)
        axes.text(max(bar.value, bar.high or 0.0) + most / 60, row, bar.text, color=scheme.ink, va="center")
    axes.invert_yaxis()
    axes.set_xlim(0, most)
    axes.set_facecolor("none")
    axes.set_xticks([])
    axes.tick_params(length=0, labelcolor=scheme.ink)
    axes.spines[:].set_visible(False)
