"""Readings over time: laws of energy, of counters that begin anew, and of two clocks."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.measure.meter.usage import (
    Clocks,
    Point,
    Window,
    counter_rise,
    integral,
    longest_gap,
    match_clocks,
    time_mean,
    unwrapped,
    value_at,
)

watts = st.floats(0, 5000)
steps = st.floats(0.01, 5)


@st.composite
def readings(draw: st.DrawFn, least: int = 1) -> tuple[Point, ...]:
    """Power at uneven times."""
    times = accumulate(draw(st.lists(steps, min_size=least, max_size=30)), initial=draw(st.floats(0, 1e5)))
    return tuple(Point(at, draw(watts)) for at in list(times)[1:])


@st.composite
def cuts(draw: st.DrawFn, points: tuple[Point, ...]) -> tuple[float, float, float]:
    """Three times in and around some readings, in order."""
    first, last = points[0].at - 1, points[-1].at + 1
    one, two, three = sorted(draw(st.floats(first, last)) for _ in range(3))
    return one, two, three


@given(st.data(), watts)
def test_constant_power_is_power_by_time(data: st.DataObject, power: float) -> None:
    points = tuple(Point(at, power) for at, _ in data.draw(readings()))
    begin, _, end = data.draw(cuts(points))
    assert integral(points, Window(begin, end)) == pytest.approx(power * (end - begin), rel=1e-9, abs=1e-6)


@given(st.data())
def test_windows_add_up(data: st.DataObject) -> None:
    points = data.draw(readings())
    begin, middle, end = data.draw(cuts(points))
    whole = integral(points, Window(begin, end))
    parts = [integral(points, Window(begin, middle)), integral(points, Window(middle, end))]
    assert whole == pytest.approx(sum(each or 0 for each in parts), rel=1e-6, abs=1e-3)


@given(st.data())
def test_a_mean_lies_between_the_least_and_the_most(data: st.DataObject) -> None:
    points = data.draw(readings())
    begin, _, end = data.draw(cuts(points))
    told = time_mean(points, Window(begin, end + 0.1))
    assert told is not None
    values = [point.value for point in points]
    assert min(values) - 1e-3 <= told <= max(values) + 1e-3


def test_a_ramp_is_the_area_below_it() -> None:
    ramp = (Point(0, 0), Point(10, 100))
    assert integral(ramp, Window(0, 10)) == 500
    assert integral(ramp, Window(2, 4)) == 60
    assert integral((), Window(2, 4)) is None
    assert time_mean(ramp, Window(3, 3)) is None


@given(st.lists(st.integers(0, 9_999), min_size=2, max_size=60), st.integers(0, 9_999))
def test_a_counter_that_wraps_counts_all_the_same(added: list[int], begin: int) -> None:
    """As RAPL's does at its range: it is read before it wraps again."""
    true = [begin, *accumulate(added, initial=begin)][1:]
    points = [Point(at, value % 10_000) for at, value in enumerate(true)]
    whole = unwrapped(points, 10_000)
    assert [two.value - one.value for one, two in pairwise(whole)] == added
    assert counter_rise(whole, Window(0, len(added))) == sum(added)


def test_a_counter_that_fell_says_nothing() -> None:
    """As after the driver was loaded anew."""
    assert counter_rise((Point(0, 900), Point(1, 1000), Point(2, 5)), Window(0, 2)) is None
    assert counter_rise((), Window(0, 2)) is None
    assert counter_rise((Point(0, 900), Point(2, 1000)), Window(0.5, 1.5)) == 50


@pytest.mark.parametrize("window", [Window(-0.1, 1), Window(1, 2.1)])
def test_a_counter_that_was_not_read_around_a_window_says_nothing(window: Window) -> None:
    """The nearest reading would leave out what was spent between it and the end."""
    assert counter_rise((Point(0, 900), Point(2, 1000)), window) is None


@given(readings(least=2))
def test_a_value_is_its_own_where_it_was_read(points: tuple[Point, ...]) -> None:
    for point in points:
        assert value_at(points, point.at) == point.value


def test_a_gap_is_seen_at_the_ends_too() -> None:
    points = (Point(3, 1), Point(4, 1), Point(7, 1))
    assert longest_gap(points, Window(3, 7)) == 3
    assert longest_gap(points, Window(0, 4)) == 3
    assert longest_gap(points, Window(6.5, 12)) == 5
    assert longest_gap((), Window(1, 5)) == 4


@given(
    ahead=st.floats(-1e6, 1e6),
    trips=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1e5)), min_size=1, max_size=9),
)
def test_the_clocks_are_apart_by_what_is_said_give_or_take_the_error(
    ahead: float, trips: list[tuple[float, float, float]]
) -> None:
    """However long the way there and the way back take."""
    exchanges = [(at, at + there + ahead, at + there + back) for there, back, at in trips]
    said = match_clocks(exchanges)
    assert said is not None
    assert abs(said.ahead - ahead) <= said.error + 1e-6
    assert said.error == pytest.approx(min((there + back) / 2 for there, back, _ in trips), abs=1e-6)


def test_without_an_exchange_nobody_knows_the_clock() -> None:
    assert match_clocks(()) is None
    assert Clocks(100, 0.01).on_host(5) == 105
