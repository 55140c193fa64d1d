"""The best candidates compared with the declared keys, the steps of the search, and their text. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from llamaherd.measure.statistics import Block, Estimate, Judgement, Ratio, Sample, estimate, judge_ratio, paired_ratio
from llamaherd.measure.tune.candidate import Candidate, Value, Why, settings_of
from llamaherd.measure.tune.journal import Search, TriedCandidate, candidate_of
from llamaherd.measure.tune.objective import Objective
from llamaherd.measure.tune.search import BETTER

MARGIN = 0.02
"""The share within which two are the same."""


@dataclass(frozen=True)
class Standing:
    """A candidate in the final rounds: its score, and its ratio to the declared keys."""

    candidate: Candidate
    score: float
    beside: Ratio | None
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
        return judge_ratio(self.beside, MARGIN) if self.beside else None

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
        beside = paired_ratio(blocks) if candidate != declared else None
        each_round = tuple(scores.values())
        found.append(Standing(candidate, fmean(each_round), beside, tuple(trials[candidate]), each_round))
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


def failures(search: Search) -> Counter[Why]:
    """Count the failed candidates by their reason."""
    return Counter(why for each in search.trials if (why := search.outcome(each).why))


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
