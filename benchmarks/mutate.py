"""Everything that is read, changed at random: whether each ends in findings or a sentence, soon and in little memory.

    .venv/bin/python benchmarks/mutate.py [--count 50000] [--seed 1] [--only KIND,…] [--keep FOLDER]

It prints, for each kind of input, how many were tried and how they ended, the longest time of one, and the most memory
that one added to the process. What ends in anything else is printed with its seed, and kept in FOLDER:
`--only KIND --seed N --count 1` makes it again. The same seed makes the same inputs.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.mutated_kinds import KINDS, Kind

MOST_SECONDS = 2.0
MOST_MEMORY = 200 << 20
ENDLESS = 30.0
"""Seconds after which an input is taken for one that has no end."""


@dataclass
class Tally:
    """What became of the inputs of one kind."""

    ends: Counter[str] = field(default_factory=Counter)
    worst: tuple[float, int] = (0.0, 0)
    """Seconds of the processor, and the seed of the input that took them."""
    memory: tuple[int, int] = (0, 0)
    """The most bytes that reading an input added to this process, and the seed of that input."""
    wrong: list[int] = field(default_factory=list)


def memory(field: str) -> int:
    """Return a field of this process's memory in bytes: `VmRSS` is what it has now, `VmHWM` the most it had."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(rf"{field}:\s+(\d+) kB", status)[0]) << 10


@dataclass(frozen=True)
class Attempt:
    """How one input ended, `wrong: …` for what no user may see, and what reading it took."""

    ended: str
    data: bytes
    seconds: float
    memory: int
    """Bytes."""


def attempt(kind: Kind, name: str, seed: int) -> Attempt:
    """Read one input."""
    rng = random.Random(f"{name} {seed}")
    data = kind.mutate(rng, rng.choice(kind.seeds))
    Path("/proc/self/clear_refs").write_text("5")  # making the input took memory, too
    before = memory("VmRSS")
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        signal.setitimer(signal.ITIMER_REAL, ENDLESS)
        try:
            ended = kind.judge(Path(folder), data)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            ended = f"wrong: {type(error).__name__} in {Path(where.filename).name}:{where.lineno}: {error}"[:300]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return Attempt(ended, data, time.process_time() - began, memory("VmHWM") - before)


def too_long(*_: object) -> None:
    """Raise, where it hangs."""
    raise TimeoutError


def run(name: str, count: int, seed: int, keep: Path | None = None) -> Tally:
    """So many inputs of one kind."""
    tally = Tally()
    for number in range(seed, seed + count):
        tried = attempt(KINDS[name], name, number)
        ended = tried.ended
        if tried.seconds > MOST_SECONDS and not ended.startswith("wrong"):
            ended = f"wrong: {tried.seconds:.1f} s"
        if tried.memory > MOST_MEMORY and not ended.startswith("wrong"):
            ended = f"wrong: {tried.memory >> 20} MiB"
        tally.ends[ended.partition(":")[0]] += 1
        tally.worst = max(tally.worst, (tried.seconds, number))
        tally.memory = max(tally.memory, (tried.memory, number))
        if ended.startswith("wrong"):
            tally.wrong.append(number)
            print(f"  {name} {number}: {ended}", flush=True)
            if keep:
                (keep / f"{name}-{number}").write_bytes(tried.data)
    return tally


def main() -> int:
    """Run what is asked for; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    names = asked.only.split(",")
    weights = {name: KINDS[name].weight for name in names}
    if asked.keep:
        asked.keep.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGALRM, too_long)
    warnings.simplefilter("error", FutureWarning)  # `re` prints it for patterns that users wrote
    wrong = total = 0
    for name in names:
        count = max(1, round(asked.count * weights[name] / sum(weights.values())))
        tally = run(name, count, asked.seed, asked.keep)
        ends = ", ".join(f"{number} {what}" for what, number in sorted(tally.ends.items()))
        (worst, at), (most, at_most) = tally.worst, tally.memory
        spent = f"at most {worst:.2f} s ({at}), {most >> 20} MiB ({at_most})"
        print(f"{name:12} {count:6} inputs: {ends}; {spent}", flush=True)
        wrong, total = wrong + len(tally.wrong), total + count
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    print(f"{total} inputs, {wrong} wrong, {children} MiB in one that was started")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
