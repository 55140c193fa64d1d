"""A model of all trials that proposes the next candidate: Optuna's tree-structured Parzen estimator.

It is made anew from the trials for each proposal, with a seed that hangs on their number: it needs no file of its own,
and a search that was killed goes on as if it had not been.
"""

from __future__ import annotations

from collections.abc import Sequence

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, Trial, create_trial

from llamaherd.tune.candidate import Candidate
from llamaherd.tune.one_pass import Walk, cliffs
from llamaherd.tune.space import Axis, Space
from llamaherd.tune.trials import Outcome, Trials

_LOST = 0.5
"""Of the worst score that was seen: what a candidate counts for that has none."""
_TRIES = 20
"""Proposals that are known already or fit nowhere, before the last one is taken."""
_SEEDS = 100_003


def parzen(space: Space, trials: Trials, seed: int = 0, *, random: int = 10) -> Walk:
    """Candidates without end, each by all `trials` there are then; the first `random` ones of all by chance."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    axes = [axis for axis in space.axes if axis.key not in space.packed]
    while True:
        sampler = TPESampler(seed=seed * _SEEDS + len(trials), n_startup_trials=random)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        lost = _lost(trials)
        study.add_trials([_trial(axes, candidate, outcome, lost) for candidate, outcome in trials])
        yield _new(study, space, axes, trials, lost)


def _new(study: optuna.Study, space: Space, axes: Sequence[Axis], trials: Trials, lost: float) -> Candidate:
    """A proposal that was not tried yet, if there is one: told that one is no good, the model makes another."""
    candidate: Candidate | None = None
    fell = cliffs(space, trials)
    for _ in range(_TRIES):
        trial = study.ask()
        asked = space.tidy(_asked(trial, axes))
        if fell.isdisjoint(asked.keys):
            candidate = space.pack(asked) or candidate
            if candidate is not None and candidate not in trials.outcomes:
                break
        study.tell(trial, lost)
    # One that is known already is not read again, and tells the search that there is nothing new.
    return candidate or next(iter(trials.outcomes), Candidate())


def _asked(trial: Trial, axes: Sequence[Axis]) -> Candidate:
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


def _trial(axes: Sequence[Axis], candidate: Candidate, outcome: Outcome, lost: float) -> FrozenTrial:
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


def _lost(trials: Trials) -> float:
    return _LOST * min((outcome.score for _, outcome in trials if outcome.score is not None), default=0.0)
