"""Draw a card with matplotlib, which only the extra `llamaherd[report]` installs."""

from __future__ import annotations

import textwrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from llamaherd.measure.report.card import Card
from llamaherd.measure.report.charts import Bar, ImageForm, Scheme
from llamaherd.measure.report.drawing import draw_pane, image_bytes, settings
from llamaherd.text.terminal import shown

WIDTH, HEIGHT = 1200, 630
"""Pixels of a card: the size that pages show of a link."""
_DPI = 100
_LEFT, _ERRORS, _MIDDLE = 0.05, 0.3, 0.5
"""Where columns begin, as shares of the width."""
_SMALL_LINE = 132
"""Letters of the small print in a line."""


def draw_card(card: Card, form: ImageForm, scheme: Scheme) -> bytes:
    """Return the card as a picture of 1200 by 630 pixels. An SVG is light or dark as its reader's system is."""
    with settings():
        figure = Figure(figsize=(WIDTH / _DPI, HEIGHT / _DPI), dpi=_DPI, facecolor=scheme.paper)
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
        return image_bytes(figure, form, scheme, _DPI)


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
    left: float = _LEFT,
    right: float = 1 - _LEFT,
    weight: str = "normal",
) -> None:
    """Write a text on one line, cut to the room that it has."""
    text = shown(text)
    written = figure.text(left, height, text, fontsize=size, color=colour, fontweight=weight)
    while text and written.get_window_extent().x1 > right * WIDTH:
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
