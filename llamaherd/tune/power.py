"""What was found, under one power limit after the other: speed, joules a token, and which limit is proposed. Pure.

The GPUs are held to the same limit each. What they were held to anyway is measured beside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import yaml

from llamaherd.bench.statistics.blocks import Block, paired_ratio
from llamaherd.bench.statistics.intervals import Ratio
from llamaherd.bench.statistics.verdict import judge
from llamaherd.tune.aim import Aim
from llamaherd.tune.candidate import Candidate
from llamaherd.tune.journal import Search
from llamaherd.tune.lines import Limited, candidate_of
from llamaherd.tune.outcome import MARGIN
from llamaherd.tune.phrases import ratio_text

_LOST, _SURELY = 0.01, 0.03
"""Of the speed, that a limit may cost on average; and that it is known not to cost more than."""


@dataclass(frozen=True)
class Level:
    """A limit: the score of the speed that is left, and joules a token; both beside the limit that all are held to.

    `saves` are tokens a joule.
    """

    watts: int
    as_now: bool
    speed: float
    joules: float
    beside: Ratio | None
    saves: Ratio | None

    @property
    def as_fast(self) -> bool:
        """Whether it loses less than 1 %, and is known to lose less than 3 %."""
        told = self.beside
        return told is not None and told.value > 1 - _LOST and told.low is not None and told.low > 1 - _SURELY

    @property
    def thriftier(self) -> bool:
        """Whether a token is known to take less."""
        return self.saves is not None and judge(self.saves, MARGIN).verdict == "faster"


@dataclass(frozen=True)
class PowerEnd:
    """All limits, from the least on. `base` is what the others are held against, `gpus` are names in the inventory."""

    aim: Aim
    gpus: tuple[str, ...]
    base: int
    levels: tuple[Level, ...]
    most: int
    """The most that each GPU may be held to."""

    @property
    def chosen(self) -> int:
        """By speed, the least limit that costs hardly any; by energy, the one at which a token takes least."""
        may = [each for each in self.levels if each.watts <= self.most and each.watts != self.base]
        if self.aim.of_energy:
            better = sorted((each for each in may if each.thriftier), key=lambda each: each.joules)
        else:
            better = [each for each in may if each.watts < self.base and each.as_fast]
        return better[0].watts if better else self.base

    @property
    def proposed(self) -> int | None:
        """What the GPUs should be held to; None where they are."""
        return None if any(each.as_now and each.watts == self.chosen for each in self.levels) else self.chosen


def power_end(search: Search) -> PowerEnd | None:
    """What power limits come to; None where none was tried, or not all of them to the end."""
    if search.found is None or search.found.unlimited:
        return None
    found, head = candidate_of(search.found.keys), search.head
    lines = [each for each in search.limited if candidate_of(each.keys) == found]
    if not lines or not head.watts:
        return None
    most = max(head.watts)
    now = next((each.watts for each in lines if each.as_now), None)
    base = now if now is not None and now <= most else most
    every = sorted({each.watts for each in lines})
    return PowerEnd(head.aim, head.gpus, base, tuple(_level(lines, watts, base) for watts in every), most)


def _level(lines: Sequence[Limited], watts: int, base: int) -> Level:
    own = {each.round: each for each in lines if each.watts == watts}
    others = {each.round: each for each in lines if each.watts == base}
    rounds = sorted(own.keys() & others.keys()) if watts != base else []
    return Level(
        watts,
        any(each.as_now for each in own.values()),
        fmean(each.speed for each in own.values()),
        fmean(each.joules for each in own.values()),
        paired_ratio([Block(others[number].speed, own[number].speed) for number in rounds]),
        paired_ratio([Block(1 / others[number].joules, 1 / own[number].joules) for number in rounds]),
    )


POWER_HEADINGS = ("each GPU held to", "speed", "beside", "J a token", "tokens a joule beside")


def power_rows(end: PowerEnd) -> tuple[tuple[str, ...], ...]:
    """A row for each limit, from the least on."""
    return tuple(
        (
            f"{each.watts} W{', as now' if each.as_now else ''}{' *' if each.watts == end.proposed else ''}",
            end.aim.speed.shown(each.speed),
            ratio_text(each.beside),
            f"{each.joules:.3g}",
            ratio_text(each.saves),
        )
        for each in end.levels
    )


def power_lines(end: PowerEnd) -> str:
    """What would be otherwise in the inventory, as lines of a rig; empty where nothing would be."""
    if end.proposed is None:
        return ""
    cards = {name: {"power_limit": f"{end.proposed}W"} for name in end.gpus}
    return yaml.safe_dump({"gpus": {"cards": cards}}, sort_keys=False)


def power_json(end: PowerEnd) -> dict[str, Any]:
    """All of it, for other programs."""

    def interval(ratio: Ratio | None) -> list[float | None] | None:
        return [ratio.value, ratio.low, ratio.high] if ratio else None

    return {
        "base": end.base,
        "proposed": end.proposed,
        "changes": power_lines(end),
        "limits": [
            {
                "watts": each.watts,
                "as_now": each.as_now,
                "score": each.speed,
                "joules": each.joules,
                "beside": interval(each.beside),
                "saves": interval(each.saves),
            }
            for each in end.levels
        ],
    }


def is_whole(search: Search, found: Candidate, watts: int, number: int) -> bool:
    """Whether a limit was measured in a round already."""
    return any((each.watts, each.round, candidate_of(each.keys)) == (watts, number, found) for each in search.limited)
