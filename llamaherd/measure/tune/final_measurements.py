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
"""Tokens of a context that are left free."""
_LONGER = 1.5
"""How many times as long requests take at depth as at the beginning, about."""
_LEAST_DEPTH = 2048
"""The least tokens of a depth: the prompt of every candidate is as deep."""


def depth_of(context: int) -> int:
    """Return the depth of a request's context, with room for the tokens that are generated there."""
    return context - DEPTH_TIMES * DEPTH_TOKENS - _SPARE


def depth_seconds(depth: int, sizes: Sizes | None, figures: Figures, load: float) -> float | None:
    """Estimate how long the measurement of both takes; None if their speed is unknown."""
    if sizes is None or not sizes.prefill or not figures.decode:
        return None
    writing = DEPTH_TIMES * DEPTH_TOKENS / min(figures.decode.values())
    return 2 * (load + _LONGER * (depth / sizes.prefill + writing))


def depth_left_out(depth: int, seconds: float | None, left: float) -> str:
    """Return why it is not measured; empty if it is."""
    if depth < _LEAST_DEPTH:
        return "the context of a request is no longer than the other prompts"
    if seconds is None:
        return "the speed of prefill is unknown"
    if seconds > left:
        return (
            f"reading {depth:,} tokens with both takes about {show_seconds(seconds)}, "
            f"and {show_seconds(max(0.0, left))} of the budget are left for it"
        )
    return ""


@dataclass(frozen=True)
class Deeper:
    """Both at the same depth. Decode alone is compared, or together with the prefill of the whole prompt."""

    aim: Objective
    before: Deep
    after: Deep

    @property
    def ratio(self) -> Ratio | None:
        """The speed of the best candidate over that of the declared keys; None if one has no figures."""
        return unpaired_ratio([_samples(self.aim, self.before)], [_samples(self.aim, self.after)])

    @property
    def judgement(self) -> Judgement | None:
        """The verdict at that depth."""
        return judge_ratio(self.ratio, MARGIN) if self.ratio else None

    @property
    def doubt(self) -> str:
        """The doubt about the best candidate; empty without one."""
        where = f"at a depth of {self.after.depth:,} tokens"
        if self.after.says and not self.before.says:
            return f"{where} it gave no figures: {self.after.says}"
        slower = self.judgement is not None and self.judgement.verdict == "slower"
        return f"{where} it is slower than the declared keys: {ratio_text(self.ratio)}" if slower else ""


def deeper_of(search: Search, declared: Candidate, found: Candidate | None) -> Deeper | None:
    """Return both at depth, if both were measured there."""
    if found is None or found == declared:
        return None
    before, after = search.deep.get(declared), search.deep.get(found)
    return Deeper(search.head.aim, before, after) if before and after else None


DEPTH_HEADINGS = ("", "decode there, t/s", "prefill of all of it, t/s", "vs declared", "verdict")


def depth_rows(deeper: Deeper, declared: Candidate) -> tuple[tuple[str, ...], ...]:
    """Return a row for each: figures, or why there are none; the second one has the ratio with its interval."""
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
"""The share of speed that a limit may cost on average, and at the end of the interval."""


@dataclass(frozen=True)
class PowerLevel:
    """A limit: the score of the speed under it, and joules a token; both also as ratios to the `base` limit.

    `saves` is the ratio of tokens a joule.
    """

    watts: int
    as_now: bool
    speed: float
    joules: float
    beside: Ratio | None
    saves: Ratio | None

    @property
    def as_fast(self) -> bool:
        """Return True if it loses less than 1 %, and certainly less than 3 %."""
        speed = self.beside
        return speed is not None and speed.value > 1 - _LOST and speed.low is not None and speed.low > 1 - _SURELY

    @property
    def thriftier(self) -> bool:
        """Return True if a token certainly takes less energy."""
        return self.saves is not None and judge_ratio(self.saves, MARGIN).verdict == "faster"


@dataclass(frozen=True)
class PowerEnd:
    """All limits, in ascending order.

    `base` is what the others are compared with, `gpus` are names in the inventory.
    """

    aim: Objective
    gpus: tuple[str, ...]
    base: int
    levels: tuple[PowerLevel, ...]
    most: int
    """The chosen limit: by speed, the least that costs hardly any; by energy, the one with the least joules a token."""

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
        """The limit to set; None if the GPUs have it already."""
        return None if any(each.as_now and each.watts == self.chosen for each in self.levels) else self.chosen


def power_end(search: Search) -> PowerEnd | None:
    """Return the result of power limits; None without any, or if they were not completed."""
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


POWER_HEADINGS = ("limit of each GPU", "speed", "change", "J a token", "change of tokens a joule")


def power_rows(end: PowerEnd) -> tuple[tuple[str, ...], ...]:
    """Return a row for each limit, in ascending order."""
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
    """Return the changes to the inventory, as lines of a rig; empty without any."""
    if end.proposed is None:
        return ""
    cards = {name: {"power_limit": f"{end.proposed}W"} for name in end.gpus}
    return yaml.safe_dump({"gpus": {"cards": cards}}, sort_keys=False)


def power_json(end: PowerEnd) -> dict[str, Any]:
    """Return the limits as JSON."""

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
    """Check whether a limit was measured in a round already."""
    return any((each.watts, each.round, candidate_of(each.keys)) == (watts, number, found) for each in search.limited)
