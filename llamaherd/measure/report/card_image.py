"""Draw a card as PNG or SVG, with matplotlib, which only the extra `llamaherd[card]` installs."""

from __future__ import annotations

import io
import textwrap
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.report.card import Card
from llamaherd.measure.report.charts import Bar, Pane, Scaled, scaled, visible_ends
from llamaherd.text.terminal import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ImageForm = Literal["png", "svg"]
_ENDINGS: dict[str, ImageForm] = {".png": "png", ".svg": "svg"}
WIDTH, HEIGHT = 1200, 630
"""Pixels of a card: the size that pages show of a link."""
_DPI = 100
_PAPER, _INK, _FAINT, _LINE = "#f6f8fa", "#1f2328", "#59636e", "#0969da"
_LEFT, _ERRORS, _MIDDLE = 0.05, 0.3, 0.5
"""Where columns begin, as shares of the width."""
_SMALL_LINE = 132
"""Letters of the small print in a line."""


def card_form(output: Path | None) -> ImageForm:
    """Return the form of a picture, by the name of its file. Raise UserError for any other name."""
    form = _ENDINGS.get(output.suffix.lower()) if output else None
    if form is None:
        what = f"{output} is no picture's name" if output else "a card is written to a file"
        raise UserError(what, "name a file with .png or .svg, such as `-o card.png`")
    return form


def draw_card(card: Card, form: ImageForm) -> bytes:
    """Return the card as a picture of 1200 by 630 pixels. Raise UserError if matplotlib is not installed."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        why = "a card is drawn by matplotlib, which is not installed"
        raise UserError(why, "install it: `pip install 'llamaherd[card]'`") from None
    with (
        rc_context({"font.family": "DejaVu Sans", "svg.hashsalt": "llamaherd", "axes.unicode_minus": False}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a box stands for the letter
        figure = Figure(figsize=(WIDTH / _DPI, HEIGHT / _DPI), dpi=_DPI, facecolor=_PAPER)
        _write_texts(figure, card)
        _write_figures(figure, card)
        axes = figure.add_axes((0.56, 0.2, 0.39, 0.5), facecolor=_PAPER)
        if card.curve:
            _draw_curve(axes, card.curve)
        else:
            _draw_bars(axes, card.bars)
        to = io.BytesIO()
        metadata: dict[str, Any] = {"Date": None} if form == "svg" else {"Software": None}
        figure.savefig(to, format=form, metadata=metadata)
    return to.getvalue()


def _write_texts(figure: Figure, card: Card) -> None:
    _write(figure, 0.9, card.title, size=27, weight="bold")
    _write(figure, 0.835, card.hardware, size=14.5)
    _write(figure, 0.785, card.software, size=14.5, colour=_FAINT)
    small = textwrap.wrap(shown(card.doubt), _SMALL_LINE)
    for number, line in enumerate([*small[:1], " ".join(small[1:])]):
        _write(figure, 0.095 - 0.033 * number, line, size=10.5, colour=_FAINT)
    _write(figure, 0.028, card.origin, size=10.5, colour=_FAINT)


def _write_figures(figure: Figure, card: Card) -> None:
    for number, each in enumerate(card.figures):
        top = 0.665 - 0.185 * number
        _write(figure, top, each.name, size=13, colour=_FAINT, right=_MIDDLE)
        _write(figure, top - 0.085, each.value, size=33, weight="bold", right=_MIDDLE)
        _write(figure, top - 0.06, each.error, size=14, left=_ERRORS, right=_MIDDLE)
        _write(figure, top - 0.097, each.condition, size=11, colour=_FAINT, left=_ERRORS, right=_MIDDLE)


def _write(
    figure: Figure,
    height: float,
    text: str,
    *,
    size: float,
    left: float = _LEFT,
    right: float = 1 - _LEFT,
    colour: str = _INK,
    weight: str = "normal",
) -> None:
    """Write a text on one line, cut to the room that it has. Its `$` begins no formula."""
    text = shown(text)
    written = figure.text(left, height, text, fontsize=size, color=colour, fontweight=weight, parse_math=False)
    while text and written.get_window_extent().x1 > right * WIDTH:
        text = text[: len(text) * 19 // 20]
        written.set_text(f"{text.rstrip()}…")


def _draw_curve(axes: Axes, pane: Pane) -> None:
    """Draw the first series of a pane, with the band of its intervals."""
    points = pane.series[0].points
    across = scaled(pane.x, [point.x for point in points])
    ends = [end for point in points for end in (point.y, *visible_ends(point)) if end is not None]
    up = scaled(pane.y, ends)
    at = [point.x for point in points]
    if pane.x.scale == "log2":
        axes.set_xscale("log", base=2)
    if all(point.low is not None and point.high is not None for point in points):
        low, high = zip(*map(visible_ends, points), strict=True)
        axes.fill_between(at, low, high, color=_LINE, alpha=0.18, linewidth=0)
    axes.plot(at, [point.y for point in points], color=_LINE, linewidth=2.4, marker="o", markersize=6, clip_on=False)
    _set_axis(axes, across, up)
    axes.set_title(f"{pane.title}, {pane.y.name}", loc="left", fontsize=13, color=_FAINT)
    axes.set_xlabel(pane.x.name, fontsize=11, color=_FAINT)


def _set_axis(axes: Axes, across: Scaled, up: Scaled) -> None:
    """Set the marks of both axes to those of the report."""
    axes.set_xlim(across.low, across.high)
    axes.set_ylim(up.low, up.high)
    axes.set_xticks([value for value, _ in across.ticks], [label for _, label in across.ticks])
    axes.set_yticks([value for value, _ in up.ticks], [label for _, label in up.ticks])
    axes.minorticks_off()
    axes.grid(axis="y", color="#d1d9e0", linewidth=0.8)
    _style(axes)


def _draw_bars(axes: Axes, bars: tuple[Bar, ...]) -> None:
    """Draw the decode speed by kind of text."""
    names = [bar.name for bar in bars]
    values = [bar.value for bar in bars]
    axes.barh(names, values, color=_LINE, height=0.55)
    for row, bar in enumerate(bars):
        if bar.low is not None and bar.high is not None:
            axes.plot([bar.low, bar.high], [row, row], color=_INK, linewidth=1.6)
        axes.text(0, row, f"  {bar.text}", fontsize=11, color=_PAPER, va="center", parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(0, max([1.0, *values, *(bar.high for bar in bars if bar.high is not None)]) * 1.05)
    axes.set_title("Decode by kind of text, t/s", loc="left", fontsize=13, color=_FAINT)
    _style(axes)


def _style(axes: Axes) -> None:
    axes.tick_params(colors=_FAINT, labelsize=11, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#d1d9e0")
