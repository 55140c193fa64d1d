"""What a search comes to on the box, beside the best of all that it could have tried.

    scripts/box
    .venv/bin/python -m benchmarks.tune_box [--budget 600] [--inventory box.yaml] [--most 60] [RIG INSTANCE]

The inventory's instance is tuned from what it declares, as `herd tune` does it. Then every candidate of the grid is
started once, or as many as `--most` says, drawn by lot. The five best of those are started three times more, in turns,
and the best one by that is held against what the search has found in blocks of its own: what was luckiest in the
readings that chose it is not judged by them. It needs a quiet machine, the extra `tune`, and leaves the declared
server as it was.
"""

from __future__ import annotations

import argparse
import tempfile
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from random import Random
from statistics import fmean

from llamaherd.measure.statistics import Block, block_orders, paired_ratio
from llamaherd.measure.trials.trial import Trial, TrialHost, read_keys
from llamaherd.measure.tune.candidate import Candidate, Cost, Objective, Outcome, Precision
from llamaherd.measure.tune.evaluation import Evaluation
from llamaherd.measure.tune.journal import Head, SearchJournal, candidate_of, keys_of
from llamaherd.measure.tune.optuna_model import parzen
from llamaherd.measure.tune.search import HEAD
from llamaherd.measure.tune.tuning import TuneTarget, Tuning, tune_target
from roles import ROLES

_MOST = 6 * 3600
_ROUNDS, _AGAIN, _BEST, _BLOCKS = 2, 3, 5, 8


def main() -> None:
    """Search, go over the grid, and say how near they are."""
    parser = argparse.ArgumentParser(description="A search beside the whole grid.")
    parser.add_argument("--budget", type=float, default=600)
    parser.add_argument("--inventory", type=Path, default=Path("inventory/box.yaml"))
    parser.add_argument("--most", type=int, help="candidates of the grid, by lot")
    parser.add_argument("rig", nargs="?", default="box")
    parser.add_argument("instance", nargs="?", default="chat")
    wished = parser.parse_args()
    of = tune_target(wished.inventory, ROLES, wished.rig, wished.instance)
    first = of.variant(of.start, None)
    trial = Trial(
        of.rig.rig,
        of.rig.connect,
        (first,),
        (of.declared,),
        _MOST,
        "a benchmark",
        print,
        keys=read_keys((first,)),
        replaceable=True,
    )
    with TrialHost(trial, "grid") as host, tempfile.TemporaryDirectory() as folder:
        evaluation = Evaluation(host, of.variant, Objective(), of.context, lambda each: each[HEAD] is not None)
        found, seconds = _searched(of, evaluation, wished.budget, Path(folder))
        grid = _grid(of, evaluation, wished.most)
        _judged(evaluation, found, grid, seconds)


def _searched(of: TuneTarget, evaluation: Evaluation, budget: float, folder: Path) -> tuple[Candidate, float]:
    head = Head(
        llamaherd="0",
        rig=of.rig.rig,
        instance=of.declared.name,
        began=_stamp(),
        identity=of.identity,
        aim=evaluation.aim,
        declared=keys_of(of.start),
    )
    with SearchJournal.begin(folder, head) as journal:
        tuning = Tuning(evaluation, journal, of.space, of.start, budget, Lines(), _stamp, parzen)
        found = candidate_of(tuning.run().keys)
        for each in tuning.standings():
            print(f"  {evaluation.aim.shown(each.score)}  {each.judgement or ''}  {each.candidate}")
        return found, journal.search.seconds


def _grid(of: TuneTarget, evaluation: Evaluation, most: int | None) -> list[Candidate]:
    """Every candidate there is, or as many by lot, the best first as each was read once."""
    axes = of.space.axes
    every = [
        of.space.pack(of.space.tidy(of.start.with_keys(dict(zip((axis.key for axis in axes), values, strict=True)))))
        for values in product(*(axis.values for axis in axes))
    ]
    grid = list(dict.fromkeys(each for each in every if each is not None))
    drawn = Random(0).sample(grid, min(most or len(grid), len(grid)))
    print(f"{len(drawn)} of {len(grid)} candidates", flush=True)
    seen: dict[Candidate, float] = {}
    for number, candidate in enumerate(drawn, 1):
        score = evaluation.aim.score(evaluation.measure(candidate, 1).figures)
        seen[candidate] = score or 0.0
        print(f"grid {number:>3}  {evaluation.aim.shown(score) if score else 'none'}  {candidate}", flush=True)
    return sorted(seen, key=lambda each: -seen[each])


def _judged(evaluation: Evaluation, found: Candidate, grid: list[Candidate], seconds: float) -> None:
    """How near what was found is to the best of the grid."""

    def score(candidate: Candidate) -> float:
        return evaluation.aim.score(evaluation.measure(candidate, _ROUNDS).figures) or 1e-9

    chosen = grid[:_BEST]
    scores: dict[Candidate, list[float]] = {each: [] for each in chosen}
    for number in range(_AGAIN):
        for each in chosen if number % 2 else reversed(chosen):
            scores[each].append(score(each))
    best = max(chosen, key=lambda each: fmean(scores[each]))
    print(f"\nfound in {seconds:.0f} s: {found}\nthe best of the grid: {best}")
    if best == found:
        print("they are the same")
        return
    blocks: list[Block] = []
    for order in block_orders("grid", _BLOCKS):
        by = {variant: score(best if variant == "A" else found) for variant in order}
        blocks.append(Block(by["A"], by["B"]))
    share = paired_ratio(blocks)
    assert share
    assert share.low
    assert share.high
    print(f"share of the best: {share.value:.3f} ({share.low:.3f} to {share.high:.3f})")


class Lines:
    """A line for each candidate."""

    def began(self, number: int, seconds_left: float) -> None:
        """Its number, and the time that is left."""
        print(f"{number:>3}  {seconds_left:>4.0f} s  ", end="", flush=True)

    def ended(self, candidate: Candidate, outcome: Outcome, _best: float | None, _cost: Cost | None) -> None:
        """What came of it."""
        print(f"{outcome.score or outcome.why}  {candidate}", flush=True)

    def judging(self, precision: Precision) -> None:
        """Nothing is declared that is to be judged."""

    def confirming(self, count: int, number: int) -> None:
        """A round of the end begins."""
        print(f"round {number}, of {count}", flush=True)

    def deepening(self, candidate: Candidate, depth: int) -> None:
        """Do nothing: the full depth is not measured here."""

    def limiting(self, watts: int, number: int) -> None:
        """Do nothing: power limits are not measured here."""


def _stamp() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


if __name__ == "__main__":
    main()
