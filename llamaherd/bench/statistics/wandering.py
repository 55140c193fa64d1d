"""How far a machine wanders while it is measured: what its requests tell one by one, beyond their own spread. Pure.

Who computes beside a server, the clocks of its processor and a virtual machine's neighbours change within minutes, and
every request alike. The interval of a mean of requests knows nothing of that: it counts them as independent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log, sqrt
from statistics import fmean

from llamaherd.bench.statistics.intervals import Sample

WINDOWS = 6
"""Parts of a measurement, that are held against each other."""
FEWEST = 12
"""Requests: of fewer nobody can tell."""
_BY_CHANCE = 2.0
"""What the windows of a steady machine differ by in one measurement of ten, beside what requests do: F of Fisher."""
_GOES_ON = sqrt(2)
"""What wanders goes on to wander: by as much more, two measurements one after the other lie apart."""


@dataclass(frozen=True)
class Seen:
    """A request: when it was sent in seconds, what it belongs to, and what it told."""

    at: float
    cell: str
    sample: Sample


def wandering(every: Iterable[Seen]) -> float:
    """The standard deviation between two measurements like this one, as a share of their speed; 0 where none is seen.

    By analysis of variance: windows of time are the groups, each request beside the others of its cell.
    """
    seen = list(every)
    if len(seen) < FEWEST:
        return 0.0
    left = _beside_their_cells(seen)
    first, last = (pick(each.at for each in seen) for pick in (min, max))
    groups: dict[int, list[float]] = {}
    for each, rest in zip(seen, left, strict=True):
        window = int(WINDOWS * (each.at - first) / (last - first)) if last > first else 0
        groups.setdefault(min(window, WINDOWS - 1), []).append(rest)
    freedom = len(seen) - len(groups) - len({each.cell for each in seen}) + 1
    if len(groups) < 2 or freedom < 1:
        return 0.0
    return _GOES_ON * sqrt(_between(list(groups.values()), freedom))


def _beside_their_cells(seen: Sequence[Seen]) -> list[float]:
    logs: dict[str, list[float]] = {}
    for each in seen:
        logs.setdefault(each.cell, []).append(log(each.sample.rate))
    means = {cell: fmean(found) for cell, found in logs.items()}
    return [log(each.sample.rate) - means[each.cell] for each in seen]


def _between(groups: Sequence[Sequence[float]], freedom: int) -> float:
    """The variance of the groups' own means, without what the spread in them makes of it; 0 where that may be all."""
    total = sum(map(len, groups))
    within = sum((value - fmean(group)) ** 2 for group in groups for value in group) / freedom
    among = sum(len(group) * fmean(group) ** 2 for group in groups) / (len(groups) - 1)
    if among <= _BY_CHANCE * within:
        return 0.0
    size = (total - sum(len(group) ** 2 for group in groups) / total) / (len(groups) - 1)
    return (among - within) / size
