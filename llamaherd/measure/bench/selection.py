"""Parse the workloads that a user selects, and limit them to what a server supports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.bench.job import ServerProfile, Workload
from llamaherd.measure.bench.series import (
    ENERGY_REST_SECONDS,
    POWER_ROUNDS,
    PowerSeries,
    Soak,
    energy_series,
    power_series,
)
from llamaherd.measure.bench.workloads import (
    DEPTH_TIMES,
    DEPTH_TOKENS,
    LOAD_KIND,
    LOAD_SECONDS,
    Ladder,
    Load,
    SeparateDepths,
    fit_ladder,
    queue_note,
)
from llamaherd.measure.client.requests import Series, Served, suite

MOST_DEPTH, MOST_AT_ONCE, MOST_STEPS = 2 << 20, 64, 40
LEAST_DEPTH = 256
LEAST_SECONDS, MOST_SECONDS = 60, 90 * 60
LEAST_WATTS, MOST_WATTS = 10, 2000

_DEPTH = re.compile(r"([1-9]\d{0,6})([kK]?)")
_TIME = re.compile(r"([1-9]\d{0,5})([smh])")
_WATTS = re.compile(r"([1-9]\d{0,3})W?")
_WATTS_RANGE = re.compile(r"([1-9]\d{0,3})W?\.\.([1-9]\d{0,3})W?/([1-9]\d{0,3})W?")
_DOUBLED = 6
_APART = DEPTH_TOKENS * DEPTH_TIMES
"""Tokens between two depths, at least: those that are generated at the first."""


def parse_depths(word: str) -> tuple[int, ...]:
    """Parse `4k,32k,128k`; or one depth, which is reached by doubling: `32k` from 1k on. Raise UserError."""
    found = sorted({_parse_depth(each.strip()) for each in word.split(",")})
    if len(found) == 1:
        most = found[0]
        doubled = [
            most >> times for times in reversed(range(_DOUBLED)) if most >> times >= max(LEAST_DEPTH, 2 * _APART)
        ]
        found = doubled or found
    if len(found) > MOST_STEPS:
        raise UserError(f"{len(found)} depths are too many", f"name at most {MOST_STEPS}")
    for one, two in pairwise(found):
        if two - one <= _APART:
            raise UserError(
                f"depths {one:,} and {two:,} are too close: {_APART} tokens are written at each",
                "leave one of them out",
            )
    return tuple(found)


def _parse_depth(word: str) -> int:
    """Parse a depth; 1,024 tokens are `1k`. Raise UserError."""
    found = _DEPTH.fullmatch(word)
    value = int(found[1]) * (1024 if found[2] else 1) if found else 0
    if not LEAST_DEPTH <= value <= MOST_DEPTH:
        raise UserError(
            f"invalid depth `{word[:40]}`: it must be a number of tokens from {LEAST_DEPTH} to {MOST_DEPTH >> 20}M",
            "for example `--depth 4k,32k,128k`",
        )
    return value


def parse_concurrency(word: str) -> tuple[int, ...]:
    """Parse `1,2,4,8`: requests at once, each number a load of its own. Raise UserError."""
    words = [each.strip() for each in word.split(",")]
    if not all(re.fullmatch(r"[1-9]\d{0,2}", each) and int(each) <= MOST_AT_ONCE for each in words):
        raise UserError(
            f"`{word[:40]}` is no list of numbers from 1 to {MOST_AT_ONCE}", "for example `--concurrency 1,2,4,8`"
        )
    return tuple(sorted({int(each) for each in words}))


def parse_duration(word: str) -> int:
    """Parse `90s`, `15m`, `1h`. Raise UserError."""
    found = _TIME.fullmatch(word)
    value = int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]] if found else 0
    if not LEAST_SECONDS <= value <= MOST_SECONDS:
        raise UserError(f"`{word[:40]}` is no time from {LEAST_SECONDS}s to {MOST_SECONDS // 60}m", "for example `15m`")
    return value


def parse_watts(word: str, most: int = MOST_STEPS) -> tuple[int, ...]:
    """Parse `200W..350W/10W`, or `200W,250W,300W`: at most `most` power limits, in ascending order. Raise UserError."""
    if spanned := _WATTS_RANGE.fullmatch(word):
        least, last, step = map(int, spanned.groups())
        # The named end belongs to it, also if the step does not end there.
        found = sorted({*range(least, last + 1, step), last}) if least <= last else []
    else:
        words = [_WATTS.fullmatch(each.strip()) for each in word.split(",")]
        found = sorted({int(each[1]) for each in words if each}) if all(words) else []
    if not found or not LEAST_WATTS <= found[0] <= found[-1] <= MOST_WATTS:
        raise UserError(
            f"invalid power limits `{word[:40]}`: they must lie between {LEAST_WATTS} and {MOST_WATTS} W",
            "for example `--power 200W..350W/10W`, or `--power 200W,250W,300W`",
        )
    if not 2 <= len(found) <= most:
        many = "one power limit makes" if len(found) == 1 else f"{len(found)} power limits make"
        raise UserError(f"{many} no series", f"name 2 to {most}, or take another step")
    return tuple(found)


_LADDER, _ENERGY, _LIMIT = 3600, 300, 60
"""Seconds that a prefill of hundreds of thousands of tokens may take, long responses, and a power limit in a round."""

_ANEW = "each depth is read from its beginning: unlike llama.cpp, the server does not accept tokens"

REST_SECONDS = 2.0
"""How long to wait without requests, to measure the power at rest."""


@dataclass(frozen=True)
class Selection:
    """The selected depths, numbers of requests at once, seconds of a soak, energy and power limits."""

    depths: tuple[int, ...] = ()
    levels: tuple[int, ...] = ()
    soak: float = 0.0
    energy: bool = False
    limits: tuple[int, ...] = ()

    @property
    def most_seconds(self) -> float:
        """The most seconds of the workloads, without the quick measurement: the server's speed is still unknown."""
        more = _LADDER * bool(self.depths) + 2 * LOAD_SECONDS * len(self.levels)
        return more + 1.2 * self.soak + _ENERGY * self.energy + POWER_ROUNDS * _LIMIT * len(self.limits)

    @property
    def rest_seconds(self) -> float:
        """The seconds without requests at the beginning."""
        return ENERGY_REST_SECONDS if self.energy else REST_SECONDS

    def series(self, known: ServerProfile) -> tuple[Series, ...]:
        """Return the series of single requests."""
        found: list[Series] = []
        if self.energy and (energy := energy_series(suite().prompts["prose"][0], known)):
            found.append(energy)
        if self.soak:
            found.append(Soak(suite().prompts["code"][0], self.soak))
        if self.limits:
            found.append(power_series(known, self.limits))
        return tuple(found)

    @staticmethod
    def beforehand(series: Sequence[Series]) -> tuple[str, ...]:
        """Return the announcements of what will be done to the host, and for how long."""
        return tuple(each.beforehand for each in series if isinstance(each, PowerSeries))

    def workloads(self, served: Served) -> tuple[tuple[Workload, ...], tuple[str, ...]]:
        """Return the workloads that the server supports, and notes on the others."""
        workloads: list[Workload] = []
        notes: list[str | None] = []
        if self.depths:
            ladder, left_out = fit_ladder(Ladder(self.depths), served.context)
            if ladder.depths and served.native:
                workloads.append(ladder)
            elif ladder.depths:
                workloads.append(SeparateDepths(ladder.depths))
                notes.append(_ANEW)
            notes.append(left_out)
        if self.levels:
            workloads.append(Load(self.levels, suite().prompts[LOAD_KIND]))
            notes.append(queue_note(self.levels, served.slots))
        return tuple(workloads), tuple(filter(None, notes))


QUICK_ONLY = Selection()
