"""Optuna's models of all trials: the estimator that proposes candidates, and PED-ANOVA for the importance of keys."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, Trial, create_trial

from llamaherd.measure.tune.candidate import Candidate, Outcome, Outcomes, Value
from llamaherd.measure.tune.search import Axis, Space, Walk, cliffs


def ped_anova(trials: Outcomes, keys: Sequence[str]) -> Mapping[str, float]:
    """Return shares with the sum 1; empty if the trials do not separate the best ones from the others.

    An absent key, as that of a draft without drafting, counts as a value.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    values = {key: _values(trials, key) for key in keys}
    study = optuna.create_study(direction="maximize")
    study.add_trials(
        [
            _importance_trial(values, {key: candidate[key] for key in keys}, outcome.score)
            for candidate, outcome in trials
            if outcome.score is not None
        ]
    )
    with warnings.catch_warnings():
        # It warns if there are too few trials, and returns nothing then.
        warnings.simplefilter("ignore")
        found = PedAnovaImportanceEvaluator().evaluate(study)
    whole = sum(found.values())
    return {key: found.get(key, 0.0) / whole for key in keys} if whole > 0 else {}


def _values(trials: Outcomes, key: str) -> list[Value]:
    """Return all tried values of a key, in their order; an absent one first."""
    tried = {candidate[key] for candidate, outcome in trials if outcome.score is not None}
    return sorted(tried, key=lambda each: (each is not None, _number(each), str(each)))


def _number(value: Value) -> float:
    return value if isinstance(value, int | float) else 0.0


def _importance_trial(values: Mapping[str, Sequence[Value]], own: Mapping[str, Value], score: float) -> FrozenTrial:
    distributions: dict[str, BaseDistribution] = {
        key: CategoricalDistribution(tuple(range(len(tried))))
        if any(isinstance(each, str) for each in tried)
        else IntDistribution(0, len(tried) - 1)
        for key, tried in values.items()
    }
    params = {key: values[key].index(value) for key, value in own.items()}
    return create_trial(params=params, distributions=distributions, value=score)


_LOST = 0.5
"""The share of the worst score that a failed candidate counts with."""
_TRIES = 20
"""Proposals that are known already or do not fit, before the last one is used."""
_SEEDS = 100_003


def parzen(space: Space, trials: Outcomes, seed: int = 0, *, random: int = 10) -> Walk:
    """Yield candidates without end, each by all `trials` so far; the first `random` ones are random."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    axes = [axis for axis in space.axes if axis.key not in space.packed]
    while True:
        sampler = TPESampler(seed=seed * _SEEDS + len(trials), n_startup_trials=random)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        lost = _lost(trials)
        study.add_trials([_sampler_trial(axes, candidate, outcome, lost) for candidate, outcome in trials])
        yield _untried(study, space, axes, trials, lost)


def _untried(study: optuna.Study, space: Space, axes: Sequence[Axis], trials: Outcomes, lost: float) -> Candidate:
    """Return a proposal that was not tried yet, if possible: a rejected one makes the model propose another."""
    candidate: Candidate | None = None
    fell = cliffs(space, trials)
    for _ in range(_TRIES):
        trial = study.ask()
        asked = space.tidy(_suggested(trial, axes))
        if fell.isdisjoint(asked.keys):
            candidate = space.pack(asked) or candidate
            if candidate is not None and candidate not in trials.outcomes:
                break
        study.tell(trial, lost)
    # A known candidate is not measured again: the search counts it as no new proposal.
    return candidate or next(iter(trials.outcomes), Candidate())


def _suggested(trial: Trial, axes: Sequence[Axis]) -> Candidate:
    """Return values of all axes that have an effect; a dependent key comes after the one that it needs."""
    found = Candidate()
    for axis in axes:
        if axis.among(found):
            found = found.with_keys({axis.key: axis.values[_place(trial, axis)]})
    return found


def _place(trial: Trial, axis: Axis) -> int:
    if axis.how == "climb":
        return trial.suggest_int(axis.key, 0, len(axis.values) - 1)
    return trial.suggest_categorical(axis.key, range(len(axis.values)))


def _sampler_trial(axes: Sequence[Axis], candidate: Candidate, outcome: Outcome, lost: float) -> FrozenTrial:
    meant = [axis for axis in axes if axis.among(candidate)]
    return create_trial(
        params={axis.key: axis.near(candidate[axis.key]) for axis in meant},
        distributions={axis.key: _distribution(axis) for axis in meant},
        value=lost if outcome.score is None else outcome.score,
    )


def _distribution(axis: Axis) -> BaseDistribution:
    if axis.how == "climb":
        return IntDistribution(0, len(axis.values) - 1)
    return CategoricalDistribution(tuple(range(len(axis.values))))


def _lost(trials: Outcomes) -> float:
    return _LOST * min((outcome.score for _, outcome in trials if outcome.score is not None), default=0.0)
