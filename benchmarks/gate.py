"""How often a gate takes back what is slower, and lets in what is not: servers of exact times, by the gate's own code.

    .venv/bin/python -m benchmarks.gate [--rounds 200]

Servers are played by a clock that they alone move on; blocks, order, statistics, verdicts and the budget are those of
`herd up`. docs/measurements/safety.md has its table. With `TMPDIR` in memory it takes a fifth of the time.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from llamaherd.measure.results.comparison import compare_results
from llamaherd.measure.trials.gate import GateRow, gate_cells, gate_left, gate_rows
from llamaherd.measure.trials.pair import Blocks, JournalPair, trial_conditions
from llamaherd.measure.trials.trial import TrialServers
from llamaherd.plan import GatePlan
from tests.bench.played_arms import Played, begun

GATE = GatePlan(decode=0.03, prefill=0.05, seconds=20 * 60)
ASKED = trial_conditions(gate_cells(GATE), 8192)
SLOWER = (0.0, 0.02, 0.03, 0.04, 0.05, 0.08)
HOSTS = {"calm": (0.004, 0.005), "as usual": (0.01, 0.01), "noisy": (0.03, 0.03)}
"""By how much starts differ from each other, and requests of the same start."""


@dataclass(frozen=True)
class Round:
    """What became of one gate: its verdict, and how long it took."""

    verdict: str
    blocks: int
    minutes: float


def main() -> None:
    """Print a row for each host and each B."""
    parser = argparse.ArgumentParser(description="Measure by gates whose answer is known.")
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    print("| host | B is slower by | taken back | let in: held | let in: not known | blocks, most | minutes |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for host, errors in HOSTS.items():
        for slower in SLOWER:
            print(_row(host, slower, list(_rounds(slower, errors, rounds))), flush=True)


def _rounds(slower: float, errors: tuple[float, float], rounds: int) -> Iterator[Round]:
    for seed in range(rounds):
        servers = Played(seed, slower, start_error=errors[0], run_error=errors[1])
        yield _gated(servers, f"round {seed}")


def _gated(servers: Played, session: str) -> Round:
    verdict = worst(row.verdict for row in gated(servers, session))
    return Round(verdict, len(servers.starts) // 2, servers.now / 60)


def gated(servers: TrialServers, session: str) -> tuple[GateRow, ...]:
    """One gate, from nothing to its verdicts."""
    with tempfile.TemporaryDirectory() as folder:
        pair = JournalPair(Path(folder), begun("A", ASKED, session), begun("B", ASKED, session))
        with closing(pair):
            blocks = Blocks(servers, pair.journals, ASKED, session, GATE.seconds)
            blocks.left = lambda found: gate_left(found, GATE, ASKED)
            blocks.run()
            found = compare_results(pair.journals["A"].result, pair.journals["B"].result)
    return gate_rows(found, GATE, spent=True)


def worst(verdicts: Iterable[str]) -> str:
    """What a gate comes to whose cells have these."""
    every = {*verdicts}
    return next(each for each in ("slower", "not known yet", "held") if each in every)


def _row(host: str, slower: float, rounds: list[Round]) -> str:
    counts = Counter(each.verdict for each in rounds)
    shares = " | ".join(f"{counts[each]} of {len(rounds)}" for each in ("slower", "held", "not known yet"))
    blocks = f"{median(each.blocks for each in rounds):.0f}, {max(each.blocks for each in rounds)}"
    minutes = median(each.minutes for each in rounds)
    return f"| {host} | {100 * slower:+.0f} % | {shares} | {blocks} | {minutes:.1f} |"


if __name__ == "__main__":
    main()
