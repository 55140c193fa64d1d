"""Servers whose true speed is known, as random numbers: how often the intervals of a method hold it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from llamaherd.measure.statistics import (
    Block,
    Estimate,
    Ratio,
    Sample,
    Verdict,
    block_orders,
    estimate,
    judge_ratio,
    paired_ratio,
    unpaired_ratio,
)

TOKENS, TRUE = 256.0, 100.0
NOISE = 0.01
"""Of one run, as a share."""
BETWEEN, WITHIN = 0.008, 0.004
"""Of starts, and of the runs in one, as shares."""

Noise = Callable[[random.Random], float]
Drift = Callable[[random.Random, int], Sequence[float]]
Method = Callable[[random.Random, int], tuple[float | None, float | None]]


def normal(lot: random.Random) -> float:
    """As errors that many small causes add up to."""
    return lot.gauss(0, NOISE)


def skewed(lot: random.Random) -> float:
    """Mostly fast, sometimes much slower, on average as fast as it is: a long tail to one side."""
    return NOISE - lot.expovariate(1 / NOISE)


def none(_: random.Random, runs: int) -> Sequence[float]:
    return [0.0] * runs


def slope(_: random.Random, runs: int) -> Sequence[float]:
    """0.4 % slower with every run."""
    return [-0.004 * run for run in range(runs)]


def warming(_: random.Random, runs: int) -> Sequence[float]:
    """4 % faster while the case is cold, which is over after some six runs."""
    return [0.04 * math.exp(-run / 6) for run in range(runs)]


def wave(lot: random.Random, runs: int) -> Sequence[float]:
    """Fans that swing once in four runs, as two blocks have."""
    begin = lot.uniform(0, 2 * math.pi)
    return [0.02 * math.sin(begin + math.pi / 2 * run) for run in range(runs)]


def step(lot: random.Random, runs: int) -> Sequence[float]:
    """3 % slower from some run on."""
    since = lot.randrange(1, runs)
    return [-0.03 * (run >= since) for run in range(runs)]


def wandering(lot: random.Random, runs: int) -> Sequence[float]:
    """Each run somewhat off the one before."""
    at, path = 0.0, []
    for _ in range(runs):
        at += lot.gauss(0, 0.005)
        path.append(at)
    return path


def sample(error: float) -> Sample:
    return Sample(TOKENS, TOKENS / (TRUE * math.exp(error)))


def ends(found: Estimate | Ratio | None, true: float) -> tuple[float | None, float | None]:
    """An interval as shares of what is true."""
    if found is None or found.low is None or found.high is None:
        return None, None
    return found.low / true, found.high / true


def of_starts(noise: Noise) -> Method:
    """The interval of one rate, by starts."""
    return lambda lot, n: ends(estimate([[sample(noise(lot))] for _ in range(n)]), TRUE)


def nested(lot: random.Random, n: int) -> list[list[Sample]]:
    """Starts of five runs each."""
    starts = [lot.gauss(0, BETWEEN) for _ in range(n)]
    return [[sample(start + lot.gauss(0, WITHIN)) for _ in range(5)] for start in starts]


def by_starts(lot: random.Random, n: int) -> tuple[float | None, float | None]:
    """What is done: the start is the unit."""
    return ends(estimate(nested(lot, n)), TRUE)


def by_runs(lot: random.Random, n: int) -> tuple[float | None, float | None]:
    """What is not done: all runs as if each were of a start of its own."""
    return ends(estimate([[run] for start in nested(lot, n) for run in start]), TRUE)


def two_starts(lot: random.Random, n: int) -> tuple[float | None, float | None]:
    """A and B, measured by starts of their own."""
    return ends(unpaired_ratio(nested(lot, n), nested(lot, n)), 1)


def in_blocks(noise: Noise, drift: Drift) -> Method:
    """A and B in blocks, while everything drifts."""
    return lambda lot, n: ends(paired_ratio(blocks(lot, n, noise, drift)), 1)


def blocks(lot: random.Random, n: int, noise: Noise, drift: Drift, true: float = 1.0) -> list[Block]:
    path = drift(lot, 2 * n)
    found = []
    for number, order in enumerate(block_orders(str(lot.random()), n)):
        rates = {arm: math.exp(path[2 * number + place] + noise(lot)) for place, arm in enumerate(order)}
        found.append(Block(rates["A"], rates["B"] * true))
    return found


def one_after_the_other(noise: Noise, drift: Drift) -> Method:
    """What is not done: all of A, then all of B."""

    def measured(lot: random.Random, n: int) -> tuple[float | None, float | None]:
        path = drift(lot, 2 * n)
        runs = [[sample(each + noise(lot))] for each in path]
        return ends(unpaired_ratio(runs[:n], runs[n:]), 1)

    return measured


HELD: dict[str, Method] = {
    "one rate, normal": of_starts(normal),
    "one rate, skewed": of_starts(skewed),
    "one rate, starts of 5 runs": by_starts,
    "A and B, starts of 5 runs": two_starts,
    "blocks, normal": in_blocks(normal, none),
    "blocks, skewed": in_blocks(skewed, none),
    "blocks, slope": in_blocks(normal, slope),
    "blocks, warming": in_blocks(normal, warming),
    "blocks, warming and skewed": in_blocks(skewed, warming),
    "blocks, wave": in_blocks(normal, wave),
    "blocks, step": in_blocks(normal, step),
    "blocks, wandering": in_blocks(normal, wandering),
}
"""What is done, and in which weather."""

MISSED: dict[str, Method] = {
    "runs of all starts as one": by_runs,
    "first A, then B, slope": one_after_the_other(normal, slope),
    "first A, then B, warming": one_after_the_other(normal, warming),
}
"""What is not done, beside it: the intervals miss what is true."""

SIZES = (3, 5, 8, 20)


def coverage(name: str, n: int, times: int = 400) -> int:
    """Percent of intervals that hold what is true; the same for the same name."""
    method, lot = (HELD | MISSED)[name], random.Random(f"{name}:{n}")
    held = 0
    for _ in range(times):
        low, high = method(lot, n)
        held += low is not None and high is not None and low <= 1 <= high
    return round(100 * held / times)


def verdicts(true: float, n: int, margin: float, drift: Drift = warming, times: int = 300) -> dict[Verdict, int]:
    """Percent of each verdict about a B that is so fast beside A, after `n` blocks."""
    lot = random.Random(f"{true}:{n}:{margin}")
    count: dict[Verdict, int] = {"slower": 0, "same": 0, "faster": 0, "not known yet": 0}
    for _ in range(times):
        ratio = paired_ratio(blocks(lot, n, normal, drift, true))
        assert ratio
        count[judge_ratio(ratio, margin).verdict] += 1
    return {verdict: round(100 * many / times) for verdict, many in count.items()}


def first_verdict(lot: random.Random, true: float, margin: float, most: int) -> tuple[Verdict, int]:
    """What is said when one looks after every block and stops at the first verdict, and after how many."""
    whole = blocks(lot, most, normal, warming, true)
    for n in range(3, most + 1):
        ratio = paired_ratio(whole[:n])
        assert ratio
        found = judge_ratio(ratio, margin)
        if found.verdict != "not known yet":
            return found.verdict, n
    return "not known yet", most


def tables() -> tuple[str, str]:
    """The tables of docs/measurements/bench.md: how often intervals hold, and the verdicts on a faster B."""
    first = [f"| {each} | " + " | ".join(f"{coverage(each, n)} %" for n in SIZES) + " |" for each in (*HELD, *MISSED)]
    second = [
        f"| {true:.2f} | {n} | " + " | ".join(f"{each} %" for each in verdicts(true, n, 0.02).values()) + " |"
        for true in (1.0, 0.99, 0.98, 0.97, 0.95)
        for n in (4, 8, 12)
    ]
    return "\n".join(first), "\n".join(second)


if __name__ == "__main__":
    print(*tables(), sep="\n\n")
