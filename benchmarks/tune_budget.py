"""What `herd tune` finds on the rig of docs/rigs/budget.md, as a law (`tune_budget_law.py`), beside its owner's runs.

    .venv/bin/python -m benchmarks.tune_budget

Axes and memory are those of the tool for inventory/examples/budget.yaml, and headers of the models' shape. What a
candidate decodes is the law's, with an error of 1 %. docs/measurements/rigs.md has what it prints.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from statistics import median

from benchmarks.tune import parzen_of
from benchmarks.tune_budget_law import ALL, MEASURED, NAIVE, Budget, owners_law
from llamaherd.inventory.schema import Instance
from llamaherd.measure.tune.candidate import Candidate, Outcome, Outcomes
from llamaherd.measure.tune.search import EXPERTS, LAYERS, SearchedInstance, Space, search, space_of
from llamaherd.memory.facts import rig_facts
from tests.support.examples import fleet
from tests.support.headers import qwen_35b

QUANTS = {"Q3_K_M": ("Q3_K", "Q4_K"), "IQ2_XXS": ("IQ2_XXS", "")}
RECIPE = {"Q3_K_M": 17, "IQ2_XXS": 27}
"""Layers on the GPU of the owner's best with each quant."""
SHARES, MIDDLE = (0.3, 0.5, 0.7, 0.9), 0.5
"""Of the time of a layer on the CPU, what may be that of its experts; and what is taken where one alone is shown."""
SEEDS, TRIED, NEAR = 10, 30, 0.98
_FILE = 9.6
"""GB of the owner's file."""


def main() -> None:
    """Print the tables of the page."""
    print("\n".join(lines()))


def lines() -> Iterator[str]:
    """All that is printed."""
    yield from _law()
    yield from ("", "| quant | from | t/s | found | t/s | candidates, of 30 |", "| --- |" + " --- |" * 5)
    for quant, layers in product(QUANTS, (0, None)):
        yield _found(quant, RECIPE[quant] if layers is None else layers)
    shares = " | ".join(f"{share:.0%}" for share in SHARES)
    yield from ("", f"| share of experts in a layer's time | {shares} |", f"| --- |{' --- |' * len(SHARES)}")
    for quant in QUANTS:
        told = [f"{Budget(quant, share).decode(best(quant, share)):.1f} t/s" for share in SHARES]
        yield f"| {quant}, the best that can be tried | {' | '.join(told)} |"


def _law() -> Iterator[str]:
    yield from ("| what | the owner | the law |", "| --- | --- | --- |")
    for (quant, layers, threads), speed in MEASURED.items():
        law = Budget(quant, MIDDLE).decode(Candidate.of({LAYERS: layers, "threads": threads}))
        yield f"| {quant}, {layers} layers, {threads} threads | {speed:.1f} t/s | {law:.1f} t/s |"
    law = Budget("Q3_K_M", MIDDLE).decode(Candidate.of({LAYERS: 0}))
    yield f"| the beginning; Q3_K_M, no layer, 8 threads | {NAIVE} t/s | {law:.1f} t/s |"
    speed = MEASURED["IQ2_XXS", 27, 8]
    own = owners_law(_FILE * (ALL - 27) / ALL)
    yield f"| the owner's own power law, IQ2_XXS, 27 layers | {speed:.1f} t/s | {own:.1f} t/s |"
    for quant in QUANTS:
        most = most_layers(quant)
        law = Budget(quant, MIDDLE).decode(Candidate.of({LAYERS: most}))
        yield f"| {quant}, {most} layers, the most that fit by arithmetic | | {law:.1f} t/s |"


def _found(quant: str, layers: int) -> str:
    """Some searches with an error of their own each: what the middle one comes to, and after how many candidates."""
    every = [Searched.of(quant, layers, seed) for seed in range(SEEDS)]
    law, one = Budget(quant, MIDDLE), every[0]
    worst = min(law.decode(each.found) for each in every)
    speeds = [law.decode(each.found) for each in every]
    needed = [each.needed for each in every]
    return (
        f"| {quant} | {layers} layers | {law.decode(one.start):.1f} | `experts_on_cpu: {one.found[EXPERTS]}` "
        f"| {median(speeds):.1f}, at worst {worst:.1f} | {median(needed):.0f}, at most {max(needed)} |"
    )


@dataclass(frozen=True)
class Searched:
    """What one search began with and came to, and how many candidates it took to be near the best of all."""

    start: Candidate
    found: Candidate
    needed: int

    @classmethod
    def of(cls, quant: str, layers: int, seed: int) -> Searched:
        """A search from so many layers on the GPU, and all else as it is declared."""
        law, lot, trials = Budget(quant, MIDDLE), random.Random(seed), Outcomes()
        space, start = space_from(quant, layers)

        def evaluate(candidate: Candidate) -> Outcome:
            return Outcome(law.decode(candidate) * (1 + lot.gauss(0, law.noise)))

        search(space, start, trials, evaluate, lambda: len(trials) < TRIED, parzen_of(seed))
        least = NEAR * law.decode(best(quant, MIDDLE))
        near = (at for at, (candidate, _) in enumerate(trials, start=1) if law.decode(candidate) >= least)
        return cls(start, trials.best(1)[0], next(near, TRIED))


def known(quant: str, layers: int) -> SearchedInstance:
    """The example's instance with this quant, and so many layers on the GPU."""
    rig = fleet().rigs["budget"]
    chat = _with(rig.instances["chat"], layers)
    experts, down = QUANTS[quant]
    headers = {chat.model: qwen_35b(experts, down, mtp=False)}
    return SearchedInstance(rig.model_copy(update={"instances": {"chat": chat}}), "chat", headers)


@cache
def space_from(quant: str, layers: int) -> tuple[Space, Candidate]:
    """What the tool may change, and where it begins. Arithmetic that was done once is not done again."""
    space, start = space_of(known(quant, layers), judged=False)
    return Space(space.axes, cache(space.pack), space.packed, cache(space.unpack)), start


@cache
def best(quant: str, share: float) -> Candidate:
    """The best of all that the tool could have tried."""
    space, start = space_from(quant, RECIPE[quant])
    axes = [(axis.key, {*axis.values, start[axis.key]}) for axis in space.axes]
    every = (dict(zip((key for key, _ in axes), each, strict=True)) for each in product(*(its for _, its in axes)))
    return max(
        (packed for keys in every if (packed := space.pack(start.with_keys(keys)))), key=Budget(quant, share).decode
    )


def most_layers(quant: str) -> int:
    """How many layers of a quant the GPU holds, with the keys of the example."""
    return max(layers for layers in range(ALL + 1) if _fits(known(quant, layers)))


def _fits(of: SearchedInstance) -> bool:
    return rig_facts(of.rig, of.headers, {}).sized["chat"].fit.fits


def _with(instance: Instance, layers: int) -> Instance:
    return instance.model_copy(update={"gpu_layers": layers})


if __name__ == "__main__":
    main()
