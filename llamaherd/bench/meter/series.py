"""Readings over time, each a second and a value: integrated, counted, and two clocks beside each other. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import fsum
from typing import NamedTuple


class Point(NamedTuple):
    """A reading."""

    at: float
    value: float


class Window(NamedTuple):
    """A time by the host's clock."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.begin


class Clocks(NamedTuple):
    """By how many seconds the host's clock is ahead of ours, and how wrong that may be."""

    ahead: float
    error: float

    def on_host(self, ours: float) -> float:
        """A time of ours by the host's clock."""
        return ours + self.ahead


def value_at(points: Sequence[Point], at: float) -> float:
    """The value at a time: between two readings on the line from one to the other, before and after all the nearest."""
    place = bisect_left(points, at, key=lambda point: point.at)
    if place == 0:
        return points[0].value
    if place == len(points):
        return points[-1].value
    (before, low), (after, high) = points[place - 1], points[place]
    if at == after:
        return high
    return low + (high - low) * (at - before) / (after - before)


def integral(points: Sequence[Point], window: Window) -> float | None:
    """The area below the readings in a window: joules of watts. None without a reading."""
    if not points:
        return None
    first = bisect_right(points, window.begin, key=lambda point: point.at)
    last = bisect_left(points, window.end, key=lambda point: point.at)
    ends = (Point(each, value_at(points, each)) for each in window)
    begin, end = ends
    inside = (begin, *points[first:last], end)
    return fsum((one.value + two.value) / 2 * (two.at - one.at) for one, two in pairwise(inside))


def mean(points: Sequence[Point], window: Window) -> float | None:
    """The mean over time; None without a reading, or where the window has no length."""
    area = integral(points, window)
    return None if area is None or window.seconds <= 0 else area / window.seconds


def rise(points: Sequence[Point], window: Window) -> float | None:
    """By how much a counter rose in a window. None where it was not read before and after, or fell: it began anew."""
    if not points or points[0].at > window.begin or points[-1].at < window.end:
        return None
    if any(two.value < one.value for one, two in pairwise(points)):
        return None
    return value_at(points, window.end) - value_at(points, window.begin)


def unwrapped(points: Iterable[Point], size: float) -> tuple[Point, ...]:
    """A counter that begins at 0 again after `size`, as if it did not. It does so once between two readings at most."""
    found: list[Point] = []
    turns, before = 0, 0.0
    for at, value in points:
        turns += value < before
        before = value
        found.append(Point(at, value + turns * size))
    return tuple(found)


def within(points: Iterable[Point], window: Window) -> tuple[Point, ...]:
    """The readings of a window."""
    return tuple(point for point in points if window.begin <= point.at <= window.end)


def longest_gap(points: Iterable[Point], window: Window) -> float:
    """The longest time in a window without a reading, its ends included."""
    times = (window.begin, *(point.at for point in within(points, window)), window.end)
    return max(two - one for one, two in pairwise(times))


def clocks(exchanges: Iterable[tuple[float, float, float]]) -> Clocks | None:
    """Two clocks by exchanges: when we asked, what the host's clock said, when we heard it. The shortest counts.

    On the way back it took as long as on the way there, give or take all of both.
    """
    best = min(exchanges, key=lambda each: each[2] - each[0], default=None)
    if best is None:
        return None
    asked, there, heard = best
    return Clocks(there - (asked + heard) / 2, (heard - asked) / 2)
