"""Axes, places and laws: the arithmetic of charts."""

from __future__ import annotations

from itertools import pairwise
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.measure.report.charts import (
    Axis,
    Bar,
    Bars,
    Pane,
    Point,
    Scale,
    Series,
    days,
    draw_bars,
    draw_pane,
    nice_step,
    scaled,
    spread,
)
from llamaherd.measure.report.curves import bends, fit_power_law
from llamaherd.measure.report.tables import rounded, tokens

FINITE = st.floats(1e-3, 1e9)


@pytest.mark.parametrize(
    ("axis", "values", "said"),
    [
        (Axis("", zero=True), [33.6, 46.3], ["0", "10", "20", "30", "40", "50"]),
        (Axis(""), [-6.7, 5.8], ["-7.5", "-5.0", "-2.5", "0.0", "2.5", "5.0", "7.5"]),
        (Axis(""), [0.991, 0.994], ["0.991", "0.992", "0.993", "0.994"]),
        (Axis("", "log2", tokens=True), [4096, 202_752], ["4K", "8K", "16K", "32K", "64K", "128K"]),
        (Axis("", "log2"), [1, 2, 4, 8], ["1", "2", "4", "8"]),
        (Axis("", "log10"), [33.6, 46.3], ["30", "40", "50"]),
        (Axis("", "log10"), [869, 14_690], ["500", "1,000", "2,000", "5,000", "10,000", "20,000"]),
        (Axis("", "log10"), [3, 900_000], ["1", "10", "100", "1,000", "10,000", "100,000", "1,000,000"]),
        (Axis("", whole=True), [1, 12], ["0", "3", "6", "9", "12"]),
        (Axis(""), [1e6, 4.5e6], ["1M", "2M", "3M", "4M", "5M"]),
        (
            Axis("", "date"),
            [days("2026-03-01T21:50:00Z"), days("2026-03-02T01:10:00Z")],
            ["22:00", "23:00", "02 Mar", "01:00"],
        ),
        (Axis("", "date"), [days("2026-03-01T10:00:00Z"), days("2026-03-04T10:00:00Z")], None),
    ],
)
def test_an_axis_has_the_marks_that_people_would_have_chosen(axis: Axis, values: list[float], said: list[str]) -> None:
    found = [text for _, text in scaled(axis, values).ticks]
    assert found == (said or ["02 Mar", "03 Mar", "04 Mar"])


@given(st.lists(FINITE, min_size=1, max_size=20), st.sampled_from(["linear", "log2", "log10", "date"]), st.booleans())
def test_every_value_is_on_its_axis(values: list[float], scale: Scale, zero: bool) -> None:
    if scale == "date":
        values = [each % 40_000 for each in values]
    axis = scaled(Axis("", scale, zero=zero), values)
    shares = [axis.share(each) for each in sorted(values)]
    assert all(0 <= each <= 1 for each in shares)
    assert shares == sorted(shares)
    assert 1 <= len(axis.ticks) <= 20
    assert axis.low <= min(values) * (1 + 1e-6)
    assert axis.high >= max(values) * (1 - 1e-6)


def test_steps_are_round() -> None:
    assert [nice_step(each) for each in (0.7, 1.0, 1.3, 2.2, 3.0, 7.0)] == [1.0, 1.0, 2.0, 2.5, 5.0, 10.0]


@given(st.lists(st.floats(0, 200), min_size=1, max_size=9))
def test_labels_keep_their_distance_their_order_and_their_bounds(places: list[float]) -> None:
    found = spread(places, 14, 0, 200)
    order = sorted(range(len(places)), key=lambda at: (places[at], at))
    in_order = [found[at] for at in order]
    assert all(b - a >= 14 - 1e-6 for a, b in pairwise(in_order))
    assert all(-1e-6 <= each <= 200 + 1e-6 for each in found)


def test_labels_that_have_room_stay_where_they_are() -> None:
    assert spread([100, 20, 60], 14, 0, 200) == [100, 20, 60]
    assert spread([100, 100], 14, 0, 200) == [93, 107]
    assert spread([199, 199], 14, 0, 200) == [186, 200]


def test_a_pane_draws_every_point_and_a_band_where_all_are_known() -> None:
    points = tuple(Point(x, 2 * x, x, 3 * x, f"at {x}") for x in (1.0, 2.0, 4.0))
    pane = Pane("a", "b", Axis("x", "log2"), Axis("y", zero=True), (Series("one", points), Series("two", points[:1])))
    drawn = draw_pane(pane)
    first, second = drawn.series
    assert [mark.about for mark in first.marks] == ["at 1.0", "at 2.0", "at 4.0"]
    assert first.line.count("L") == 2
    assert first.band.endswith("z")
    assert (second.line, second.band) == ("", "")
    assert [each.label.text for each in drawn.series if each.label] == ["one", "two"]


def test_bars_begin_at_nothing_and_are_as_long_as_what_they_say() -> None:
    drawn = draw_bars(Bars("a", "b", "t/s", (Bar("x", 200.0, 190.0, 210.0, "200"), Bar("y", 100.0, None, None, "100"))))
    begins, ends = zip(*(each.bar.removeprefix("M").split("H")[:2] for each in drawn.bars), strict=True)
    assert {each.split(" ")[0] for each in begins} == {"8"}
    whole, half = (float(each.split("v")[0]) - 8 for each in ends)
    assert half == pytest.approx(whole / 2, abs=0.1)


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
