"""The share of each key in what makes a candidate one of the best tenth: PED-ANOVA, as Optuna has it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import FrozenTrial, create_trial

from llamaherd.tune.candidate import Value
from llamaherd.tune.trials import Trials


def ped_anova(trials: Trials, keys: Sequence[str]) -> Mapping[str, float]:
    """Shares that are 1 together; empty where the trials do not tell the best ones from the others.

    A key that is left out, as that of a draft where nothing is drafted, has that for a value.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    values = {key: _values(trials, key) for key in keys}
    study = optuna.create_study(direction="maximize")
    study.add_trials(
        [
            _trial(values, {key: candidate[key] for key in keys}, outcome.score)
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


def _values(trials: Trials, key: str) -> list[Value]:
    """All values of a key that were tried, in their order; one that is left out first."""
    seen = {candidate[key] for candidate, outcome in trials if outcome.score is not None}
    return sorted(seen, key=lambda each: (each is not None, _number(each), str(each)))


def _number(value: Value) -> float:
    return value if isinstance(value, int | float) else 0.0


def _trial(values: Mapping[str, Sequence[Value]], own: Mapping[str, Value], score: float) -> FrozenTrial:
    distributions: dict[str, BaseDistribution] = {
        key: CategoricalDistribution(tuple(range(len(seen))))
        if any(isinstance(each, str) for each in seen)
        else IntDistribution(0, len(seen) - 1)
        for key, seen in values.items()
    }
    params = {key: values[key].index(value) for key, value in own.items()}
    return create_trial(params=params, distributions=distributions, value=score)
