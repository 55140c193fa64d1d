"""What a search comes to: the best candidates beside what is declared, and what each step gave. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from llamaherd.bench.statistics.blocks import Block, paired_ratio
from llamaherd.bench.statistics.intervals import Estimate, Ratio, Sample, estimate
from llamaherd.bench.statistics.verdict import Judgement, judge
from llamaherd.tune.candidate import Candidate, Value
from llamaherd.tune.journal import Search
from llamaherd.tune.lines import Trial, candidate_of
from llamaherd.tune.one_pass import BETTER
from llamaherd.tune.trials import Why

MARGIN = 0.02
"""The share within which two are the same."""


@dataclass(frozen=True)
class Standing:
    """A candidate in the rounds of the end: its score, and how it is beside what is declared."""

    candidate: Candidate
    score: float
    beside: Ratio | None
    trials: tuple[Trial, ...]
    scores: tuple[float, ...] = ()
    """Of each round."""

    @property
    def estimate(self) -> Estimate | None:
        """Its score with the interval that its rounds tell."""
        return estimate([[Sample(score, 1.0)] for score in self.scores])

    @property
    def judgement(self) -> Judgement | None:
        """Whether it is better than what is declared; None where nobody knows."""
        return judge(self.beside, MARGIN) if self.beside else None

    @property
    def code(self) -> float | None:
        """Return how fast it wrote code, on average over its rounds, as its score is: tokens a second."""
        return _mean(each.figures.decode.get("code") for each in self.trials)

    @property
    def prefill(self) -> float | None:
        """Return how fast it read a prompt, on average over its rounds: tokens a second."""
        return _mean(each.figures.prefill for each in self.trials)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each]
    return fmean(known) if known else None


@dataclass(frozen=True)
class Step:
    """A candidate that took the place of the best one: which keys it changed, and by how much it was better.

    `number` is that of its trial, from 1 on.
    """

    number: int
    keys: tuple[tuple[str, Value], ...]
    gain: float
    score: float


def standings(search: Search, declared: Candidate) -> list[Standing]:
    """Those that were measured in rounds, best first; they are compared round by round."""
    rounds: dict[Candidate, dict[int, float]] = {}
    trials: dict[Candidate, list[Trial]] = {}
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
    """The best one that is known to be better than what is declared; else what is declared.

    Where what is declared was not measured at all, as it does not start, it is the best one.
    """
    if standing and all(each.candidate != declared for each in standing):
        return standing[0].candidate
    better = [each for each in standing if each.judgement and each.judgement.verdict == "faster"]
    return better[0].candidate if better else declared


def steps(search: Search) -> Iterator[Step]:
    """Each candidate of the search that took the place of the best one by then, as it was read then."""
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
    """How many candidates came to nothing, by the reason."""
    return Counter(why for each in search.trials if (why := search.outcome(each).why))
