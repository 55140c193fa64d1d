"""Random kills in the middle of changes of servers, and what becomes of them.

    .venv/bin/python -m benchmarks.faults [--rounds 300] [--kills 1] [--beside] [--seed N] [--only NUMBER]

It needs what scripts/box needs, and makes a host of its own; with --beside, one with nftables, so that what is new is
tried beside what serves. Each round begins a change of servers
(`faults_cases.py`), and at a random moment kills by SIGKILL the run, its connection's end on the host, the script that
runs there, or the host; with `--kills`, that many times, in a run that begins the change, in one that goes back, and so
on. Then it looks at what the next runs make of it:

- The next `herd up` ends with 0; where it goes on with a bad change, with 1.
- Then each server answers a prompt, and one more run finds nothing to do.
- Nothing is left over: one state is kept of each server, and the one before for its probation. No file is
  half-written, each release can be read.

The host dies as a container does: what it had written is not lost with its page cache. A failure is printed with its
number, by which `--only` repeats it with the same seed, and at the end a table. With LLAMAHERD_KEEP=1 the host is
neither removed afterwards nor made anew before. The whole test suite has some of these rounds too.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.faults_cases import AGAIN, CASES, OTHER_KEY, drawn
from benchmarks.faults_rounds import Bench, report, tried
from benchmarks.switches import NFT
from box import downloads, tiny_moe
from box.cli import BOX, CACHE, TINY_MOE, make_api_key
from box.host import BoxHost
from tests.box.slot import PACKAGES, PORTS_OF_A_SLOT, SLOT, slotted

_COMPILING = 3600.0
"""Seconds in which two busy cores have compiled the engine, which the host needs before the first round."""


def main() -> None:
    """Try as many faults as wished, or one of them again."""
    parser = argparse.ArgumentParser(description="Kill runs, their sessions and their host at random moments.")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--first", type=int, default=1, help="the number of the first round")
    parser.add_argument("--kills", type=int, default=1, help="kills in each round")
    parser.add_argument("--beside", action="store_true", help="give the host nftables")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--only", type=int)
    wished = parser.parse_args()
    numbers = [wished.only] if wished.only else range(wished.first, wished.first + wished.rounds)
    report(f"seed {wished.seed}")
    came: Counter[tuple[str, str, bool]] = Counter()
    try:
        with tempfile.TemporaryDirectory() as folder, made("llamaherd-faults", 2250, beside=wished.beside) as box:
            bench = Bench(box, Path(folder) / "box.yaml")
            # A rollback needs a release before the one that each round begins with.
            bench.declare(CASES["a rollback"].change)
            bench.expect(0, "up", "-v", "--yes", seconds=_COMPILING)
            for number in numbers:
                fault = drawn(wished.seed, number, wished.kills, AGAIN if wished.kills > 1 else tuple(CASES))
                victims = ", ".join(kill.victim for kill in fault.kills)
                came[fault.case, victims, not tried(bench, fault)] += 1
    except KeyboardInterrupt:
        report(table(came))
        report(f"interrupted; `--seed {wished.seed} --first {came.total() + wished.first}` goes on from there")
        sys.exit(130)
    report(table(came))


@contextmanager
def made(called: str, port: int, *, beside: bool = False) -> Iterator[BoxHost]:
    """A host, and what is deployed to it; what is new is tried beside what serves there, or not.

    Name and port are its maker's alone: a host of that name from before is removed.
    """
    name = slotted(called)
    for artifact in (downloads.LLAMA_CPP, downloads.GEMMA):
        downloads.fetch(artifact, CACHE)
    tiny_moe.write(TINY_MOE)
    make_api_key()
    OTHER_KEY.touch(0o600)
    OTHER_KEY.write_text(f"{secrets.token_urlsafe(32)}\n")
    box = BoxHost(name, port + PORTS_OF_A_SLOT * SLOT, BOX / name, packages=PACKAGES)
    keep = bool(os.environ.get("LLAMAHERD_KEEP"))
    if not keep:
        box.down()
    box.up()
    box.exec("sh", "-c", NFT[beside])
    try:
        yield box
    finally:
        if not keep:
            box.down()


def table(came: Counter[tuple[str, str, bool]]) -> str:
    """What became of each change, by what was killed meanwhile."""
    rows = [
        f"| {case} | {victim} | {came[case, victim, True] + came[case, victim, False]} | {came[case, victim, True]} "
        f"| {came[case, victim, False]} |"
        for case, victim in sorted({(case, victim) for case, victim, _ in came})
    ]
    well = sum(count for (*_, converged), count in came.items() if converged)
    head = ["| change | killed | tries | converged | failures |", "| --- | --- | ---: | ---: | ---: |"]
    return "\n".join([*head, *rows, f"\n{came.total()} rounds, {came.total() - well} failures"])


if __name__ == "__main__":
    main()
