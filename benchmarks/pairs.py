"""What `herd bench` says of a server that nobody has changed: one measurement after the other, each beside the last.

    .venv/bin/python -m benchmarks.pairs [--pairs 20] [--time 60s] [--server chat]

The box that scripts/box makes must be there, and the machine quiet. Printed are, for each pair, the verdicts of all
speeds with their ratios, and at the end how many pairs are *same* throughout, by decode alone and by all.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.switches import HERD, PORTS, declare, up

MARGIN = 0.02


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
    def of(cls, told: Mapping[str, Any]) -> Cell:
        """As `herd compare --json` tells it."""
        ratio, of = told["ratio"], told["condition"]
        name = f"{of['kind']} {of['cache']}" if of["cache"] == "warm" else of["kind"]
        return cls(name, told["metric"], told["verdict"], ratio["value"], ratio["low"], ratio["high"])

    def __str__(self) -> str:
        """In a line of a pair."""
        interval = "no interval"
        if self.low is not None and self.high is not None:
            interval = f"{self.low - 1:+.1%} to {self.high - 1:+.1%}"
        return f"{self.name} {self.metric} {self.ratio - 1:+.1%} ({interval}) {self.verdict}"


def main() -> None:
    """Measure one more time than there are pairs."""
    parser = argparse.ArgumentParser(description="Measure an unchanged server again and again.")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--time", default="60s")
    parser.add_argument("--server", choices=sorted(PORTS), default="chat")
    wished = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        inventory = Path(folder) / "box.yaml"
        declare(inventory)
        assert up(inventory)[0] == 0, "the box is not as declared, and cannot be made so"
        pairs = []
        for number in range(wished.pairs + 1):
            said = herd(inventory, "bench", "box", wished.server, "--time", wished.time)
            assert said.returncode in (0, 1), said.stderr
            if number:
                pairs.append(compared(inventory, wished.server))
                print(f"{number:3}  {'; '.join(map(str, pairs[-1]))}", flush=True)
    tell("decode alone", [[cell for cell in pair if cell.metric == "decode"] for pair in pairs])
    tell("all speeds", pairs)


def compared(inventory: Path, server: str) -> list[Cell]:
    """The last two, by all that has a verdict."""
    said = herd(inventory, "compare", f"box/{server}:2", f"box/{server}", "--json")
    assert said.returncode == 0, said.stderr
    return [Cell.of(each) for each in json.loads(said.stdout)["cells"] if each["verdict"]]


def tell(what: str, pairs: Sequence[Sequence[Cell]]) -> None:
    """How pairs end: the worst verdict of each."""
    order = ("slower", "faster", "not known yet", "same")
    ends = Counter(next(each for each in order if any(cell.verdict == each for cell in pair)) for pair in pairs)
    wrong = sum(cell.verdict == "slower" and (cell.high or 0) > 1 - MARGIN for pair in pairs for cell in pair)
    print(f"{what}: {dict(ends)} of {len(pairs)} pairs; *slower* within {MARGIN:.0%}: {wrong}")


def herd(inventory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A run of it, as a user has it."""
    command = [str(HERD), "-i", str(inventory), *words]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    main()
