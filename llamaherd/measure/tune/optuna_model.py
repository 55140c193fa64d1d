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
from llamaherd.measure.tune.search import Walk, cliffs
from llamaherd.measure.tune.space import Axis, Space


def ped_anova(trials: Outcomes, keys: Sequence[str]) -> Mapping[str, float]:
    """Shares that are 1 together; empty where the trials do not tell the best ones from the others.

    A key that is left out, as that of a draft where nothing is drafted, has that for a value.
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
        # It warns where trials are too few, and gives nothing then.
        warnings.simplefilter("ignore")
        found = PedAnovaImportanceEvaluator().evaluate(study)
    whole = sum(found.values())
    return {key: found.get(key, 0.0) / whole for key in keys} if whole > 0 else {}


def _values(trials: Outcomes, key: str) -> list[Value]:
    """All values of a key that were tried, in their order; one that is left out first."""
    seen = {candidate[key] for candidate, outcome in trials if outcome.score is not None}
    return sorted(seen, key=lambda each: (each is not None, _number(each), str(each)))


def _number(value: Value) -> float:
    return value if isinstance(value, int | float) else 0.0


def _importance_trial(values: Mapping[str, Sequence[Value]], own: Mapping[str, Value], score: float) -> FrozenTrial:
    distributions: dict[str, BaseDistribution] = {
        key: CategoricalDistribution(tuple(range(len(seen))))
        if any(isinstance(each, str) for each in seen)
        else IntDistribution(0, len(seen) - 1)
        for key, seen in values.items()
    }
    params = {key: values[key].index(value) for key, value in own.items()}
    return create_trial(params=params, distributions=distributions, value=score)


_LOST = 0.5
"""Of the worst score that was seen: what a candidate counts for that has none."""
_TRIES = 20
"""Proposals that are known already or fit nowhere, before the last one is taken."""
_SEEDS = 100_003


def parzen(space: Space, trials: Outcomes, seed: int = 0, *, random: int = 10) -> Walk:
    """Candidates without end, each by all `trials` there are then; the first `random` ones of all by chance."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    axes = [axis for axis in space.axes if axis.key not in space.packed]
    while True:
        sampler = TPESampler(seed=seed * _SEEDS + len(trials), n_startup_trials=random)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        lost = _lost(trials)
        study.add_trials([_sampler_trial(axes, candidate, outcome, lost) for candidate, outcome in trials])
        yield _untried(study, space, axes, trials, lost)


def _untried(study: optuna.Study, space: Space, axes: Sequence[Axis], trials: Outcomes, lost: float) -> Candidate:
    """A proposal that was not tried yet, if there is one: told that one is no good, the model makes another."""
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
    # One that is known already is not read again, and tells the search that there is nothing new.
    return candidate or next(iter(trials.outcomes), Candidate())


def _suggested(trial: Trial, axes: Sequence[Axis]) -> Candidate:
    """Values of all axes that mean something: one that needs another key is asked for after it."""
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
