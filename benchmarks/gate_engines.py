"""How often a gate takes back an engine that is slower, and lets in one that is not: real engines on a GPU.

    .venv/bin/python -m benchmarks.gate_engines --server BUILD/bin/llama-server --slower SLOWER/bin/llama-server \\
        --folder /dev/shm/models [--slowed 10] [--equal 20] [--gpu 0] [CASE]

A case is one of benchmarks/tune_gpu.py; its model has its shape and is filled with noise. Blocks, order, statistics,
verdicts and the budget are those of `herd up`; servers are processes of this program, as there is no systemd. How
SLOWER was made slower is in docs/measurements/safety.md, with the results.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gate import gated, worst
from benchmarks.gpu_servers import smi, written
from benchmarks.tune_gpu import CASES, Servers, rig_of
from llamaherd.gguf.shards import join_headers, read_headers
from llamaherd.measure.client.http_client import Failure, StreamedResponse
from llamaherd.measure.client.requests import RequestSpec
from llamaherd.measure.results.result import Start
from llamaherd.measure.trials.gate import GateRow
from llamaherd.measure.trials.trial import VariantName
from llamaherd.measure.tune.search import SearchedInstance, space_of


def main() -> None:
    """Print a line for each gate, and how often they ended how."""
    parser = argparse.ArgumentParser(description="Gates of real engines, one of them made slower.")
    parser.add_argument("name", nargs="?", default="fifth-dense")
    parser.add_argument("--server", type=Path, required=True)
    parser.add_argument("--slower", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--slowed", type=int, default=10)
    parser.add_argument("--equal", type=int, default=20)
    parser.add_argument("--gpu", type=int, default=0)
    asked = parser.parse_args()
    print("; ".join(smi("gpu", "name,memory.total,driver_version")[asked.gpu]), flush=True)
    ends: dict[str, Counter[str]] = {"slower": Counter(), "equal": Counter()}
    for what, program, times in (("slower", asked.slower, asked.slowed), ("equal", asked.server, asked.equal)):
        for number in range(times):
            both: dict[VariantName, Path] = {"A": asked.server, "B": program}
            ends[what][_gated(_trials(both, asked), f"{what} {number} on {asked.gpu}")] += 1
    for what, counts in ends.items():
        print(f"{what}: {dict(counts)}", flush=True)


def _trials(programs: Mapping[VariantName, Path], asked: argparse.Namespace) -> Trials:
    """The case's server twice, by two programs."""
    path = written(asked.folder, CASES[asked.name].model)
    known = SearchedInstance(rig_of(CASES[asked.name], path), "case", {"model": join_headers(read_headers(path))})
    _, declared = space_of(known, judged=False)
    trials: dict[VariantName, Servers] = {}
    for name, program in programs.items():
        trials[name] = Servers(program, asked.folder / f"gate-{asked.gpu}-{name}.log", known, path, asked.gpu)
        trials[name].place(trials[name].variant(declared, None))
    return Trials(trials)


@dataclass
class Trials:
    """Two servers, one of which runs at a time."""

    servers: Mapping[VariantName, Servers]
    runs: VariantName = field(default="A", init=False)

    def start(self, name: VariantName) -> Start:
        """Start a variant. Raises NotStartedError."""
        self.runs = name
        return self.servers[name].start("C")

    def stop(self) -> None:
        """Stop whichever runs."""
        self.servers[self.runs].stop()

    def request(self, wanted: RequestSpec) -> StreamedResponse | Failure:
        """One answer of the one that runs."""
        return self.servers[self.runs].request(wanted)

    def count(self, text: str) -> int:
        """Tokens that stand for a text."""
        return self.servers[self.runs].count(text)

    def clock(self) -> float:
        """Seconds."""
        return self.servers[self.runs].clock()


def _gated(trials: Trials, session: str) -> str:
    """One gate, from nothing to its verdict."""
    began = trials.clock()
    rows = gated(trials, session)
    verdict = worst(row.verdict for row in rows)
    print(f"{session}: {verdict} in {trials.clock() - began:.0f} s; {'; '.join(map(_row, rows))}", flush=True)
    return verdict


def _row(row: GateRow) -> str:
    return f"{row} ({row.verdict})"


if __name__ == "__main__":
    main()
