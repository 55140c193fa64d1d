"""The final measurements of a search: the best candidates in rounds, at full depth, and under power limits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import yaml

from llamaherd.measure.bench.workloads import DEPTH_TIMES, DEPTH_TOKENS
from llamaherd.measure.statistics import (
    Block,
    Estimate,
    Judgement,
    Ratio,
    Sample,
    estimate,
    judge_ratio,
    paired_ratio,
    unpaired_ratio,
)
from llamaherd.measure.tune.candidate import Candidate, Figures, Objective, Sizes, Value, settings_of
from llamaherd.measure.tune.journal import Deep, Limited, Search, TriedCandidate, candidate_of
from llamaherd.measure.tune.search import BETTER
from llamaherd.text.numbers import show_seconds

MARGIN = 0.02
"""The share within which two are the same."""


@dataclass(frozen=True)
class Standing:
    """A candidate in the final rounds: its score, and its ratio to the declared keys."""

    candidate: Candidate
    score: float
    ratio: Ratio | None
    trials: tuple[TriedCandidate, ...]
    scores: tuple[float, ...] = ()
    """The score of each round."""

    @property
    def estimate(self) -> Estimate | None:
        """The score with the interval of its rounds."""
        return estimate([[Sample(score, 1.0)] for score in self.scores])

    @property
    def judgement(self) -> Judgement | None:
        """The verdict against the declared keys; None without a comparison."""
        return judge_ratio(self.ratio, MARGIN) if self.ratio else None

    @property
    def code(self) -> float | None:
        """The mean speed of decode for code over its rounds, in tokens a second."""
        return _mean(each.figures.decode.get("code") for each in self.trials)

    @property
    def prefill(self) -> float | None:
        """The mean speed of prefill over its rounds, in tokens a second."""
        return _mean(each.figures.prefill for each in self.trials)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each]
    return fmean(known) if known else None


@dataclass(frozen=True)
class Step:
    """A candidate that became the best one: the keys that it changed, and its gain.

    `number` is that of its trial, from 1 on.
    """

    number: int
    keys: tuple[tuple[str, Value], ...]
    gain: float
    score: float


def standings(search: Search, declared: Candidate) -> list[Standing]:
    """Return the candidates of the final rounds, best first, each compared with the declared keys round by round."""
    rounds: dict[Candidate, dict[int, float]] = {}
    trials: dict[Candidate, list[TriedCandidate]] = {}
    for each in search.trials:
        score = search.outcome(each).score
        if each.round is not None and score is not None:
            candidate = candidate_of(each.keys)
            rounds.setdefault(candidate, {})[each.round] = score
            trials.setdefault(candidate, []).append(each)
    base = rounds.get(declared, {})
    found = []
    for candidate, scores in rounds.items():
        blocks = [Block(base[number], score) for number, score in sorted(scores.items()) if number in base]
        ratio = paired_ratio(blocks) if candidate != declared else None
        each_round = tuple(scores.values())
        found.append(Standing(candidate, fmean(each_round), ratio, tuple(trials[candidate]), each_round))
    return sorted(found, key=lambda each: -each.score)


def best_of(standing: Sequence[Standing], declared: Candidate) -> Candidate:
    """Return the best candidate that is significantly better than the declared keys; otherwise the declared keys.

    If the declared keys were not measured, as they do not start, the first candidate is the best one.
    """
    if standing and all(each.candidate != declared for each in standing):
        return standing[0].candidate
    better = [each for each in standing if each.judgement and each.judgement.verdict == "faster"]
    return better[0].candidate if better else declared


def steps(search: Search) -> Iterator[Step]:
    """Yield each candidate that was the best one when it was measured."""
    best: tuple[Candidate, float] | None = None
    for number, (trial, outcome) in enumerate(search.read(), start=1):
        score = outcome.score
        if score is None or (best and score < best[1] * BETTER):
            continue
        candidate = candidate_of(trial.keys)
        if best:
            yield Step(number, tuple(candidate.besides(best[0]).items()), score / best[1] - 1, score)
        best = (candidate, score)


def changes(candidate: Candidate, declared: Candidate) -> str:
    """Return the keys that differ from the declared ones: `threads=5, draft=null`."""
    return ", ".join(map(str, settings_of(candidate, declared))) or "as declared"


def keys_text(keys: Sequence[tuple[str, Value]]) -> str:
    """Return the keys that a step changed: `ubatch=1024, no draft.mtp`."""
    given = Candidate(tuple(each for each in keys if each[1] is not None))
    off = [f"no {key}" for key, value in keys if value is None]
    return ", ".join([*([str(given)] if given.keys else []), *off]) or "the same"


def value_text(key: str, value: Value) -> str:
    """Return a value as in an inventory; `none` if its key is absent."""
    return "none" if value is None else str(Candidate(((key, value),))).partition("=")[2]


def score_text(aim: Objective, standing: Standing) -> str:
    """Return the score in the final rounds with its 95 % interval: `0.331 J a token (0.325 to 0.338)`."""
    found = standing.estimate
    if found is None:
        return aim.shown(standing.score)
    if found.low is None or found.high is None:
        return f"{aim.shown(standing.score)}, {found.counted}"
    ends = sorted((found.low, found.high), key=lambda score: float(aim.figure(score)))
    return f"{aim.shown(standing.score)} ({' to '.join(map(aim.figure, ends))})"


def verdict_text(aim: Objective, judgement: Judgement) -> str:
    """Return a verdict in the words of the objective: a candidate that takes less energy may be slower."""
    word = {"faster": "takes less", "slower": "takes more"}.get(judgement.verdict) if aim.of_energy else None
    return word or str(judgement)


def percent(share: float) -> str:
    """Return a gain as `+4.2 %`."""
    return f"{100 * share:+.1f} %"


def ratio_text(ratio: Ratio | None) -> str:
    """Return a ratio with its 95 % interval: `+83.0 % (+44.1 to +131.9)`."""
    if ratio is None:
        return ""
    value = percent(ratio.value - 1)
    if ratio.ends is None:
        return value
    low, high = ratio.ends
    return f"{value} ({100 * (low - 1):+.1f} to {100 * (high - 1):+.1f})"


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
    ratio: Ratio | None
    saves: Ratio | None

    @property
    def as_fast(self) -> bool:
        """Return True if it loses less than 1 %, and certainly less than 3 %."""
        speed = self.ratio
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
    """The highest limit that may be chosen: what the GPUs have now may be above it."""

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
            ratio_text(each.ratio),
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


def ratio_json(ratio: Ratio | None) -> list[float | None] | None:
    """Return a ratio with its interval as JSON."""
    return [ratio.value, ratio.low, ratio.high] if ratio else None


def power_json(end: PowerEnd) -> dict[str, Any]:
    """Return the limits as JSON."""
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
                "beside": ratio_json(each.ratio),
                "saves": ratio_json(each.saves),
            }
            for each in end.levels
        ],
    }


def is_limit_measured(search: Search, found: Candidate, watts: int, number: int) -> bool:
    """Check whether a limit was measured in a round already."""
    return any((each.watts, each.round, candidate_of(each.keys)) == (watts, number, found) for each in search.limited)
