"""How much each key matters to a search: by its best candidates with and without a value, and by PED-ANOVA. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from llamaherd.tune.candidate import Candidate, Value
from llamaherd.tune.packing import BATCH, EXPERTS, LAYERS
from llamaherd.tune.trials import Trials

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
        from llamaherd.tune.ped_anova import ped_anova
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
    every = [_of(trials, best[0], key, share.get(key)) for key in keys]
    return tuple(sorted(every, key=lambda each: (-(each.share or 0.0), -each.gain)))


def _varied(trials: Trials) -> list[str]:
    """Keys that are searched for, of which two values have a score."""
    values: dict[str, set[Value]] = {}
    for candidate, _ in _scored(trials):
        for key, value in candidate.keys:
            values.setdefault(key, set()).add(value)
    return [key for key, seen in values.items() if len(seen) > 1 and key not in FOLLOW]


def _of(trials: Trials, best: Candidate, key: str, share: float | None) -> Importance:
    value = best[key]
    others = [(score, each[key]) for each, score in _scored(trials) if each[key] != value]
    without, other = max(others, key=lambda pair: pair[0])
    with_it = max(score for each, score in _scored(trials) if each[key] == value)
    return Importance(key, value, with_it, other, without, _alone(trials, key, value), share)


def _alone(trials: Trials, key: str, value: Value) -> float | None:
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
