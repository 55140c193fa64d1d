"""Charts as matplotlib draws them, and the arithmetic of laws."""

from __future__ import annotations

import io
import re
from dataclasses import asdict, replace
from math import exp
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.image import imread

from llamaherd.measure.report.charts import (
    DARK,
    LIGHT,
    Axis,
    Bar,
    Bars,
    Chart,
    Level,
    Pane,
    Point,
    Scale,
    Series,
    days,
    rounded,
    tokens,
)
from llamaherd.measure.report.curves import bends, fit_power_law
from llamaherd.measure.report.drawing import HEIGHT, WIDTH, chart_image, page_svg

FINITE = st.floats(1e-3, 1e9)
HOSTILE = "$\\frac{1}{0}$ <script>alert(1)</script>\x1b[31m & \u202e"


def pane(axis: Axis, values: list[float], *, up: Axis | None = None) -> Pane:
    points = tuple(Point(x, (1 + number) / 1000, about=f"at {x:g}") for number, x in enumerate(values))
    return Pane("Speed", "t/s over x", axis, up or Axis("t/s", zero=True), (Series("one", points),))


def drawn(what: Pane | Bars) -> ElementTree.Element:
    return ElementTree.fromstring(page_svg(what, "a-1"))


def texts(what: Pane | Bars) -> list[str]:
    return [each.text or "" for each in drawn(what).iter("text")]


def places(what: Pane) -> list[tuple[float, float]]:
    """Return where the markers are."""
    found = [re.match(r"translate\((\S+) (\S+)\)", each.get("transform", "")) for each in marked(drawn(what), "p")]
    return [(float(each[1]), float(each[2])) for each in found if each]


def marked(root: ElementTree.Element, what: str) -> list[ElementTree.Element]:
    return [each for each in root.iter("path") if each.get("class") == what]


@pytest.mark.parametrize(
    ("axis", "values", "shown"),
    [
        (Axis(""), [33.6, 46.3], ["35", "40", "45"]),
        (Axis("", "log2", tokens=True), [4096, 202_752], ["4K", "8K", "16K", "32K", "64K", "128K"]),
        (Axis("", "log2"), [1, 2, 4, 8], ["1", "2", "4", "8"]),
        (Axis("", "log2"), [5, 6], ["4", "8"]),
        (Axis("", whole=True), [1, 12], ["5", "10"]),
        (Axis(""), [1e6, 4.5e6], ["1M", "2M", "3M", "4M"]),
        (Axis("", "date"), [days("2026-03-01T10:00:00Z"), days("2026-03-04T10:00:00Z")], ["02", "03", "04"]),
    ],
)
def test_an_axis_has_round_marks(axis: Axis, values: list[float], shown: list[str]) -> None:
    marks = [each for each in texts(pane(axis, values)) if not each.startswith("0.00")]
    assert [each for each in marks if each in shown] == shown


@settings(deadline=None)
@given(st.lists(FINITE, min_size=1, max_size=5), st.sampled_from(["linear", "log2", "date"]), st.booleans())
def test_every_value_is_within_the_axes(values: list[float], scale: Scale, zero: bool) -> None:
    if scale == "date":
        values = [each % 40_000 for each in values]
    found = places(pane(Axis("", scale), sorted(values), up=Axis("", zero=zero)))
    assert len(found) == len(values)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in found)
    assert [x for x, _ in found] == sorted(x for x, _ in found)
    assert [y for _, y in found] == sorted((y for _, y in found), reverse=True)


def test_a_pane_has_a_title_a_description_and_a_tooltip_for_each_value() -> None:
    root = drawn(pane(Axis("x", "log2"), [1, 2, 4]))
    assert (root.get("role"), root.get("aria-labelledby")) == ("img", "a-1-t a-1-d")
    assert [(each.tag, each.text) for each in root[:2]] == [("title", "Speed"), ("desc", "t/s over x")]
    assert [each.findtext("title") for each in marked(root, "p")] == ["at 1", "at 2", "at 4"]
    assert len(marked(root, "l")) == 1
    assert {"Speed, t/s", "x"} <= set(texts(pane(Axis("x", "log2"), [1, 2, 4])))


def test_series_differ_in_colour_dash_and_marker_and_are_named() -> None:
    series = tuple(Series(f"series {at}", (Point(1, at), Point(2, at + 1))) for at in range(5))
    every = Pane("a", "b", Axis("x"), Axis("y"), series)
    root = drawn(every)
    lines = [each.get("style", "") for each in marked(root, "l")]
    assert [f"var(--c{at})" in line for at, line in enumerate(lines)] == [True] * 5
    assert len({re.sub(r"stroke: [^;]*", "", line) for line in lines}) == 5
    assert len({each.get("d") for each in marked(root, "p")}) == 5
    assert {each.name for each in series} <= set(texts(every))


def test_intervals_are_a_band_or_lines_and_do_not_hide_the_values() -> None:
    points = tuple(Point(x, 100.0, 99.0, 1e9) for x in (1.0, 2.0))
    wide = Pane("a", "b", Axis("x"), Axis("y", zero=True), (Series("one", points),), (Level(90.0, 80.0, 95.0),))
    assert max(float(each.replace(",", "")) for each in texts(wide) if re.fullmatch(r"[\d,.]+", each)) < 1000
    assert "fill-opacity: 0.16" in page_svg(wide, "a")
    alone = replace(wide, series=(Series("one", points, line=False),), levels=())
    assert "fill-opacity" not in page_svg(alone, "a")
    assert not marked(drawn(alone), "l")


def test_bars_begin_at_zero_and_are_as_long_as_their_values() -> None:
    bars = Bars(
        "a", "b", "t/s", (Bar("x", 200.0, 190.0, 210.0, "200 ± 10"), Bar("long " * 30, 100.0, None, None, "100"))
    )
    root = drawn(bars)
    filled = [each.get("d", "") for each in root.iter("path") if "fill: var(--c0)" in each.get("style", "")]
    ends = [sorted(map(float, re.findall(r"[ML] (\S+)", each))) for each in filled]
    assert ends[0][0] == ends[1][0]
    whole, half = (each[-1] - each[0] for each in ends)
    assert half == pytest.approx(whole / 2, abs=0.2)
    found = texts(bars)
    assert {"x", "200 ± 10", "100", "a, t/s"} <= set(found)
    assert any(each.endswith("…") for each in found)


def test_a_drawing_for_a_page_has_the_colours_of_the_page_and_no_identifiers() -> None:
    text = page_svg(pane(Axis("x"), [1, 2]), "a")
    assert not re.search(r"#[0-9a-f]{3,6}\b|font-family|<use|<defs|clip-path", text)
    assert re.findall(r'\bid="([^"]*)"', text) == ["a-t", "a-d"]
    assert set(re.findall(r"var\(--(\w+)\)", text)) <= set(asdict(LIGHT))
    assert text == page_svg(pane(Axis("x"), [1, 2]), "a")


def test_a_hostile_name_is_text() -> None:
    bad = replace(pane(Axis(HOSTILE), [1, 2]), title=HOSTILE, about=HOSTILE)
    bad = replace(bad, series=(replace(bad.series[0], name=HOSTILE), bad.series[0]))
    bars = Bars(HOSTILE, HOSTILE, HOSTILE, (Bar(HOSTILE, 1.0, None, None, HOSTILE),))
    for what in (bad, bars):
        text = page_svg(what, "a")
        assert "<script" not in text
        assert not set(text) & {"\x1b", "\u202e"}
        assert any("frac" in each for each in texts(what)), "it is no formula"
    chart = Chart(HOSTILE, HOSTILE, (bad,), (bars,))
    ElementTree.fromstring(chart_image(chart, HOSTILE, "svg", LIGHT))


def test_a_chart_is_a_picture_in_both_schemes() -> None:
    chart = Chart("Decode", "Measured today.", (pane(Axis("x"), [1, 2]),) * 3)
    for scheme in (LIGHT, DARK):
        pixels = imread(io.BytesIO(chart_image(chart, "duo/chat", "png", scheme)))
        paper = tuple(int(scheme.paper[at : at + 2], 16) for at in (1, 3, 5))
        for edge in (pixels[:8], pixels[-8:], pixels[:, :8], pixels[:, -8:]):
            assert {tuple(round(255 * each) for each in pixel[:3]) for row in edge for pixel in row} == {paper}
        svg = chart_image(chart, "duo/chat", "svg", scheme).decode()
        assert svg == chart_image(chart, "duo/chat", "svg", scheme).decode()
        ElementTree.fromstring(svg)
        rest = svg.replace(LIGHT.css, "").replace(DARK.css, "")
        assert len(rest) == len(svg) - len(LIGHT.css) - len(DARK.css)
        assert "prefers-color-scheme: dark" in rest
        assert not re.search(r": #[0-9a-f]{6}", rest)


def test_a_law_is_found_again_with_its_error() -> None:
    places = [4096.0 * 2**at for at in range(7)]
    exact = fit_power_law([(x, 90 * x**-0.1) for x in places])
    assert exact
    assert exact.power == pytest.approx(-0.1)
    assert exact.factor == pytest.approx(90)
    assert exact.error < 1e-6
    noisy = fit_power_law([(x, 90 * x**-0.1 * exp((-1) ** at * 0.02)) for at, x in enumerate(places)])
    assert noisy
    assert abs(noisy.power + 0.1) < noisy.error < 0.05
    assert not bends(noisy)
    assert max(abs(left) for _, left in noisy.left) == pytest.approx(0.02, rel=0.3)


def test_a_curve_is_no_law_and_three_points_are_none() -> None:
    """Time of a token that grows with what is in the context bends on logarithms."""
    curve = fit_power_law([(4096.0 * 2**at, 1000 / (20 + 4096.0 * 2**at / 20_000)) for at in range(7)])
    assert curve
    assert bends(curve)
    assert fit_power_law([(1.0, 1.0), (2.0, 2.0), (4.0, 3.0)]) is None
    assert fit_power_law([(1.0, 1.0)] * 9) is None


def test_figures_have_four_digits() -> None:
    assert [rounded(each) for each in (0.0, 0.01234, 1.2345, 46.3, 249.3, 14690.0)] == [
        *("0.000", "0.012", "1.234", "46.30", "249.3", "14,690"),
    ]
    assert [tokens(each) for each in (512, 4096, 202_752, 1 << 20)] == ["512", "4K", "198K", "1M"]
