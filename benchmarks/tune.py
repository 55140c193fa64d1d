"""How near the best a search comes on rigs that are a law alone, beside others: each on the same rigs, in one run.

    .venv/bin/python -m benchmarks.tune [--seeds 20] [--evaluations 30] [--noise 0.01]

docs/measurements/tune.md has its table.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from itertools import islice
from statistics import median

from benchmarks.tune_law import DRAFTED, THREADS, UBATCH, LawRig
from llamaherd.measure.tune.candidate import Candidate, Outcome, Outcomes
from llamaherd.measure.tune.optuna_model import parzen
from llamaherd.measure.tune.search import Model, Space, search


def main() -> None:
    """Print a row for each way to search."""
    parser = argparse.ArgumentParser(description="Search on rigs whose best is known.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=30)
    parser.add_argument("--noise", type=float, default=0.01)
    wished = parser.parse_args()
    rigs = [LawRig.drawn(seed, wished.noise) for seed in range(wished.seeds)]
    bests = [rig.best() for rig in rigs]
    print("| search | median | worst | out of memory |")
    print("| --- | --- | --- | --- |")
    for name, tried in WAYS.items():
        shares, lost = [], 0
        for seed, (rig, best) in enumerate(zip(rigs, bests, strict=True)):
            trials = tried(rig, seed, wished.evaluations)
            lost += sum(outcome.why == "memory" for _, outcome in trials)
            chosen = trials.best(1)
            shares.append(rig.score(chosen[0]) / best if chosen else 0.0)
        share = lost / (wished.seeds * wished.evaluations)
        print(f"| {name} | {median(shares):.3f} | {min(shares):.3f} | {100 * share:.0f} % |", flush=True)


def ours(rig: LawRig, seed: int, evaluations: int) -> Outcomes:
    """One pass, then the model for what is left."""
    return _searched(rig, rig.space(), seed, evaluations, parzen_of(seed))


def ours_blind(rig: LawRig, seed: int, evaluations: int) -> Outcomes:
    """The same without knowing what memory holds."""
    return _searched(rig, rig.space(arithmetic=False), seed, evaluations, parzen_of(seed))


def pass_alone(rig: LawRig, seed: int, evaluations: int) -> Outcomes:
    """One pass, and no model."""
    return _searched(rig, rig.space(), seed, evaluations, None)


def model_alone(rig: LawRig, seed: int, evaluations: int) -> Outcomes:
    """The model, with arithmetic."""
    return _modelled(rig, rig.space(), seed, evaluations)


def model_blind(rig: LawRig, seed: int, evaluations: int) -> Outcomes:
    """The model, without."""
    return _modelled(rig, rig.space(arithmetic=False), seed, evaluations)


def chance(rig: LawRig, seed: int, evaluations: int) -> Outcomes:
    """Whatever comes, packed by arithmetic."""
    lot, space, trials = random.Random(seed), rig.space(), Outcomes()
    evaluate = evaluation(rig, seed)
    while len(trials) < evaluations:
        found = space.pack(space.tidy(Candidate.of({axis.key: lot.choice(axis.values) for axis in space.axes})))
        if found and found not in trials.outcomes:
            trials.add(found, evaluate(found))
    return trials


def parzen_of(seed: int) -> Model:
    """The model with a seed."""
    return lambda space, trials: parzen(space, trials, seed)


def evaluation(rig: LawRig, seed: int) -> Callable[[Candidate], Outcome]:
    """What a reading of a candidate says: the truth, and noise."""
    lot = random.Random(seed + 7919)

    def evaluate(candidate: Candidate) -> Outcome:
        if not rig.fits(candidate):
            return Outcome(None, why="memory")
        return Outcome(rig.score(candidate) * (1 + lot.gauss(0, rig.noise)))

    return evaluate


def start_of(rig: LawRig) -> Candidate:
    """What somebody has who set nothing but what fits."""
    space = rig.space()
    usual = space.tidy(Candidate.of({THREADS: rig.cores, UBATCH: 512, "kv": "f16", DRAFTED: None}))
    return space.pack(usual) or usual


def _searched(rig: LawRig, space: Space, seed: int, evaluations: int, model: Model | None) -> Outcomes:
    trials = Outcomes()
    search(space, start_of(rig), trials, evaluation(rig, seed), lambda: len(trials) < evaluations, model)
    return trials


def _modelled(rig: LawRig, space: Space, seed: int, evaluations: int) -> Outcomes:
    trials, evaluate = Outcomes(), evaluation(rig, seed)
    for candidate in islice(parzen(space, trials, seed), evaluations * 5):
        if len(trials) == evaluations:
            break
        if candidate not in trials.outcomes:
            trials.add(candidate, evaluate(candidate))
    return trials


WAYS: dict[str, Callable[[LawRig, int, int], Outcomes]] = {
    "one pass, then the model": ours,
    "one pass alone": pass_alone,
    "one pass, then the model, without arithmetic of memory": ours_blind,
    "the model alone": model_alone,
    "the model alone, without arithmetic of memory": model_blind,
    "by chance": chance,
}

if __name__ == "__main__":
    main()
