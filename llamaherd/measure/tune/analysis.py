"""Analyse the trials of a search: the importance of each key, and the Pareto front. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from llamaherd.gguf.header import BLOCKS
from llamaherd.measure.tune.candidate import Candidate, Trials, Value
from llamaherd.measure.tune.journal import Search, Trial, candidate_of
from llamaherd.measure.tune.objective import Objective
from llamaherd.measure.tune.quality import KV
from llamaherd.measure.tune.space import BATCH, EXPERTS, LAYERS

FOLLOW = (EXPERTS, LAYERS, BATCH)
"""Keys that follow from the others by arithmetic of memory: nothing is searched for them."""

Shares = Callable[[Trials, Sequence[str]], Mapping[str, float]]
"""The share of each key in what makes a candidate one of the best."""


@dataclass(frozen=True)
class Importance:
    """A key. `best_with` is the best score with its value in what was found, `best_without` that with any other value.

    `alone` is the most that this value gave where nothing else was different, as a share; None where no two candidates
    tell it. `share` is PED-ANOVA's; None without Optuna.
    """

    key: str
    value: Value
    best_with: float
    other: Value
    best_without: float
    alone: float | None
    share: float | None

    @property
    def gain(self) -> float:
        """By how much the best one with it is better than the best one with another value, as a share."""
        return self.best_with / self.best_without - 1


def optuna_shares() -> Shares | None:
    """PED-ANOVA, where Optuna is there."""
    try:
        from llamaherd.measure.tune.optuna_model import ped_anova
    except ImportError:
        return None
    return ped_anova


def importances(trials: Trials, shares: Shares | None, found: Candidate | None = None) -> tuple[Importance, ...]:
    """The keys that several values were tried of, the most important first: beside what was `found`, or the best."""
    scored = {candidate for candidate, _ in _scored(trials)}
    best = [found] if found in scored else trials.best(1)
    if not best:
        return ()
    keys = _varied(trials)
    share = shares(trials, keys) if shares and keys else {}
    every = [_importance_of(trials, best[0], key, share.get(key)) for key in keys]
    return tuple(sorted(every, key=lambda each: (-(each.share or 0.0), -each.gain)))


def _varied(trials: Trials) -> list[str]:
    """Keys that are searched for, of which two values have a score."""
    values: dict[str, set[Value]] = {}
    for candidate, _ in _scored(trials):
        for key, value in candidate.keys:
            values.setdefault(key, set()).add(value)
    return [key for key, seen in values.items() if len(seen) > 1 and key not in FOLLOW]


def _importance_of(trials: Trials, best: Candidate, key: str, share: float | None) -> Importance:
    value = best[key]
    others = [(score, each[key]) for each, score in _scored(trials) if each[key] != value]
    without, other = max(others, key=lambda pair: pair[0])
    with_it = max(score for each, score in _scored(trials) if each[key] == value)
    return Importance(key, value, with_it, other, without, _gain_alone(trials, key, value), share)


def _gain_alone(trials: Trials, key: str, value: Value) -> float | None:
    """The most that a value gave beside another one, of candidates that are alike in all other keys."""
    with_it: dict[Candidate, float] = {}
    without: dict[Candidate, float] = {}
    for candidate, score in _scored(trials):
        rest = Candidate(tuple(each for each in candidate.keys if each[0] not in (key, *FOLLOW)))
        if candidate[key] == value:
            with_it[rest] = max(score, with_it.get(rest, score))
        else:
            without[rest] = min(score, without.get(rest, score))
    return max((with_it[rest] / without[rest] - 1 for rest in with_it.keys() & without.keys()), default=None)


def _scored(trials: Trials) -> Iterator[tuple[Candidate, float]]:
    return ((candidate, outcome.score) for candidate, outcome in trials if outcome.score is not None)


_ALIKE = 0.03
"""The share within which two are the same."""


@dataclass(frozen=True)
class Measure:
    """Something that a candidate is better or worse in, beside all others; `of` is None where it is not known."""

    name: str
    unit: str
    of: Callable[[Trial], float | None]
    less: bool = False
    """Whether less of it is better."""

    def gain(self, one: float, other: float) -> float:
        """How much better one value is than another: above 1 is better."""
        return other / one if self.less else one / other


@dataclass(frozen=True)
class OnFront:
    """A candidate of the front with its figures, by the names of the measures."""

    candidate: Candidate
    figures: Mapping[str, float]


@dataclass(frozen=True)
class ParetoFront:
    """The candidates of which none is better in every measure, the best one for the aim first."""

    measures: tuple[Measure, ...] = ()
    candidates: tuple[OnFront, ...] = ()


def _decode(trial: Trial) -> float | None:
    return Objective(purpose="decode").score(trial.figures)


def _energy(trial: Trial) -> float | None:
    score = Objective(purpose="efficiency").score(trial.figures)
    return 1 / score if score else None


def _cache_bits(trial: Trial) -> float | None:
    """Bits of a value of the cache, which memory of a context goes with: its type says it, and nothing is measured."""
    block = BLOCKS.get(str(trial.keys.get(KV)).upper())
    return None if block is None else 8 * block[0] / block[1]


MEASURES = (
    Measure("decode", "t/s", _decode),
    Measure("prefill", "t/s", lambda trial: trial.figures.prefill),
    Measure("together", "t/s", lambda trial: trial.figures.total),
    Measure("energy", "J a token", _energy, less=True),
    Measure("cache", "bits a value", _cache_bits, less=True),
)
"""In which candidates are held against each other, where all of them have it and it is not the same for all."""


def pareto_front(search: Search) -> ParetoFront:
    """The front of a search; an empty one where fewer than two things are known of all its candidates.

    Of those that are alike in everything, within 3 %, the best one for the aim stands for all.
    """
    known = _known(search)
    measures = tuple(each for each in MEASURES if _is_distinctive(each, known))
    if len(measures) < 2:
        return ParetoFront()
    every = [OnFront(candidate, _figures(measures, trials)) for candidate, trials in known.items()]
    # Whoever is better than another in everything comes before it: each is held against the front alone.
    every.sort(key=lambda each: [-one.gain(each.figures[one.name], 1.0) for one in measures])
    whole: list[OnFront] = []
    for each in every:
        if not any(_dominates(measures, other, each) for other in whole):
            whole.append(each)
    kept: list[OnFront] = []
    for each in sorted(whole, key=lambda one: -_score(search, known[one.candidate])):
        if not any(_as_good(measures, other, each, 1 - _ALIKE) for other in kept):
            kept.append(each)
    return ParetoFront(measures, tuple(kept))


def _known(search: Search) -> dict[Candidate, list[Trial]]:
    """The readings of each candidate that has a score: those of the rounds of the end, where there are some."""
    found: dict[Candidate, list[Trial]] = {}
    for each in search.told:
        if search.outcome(each).score is not None:
            found.setdefault(candidate_of(each.keys), []).append(each)
    return {candidate: [each for each in its if each.round is not None] or its for candidate, its in found.items()}


def _score(search: Search, trials: Sequence[Trial]) -> float:
    return fmean(search.outcome(each).score or 0.0 for each in trials)


def _is_distinctive(measure: Measure, known: Mapping[Candidate, Sequence[Trial]]) -> bool:
    values = [measure.of(each) for trials in known.values() for each in trials]
    return None not in values and len(set(values)) > 1


def _figures(measures: Sequence[Measure], trials: Sequence[Trial]) -> dict[str, float]:
    return {each.name: fmean(value for trial in trials if (value := each.of(trial)) is not None) for each in measures}


def _as_good(measures: Sequence[Measure], one: OnFront, other: OnFront, least: float) -> bool:
    return all(each.gain(one.figures[each.name], other.figures[each.name]) >= least for each in measures)


def _dominates(measures: Sequence[Measure], one: OnFront, other: OnFront) -> bool:
    return one.figures != other.figures and _as_good(measures, one, other, 1.0)
