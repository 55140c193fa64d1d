"""A and B in blocks, each once in every block: what drifts slower than a block is in both, and falls out.

Measured one after the other, the second is ahead or behind by what a case warms up meanwhile. Which of the two comes
first in a block is by lot, but in every four blocks each comes first twice: a slope falls out, and what swings cannot
keep in step with the order, as it can with ABBA ABBA.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from math import exp, log

from llamaherd.bench.statistics.intervals import Ratio, standard_deviation
from llamaherd.bench.statistics.student import half_width

FEWEST = 3
"""Blocks before there is an interval to speak of."""

_FOUR = tuple(sorted(set(permutations(("AB", "AB", "BA", "BA")))))
"""All ways in which each comes first twice in four blocks."""


@dataclass(frozen=True)
class Block:
    """The rates of A and of B in one block."""

    a: float
    b: float


def orders(seed: str, blocks: int) -> tuple[str, ...]:
    """Which comes first in each block, `AB` or `BA`: by lot from the seed, the same for the same seed."""
    drawn: list[str] = []
    while len(drawn) < blocks:
        lot = hashlib.sha256(f"{seed}:{len(drawn)}".encode()).digest()
        drawn += _FOUR[int.from_bytes(lot) % len(_FOUR)]
    return tuple(drawn[:blocks])


def paired_ratio(blocks: Sequence[Block], level: float = 0.95) -> Ratio | None:
    """B's rate over A's, by the logarithms of the ratio in each block; None where there is no block."""
    if not blocks:
        return None
    logs = [log(each.b / each.a) for each in blocks]
    center, n = sum(logs) / len(logs), len(logs)
    spread = standard_deviation(logs)
    if spread is None or n < FEWEST:
        return Ratio(exp(center), None, None, spread, n, "block")
    half = half_width(spread, n, n - 1, level)
    return Ratio(exp(center), exp(center - half), exp(center + half), spread, n, "block")
