"""The last measurements of what was found: at the full depth of its context, and under power limits. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import yaml

from llamaherd.measure.bench.depth import DEPTH_TIMES, DEPTH_TOKENS
from llamaherd.measure.statistics import Block, Judgement, Ratio, Sample, judge_ratio, paired_ratio, unpaired_ratio
from llamaherd.measure.tune.candidate import Candidate
from llamaherd.measure.tune.journal import Deep, Limited, Search, candidate_of
from llamaherd.measure.tune.objective import Figures, Objective, Sizes
from llamaherd.measure.tune.standings import MARGIN, changes, ratio_text
from llamaherd.text.numbers import show_seconds

_SPARE = 16
"""Tokens of a context that are left."""
_LONGER = 1.5
"""How many times as long all takes at depth as it does at the beginning, about."""
_LEAST_DEPTH = 2048
"""Tokens of a depth: what is read for every candidate is as deep."""


def depth_of(context: int) -> int:
    """How deep the context of a request is, with room for what is written there."""
    return context - DEPTH_TIMES * DEPTH_TOKENS - _SPARE


def depth_seconds(depth: int, sizes: Sizes | None, figures: Figures, load: float) -> float | None:
    """About how long it takes with both; None where nobody knows how fast they read or write."""
    if sizes is None or not sizes.prefill or not figures.decode:
        return None
    writing = DEPTH_TIMES * DEPTH_TOKENS / min(figures.decode.values())
    return 2 * (load + _LONGER * (depth / sizes.prefill + writing))


def depth_left_out(depth: int, seconds: float | None, left: float) -> str:
    """Why it is not measured; empty where it is."""
    if depth < _LEAST_DEPTH:
        return "a request has no more context than what is read anyway"
    if seconds is None:
        return "it is not known how fast a prompt is read"
    if seconds > left:
        return (
            f"reading {depth:,} tokens with both takes about {show_seconds(seconds)}, "
            f"and {show_seconds(max(0.0, left))} of the budget are left for it"
        )
    return ""


@dataclass(frozen=True)
class Deeper:
    """Both at the same depth. What is compared is decode alone, or with how fast all of the prompt was read."""

    aim: Objective
    before: Deep
    after: Deep

    @property
    def ratio(self) -> Ratio | None:
        """How fast what was found is there beside what is declared; None where one of them gave no figures."""
        return unpaired_ratio([_samples(self.aim, self.before)], [_samples(self.aim, self.after)])

    @property
    def judgement(self) -> Judgement | None:
        """Whether it is faster there."""
        return judge_ratio(self.ratio, MARGIN) if self.ratio else None

    @property
    def doubt(self) -> str:
        """What speaks against what was found; empty where nothing does."""
        where = f"at a depth of {self.after.depth:,} tokens"
        if self.after.says and not self.before.says:
            return f"{where} it gave no figures: {self.after.says}"
        slower = self.judgement is not None and self.judgement.verdict == "slower"
        return f"{where} it is slower than what is declared: {ratio_text(self.ratio)}" if slower else ""


def deeper_of(search: Search, declared: Candidate, found: Candidate | None) -> Deeper | None:
    """Both at depth, where both were measured there."""
    if found is None or found == declared:
        return None
    before, after = search.deep.get(declared), search.deep.get(found)
    return Deeper(search.head.aim, before, after) if before and after else None


DEPTH_HEADINGS = ("", "decode there, t/s", "prefill of all of it, t/s", "beside what is declared", "verdict")


def depth_rows(deeper: Deeper, declared: Candidate) -> tuple[tuple[str, ...], ...]:
    """A row for each: figures, or why there are none; the ratio with its interval stands beside what was found."""
    verdict = str(deeper.judgement) if deeper.judgement else ""
    return (
        (*_depth_row(deeper.before, declared), "", ""),
        (*_depth_row(deeper.after, declared), ratio_text(deeper.ratio), verdict),
    )


def _depth_row(deep: Deep, declared: Candidate) -> tuple[str, str, str]:
    decode = f"{fmean(deep.decode):.1f}" if deep.decode else deep.says or "-"
    prefill = f"{deep.prefill:,.0f}" if deep.prefill else "-"
    return changes(candidate_of(deep.keys), declared), decode, prefill


def _samples(aim: Objective, deep: Deep) -> list[Sample]:
    speed = Objective(purpose="turn" if aim.reads else "decode")
    scores = [
        speed.score(Figures(decode=dict.fromkeys(aim.kinds, decode), prefill=deep.prefill)) for decode in deep.decode
    ]
    return [Sample(score, 1.0) for score in scores if score]


_LOST, _SURELY = 0.01, 0.03
"""Of the speed, that a limit may cost on average; and that it is known not to cost more than."""


@dataclass(frozen=True)
class PowerLevel:
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
        return self.saves is not None and judge_ratio(self.saves, MARGIN).verdict == "faster"


@dataclass(frozen=True)
class PowerEnd:
    """All limits, from the least on. `base` is what the others are held against, `gpus` are names in the inventory."""

    aim: Objective
    gpus: tuple[str, ...]
    base: int
    levels: tuple[PowerLevel, ...]
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


def _level(lines: Sequence[Limited], watts: int, base: int) -> PowerLevel:
    own = {each.round: each for each in lines if each.watts == watts}
    others = {each.round: each for each in lines if each.watts == base}
    rounds = sorted(own.keys() & others.keys()) if watts != base else []
    return PowerLevel(
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


def is_limit_measured(search: Search, found: Candidate, watts: int, number: int) -> bool:
    """Whether a limit was measured in a round already."""
    return any((each.watts, each.round, candidate_of(each.keys)) == (watts, number, found) for each in search.limited)
