"""Random kills in the middle of changes of servers, by the rounds that benchmarks/faults.py has hundreds of.

After each round the next run ends as it should, each server that worked answers a prompt, the run after that finds
nothing to do, and nothing is left over. What is killed, when, and in which change, follows from a seed: that of a run
that failed, in LLAMAHERD_SEED, repeats it.
"""

import os
import random
from pathlib import Path

from benchmarks.faults import made
from benchmarks.faults_cases import AGAIN, drawn
from benchmarks.faults_rounds import Bench, tried
from box import downloads
from tests.box.slot import compiling

KILLS = 40
"""Those count that hit a run while it changes the host."""
IN_A_ROUND = 6
MOST_ROUNDS = 20
COMPILED = 3600
"""Seconds in which an engine is compiled by the slowest machine."""


def test_every_run_goes_on_from_where_another_was_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("LLAMAHERD_SEED") or random.randrange(10**6))
    again = (
        f"LLAMAHERD_SEED={seed} repeats it, and so does python -m benchmarks.faults --kills {IN_A_ROUND} --seed {seed}"
    )
    print(f"seed {seed}: {again}")
    with made("llamaherd-killed", 2252) as box:
        bench = Bench(box, tmp_path / "box.yaml")
        bench.declare(lambda _: None)
        with compiling(box, downloads.LLAMA_CPP):
            bench.expect(0, "up", "-v", "--yes", seconds=COMPILED)
        for number in range(1, MOST_ROUNDS + 1):
            wrong = tried(bench, drawn(seed, number, IN_A_ROUND, AGAIN))
            assert not wrong, f"{wrong}\n{again} --only {number}"
            if bench.hits >= KILLS:
                break
    assert bench.hits >= KILLS, again
