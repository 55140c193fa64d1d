"""What `herd bench` says of a server that nobody has changed: one measurement after the other, each beside the last.

    .venv/bin/python -m benchmarks.pairs [--pairs 20] [--time 60s] [--server chat]
    .venv/bin/python -m benchmarks.pairs --url http://127.0.0.1:8080/v1

The machine must be quiet. Without `--url`, the box that scripts/box makes must be there. Printed are, for each pair,
the verdicts of all speeds with their ratios, and at the end how many pairs are *same* throughout, by decode alone and
by all.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from llamaherd.measure.results.comparison import ComparisonRow
from llamaherd.measure.results.comparison_table import measurement_outcome
from llamaherd.measure.results.result import Start
from llamaherd.measure.results.store import read_result, result_files, results_folder

MARGIN = 0.02
HERD = (sys.executable, "-c", "from llamaherd.cli.__main__ import main; main()")


@dataclass(frozen=True)
class Cell:
    """One speed of a pair: its verdict, and how much faster the later one is, with its 95 % interval."""

    name: str
    metric: str
    verdict: str
    ratio: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, row: ComparisonRow, verdict: str) -> Cell:
        """A row of a comparison."""
        of, ratio = row.condition, row.ratio
        name = f"{of.kind} {of.cache}" if of.cache == "warm" else of.kind
        return cls(name, row.metric.name, verdict, ratio.value, ratio.low, ratio.high)

    def __str__(self) -> str:
        """In a line of a pair."""
        interval = "no interval"
        if self.low is not None and self.high is not None:
            interval = f"{self.low - 1:+.1%} to {self.high - 1:+.1%}"
        return f"{self.name} {self.metric} {self.ratio - 1:+.1%} ({interval}) {self.verdict}"


@dataclass(frozen=True)
class Server:
    """Who is measured: what `herd bench` is told for it, what its results go by, and the inventory beside these."""

    words: tuple[str, ...]
    rig: str
    name: str
    inventory: Path


def main() -> None:
    """Measure one more time than there are pairs."""
    parser = argparse.ArgumentParser(description="Measure an unchanged server again and again.")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--time", default="60s")
    parser.add_argument("--server", choices=("chat", "drafter"), default="chat", help="which one of the box")
    parser.add_argument("--url", help="a server that runs already, instead of the box's")
    parser.add_argument("--folder", type=Path, help="where results are kept; else they are thrown away")
    wished = parser.parse_args()
    pairs = []
    with ExitStack() as stack:
        folder = wished.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = by_url(wished.url, folder) if wished.url else of_the_box(wished.server, folder)
        for number in range(wished.pairs + 1):
            said = herd(server, "bench", *server.words, "--time", wished.time)
            assert said.returncode in (0, 1), said.stderr
            if number:
                pairs.append(compared(server))
                print(f"{number:3}  {'; '.join(map(str, pairs[-1]))}", flush=True)
    tell("decode alone", [[cell for cell in pair if cell.metric == "decode"] for pair in pairs])
    tell("all speeds", pairs)


def by_url(url: str, folder: Path) -> Server:
    """A server that runs already."""
    return Server(("--url", url, "--name", "pairs"), "url", "pairs", folder / "none.yaml")


def of_the_box(name: str, folder: Path) -> Server:
    """A server of the box, once that is as declared."""
    # What it needs is not there where servers are measured by their URL.
    from benchmarks.switches import declare, up

    inventory = folder / "box.yaml"
    declare(inventory)
    assert up(inventory)[0] == 0, "the box is not as declared, and cannot be made so"
    return Server(("box", name), "box", name, inventory)


def compared(server: Server) -> list[Cell]:
    """The last two, by all that `herd bench` has a verdict on: that takes three runs each.

    By its URL alone nobody can tell whether a server was started anew meanwhile. Whoever runs this knows.
    """
    files = result_files(results_folder(server.inventory), server.rig, server.name)
    last = [read_result(path) for path in sorted(files)[-2:]]
    if server.rig == "url":
        last = [each.model_copy(update={"starts": (Start(process="the one"),)}) for each in last]
    values = measurement_outcome(last[1], None, last[0]).values
    return [Cell.of(each.before, each.judgement.verdict) for each in values if each.before and each.judgement]


def tell(what: str, pairs: Sequence[Sequence[Cell]]) -> None:
    """How pairs end: the worst verdict of each."""
    order = ("slower", "faster", "not known yet", "same")
    ends = Counter(
        next((each for each in order if any(cell.verdict == each for cell in pair)), "no verdict") for pair in pairs
    )
    wrong = sum(cell.verdict == "slower" and (cell.high or 0) > 1 - MARGIN for pair in pairs for cell in pair)
    print(f"{what}: {dict(ends)} of {len(pairs)} pairs; *slower* within {MARGIN:.0%}: {wrong}")


def herd(server: Server, *words: str) -> subprocess.CompletedProcess[str]:
    """A run of it, as a user has it."""
    environment = {**os.environ, "HERD_INVENTORY": str(server.inventory)}
    return subprocess.run(
        (*HERD, *words), env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


if __name__ == "__main__":
    main()
