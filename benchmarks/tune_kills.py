"""A search that is killed again and again: it comes to its end, measures nothing twice, and the server comes back.

    .venv/bin/python -m benchmarks.tune_kills [--kills 20] [--seed 1] [--budget 480]

A host is made as planned, with a server that has too many threads. `herd tune` is begun, and at a random moment it is
killed, or the script that it has on the host, or that script's connection. Each time the declared server must answer
again, and no candidate may be left. After the last kill the search goes on to its end. It needs the extra `tune`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast, get_args

from benchmarks.faults import made
from benchmarks.faults_rounds import Bench, FaultError, Run
from benchmarks.switches import Rig
from box import downloads
from box.host import BoxHost
from llamaherd.measure.tune.journal import Search, TriedCandidate, read_search
from tests.box.slot import compiling

Victim = Literal["herd", "script", "connection"]

COMPILED = 3600
"""Seconds in which an engine is compiled by the slowest machine."""
BACK = 90
"""Seconds in which the declared server must answer again."""
SOONEST, LATEST = 3.0, 25.0
"""Seconds after its begin that a search is killed: before it has stopped anything, and in all that it does."""

SCRIPT = "sed -n 's/process \\([0-9]*\\) .*/\\1/p' /run/llamaherd/locks/host"
KILLED: dict[Victim, str] = {
    "herd": "true",
    "script": f"kill -9 $({SCRIPT})",
    "connection": f"kill -9 $(ps -o ppid= -p $({SCRIPT}) | xargs -n 1 ps -o ppid= -p)",
}
LEFT = (
    "systemctl list-units --all --plain --no-legend 'llamaherd-arm*'; ls -d /run/systemd/system/llamaherd-arm* "
    "/run/llamaherd/arms 2>/dev/null"
)


def main() -> None:
    """Kill, go on, and say what came of it."""
    parser = argparse.ArgumentParser(description="Kill a search at random moments.")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--budget", type=int, default=480, help="seconds of the search")
    wished = parser.parse_args()
    lot = random.Random(wished.seed)
    print(f"seed {wished.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder, made("llamaherd-tune-kills", 2251) as box:
        bench = Bench(box, Path(folder) / "box.yaml")
        rig = bench.declare(with_too_many_threads)
        with compiling(box, downloads.LLAMA_CPP):
            bench.expect(0, "up", "--yes", seconds=COMPILED)
        command = ("tune", "box/chat", "--for", "decode", "--budget", f"{wished.budget}s", "--yes")
        try:
            for number in range(1, wished.kills + 1):
                print(f"{number:>3}  {killed(bench, rig, command, lot)}", flush=True)
            said = bench.expect(0, *command, seconds=2 * wished.budget)
            back(bench, rig)
        except FaultError as wrong:
            print(f"FAILED: {wrong}\n{''.join(bench.said[-2:])}")
            sys.exit(1)
        print(said)
        (journal,) = (Path(folder) / "results" / "box" / "chat").glob("tune-*.jsonl")
        told(read_search(journal))


def with_too_many_threads(rig: Rig) -> None:
    """Two threads on one processor wait for each other: there is something to find."""
    chat = rig["instances"]["chat"]
    chat |= {"threads": 2, "cpus": "0", "context": 512, "kv": "f16"}
    chat["extra_args"] += ["--poll", "100"]


def killed(bench: Bench, rig: Rig, command: Sequence[str], lot: random.Random) -> str:
    """Begin the search, kill something, and see to it that all is as before: what was killed when, and how long that
    took."""
    victim = cast("Victim", lot.choice(get_args(Victim)))
    moment = lot.uniform(SOONEST, LATEST)
    run = bench.begin(*command)
    if run.wait(moment) is not None:
        return f"it had ended before {moment:.0f} s"
    strike(bench.box, run, victim)
    run.wait(BACK)
    run.kill()
    began = time.monotonic()
    back(bench, rig)
    return f"{victim:10} after {moment:4.1f} s; the server answers again {time.monotonic() - began:.1f} s later"


def strike(box: BoxHost, run: Run, victim: Victim) -> None:
    """Kill it; where a search has not begun on its host, nothing is there to kill but itself."""
    box.exec("sh", "-c", KILLED[victim], check=False)
    if victim == "herd":
        run.kill()


def back(bench: Bench, rig: Rig) -> None:
    """Wait until the declared servers answer, and nothing is left. Raises FaultError."""
    until = time.monotonic() + BACK
    while True:
        left = bench.box.exec("sh", "-c", LEFT, check=False).strip()
        try:
            bench.answers(rig)
        except FaultError:
            if time.monotonic() > until:
                raise
        else:
            if not left:
                return
            if time.monotonic() > until:
                raise FaultError(f"something is left: {left}")
        time.sleep(0.3)


def told(search: Search) -> None:
    """What was measured twice, which is nothing, and what it has come to."""
    measured = Counter(map(_what, search.trials))
    twice = [what for what, count in measured.items() if count > 1]
    found = search.found.keys if search.found else None
    print(f"{len(search.trials)} readings, {len(twice)} of them twice; found {found}")
    for each in twice:
        print(f"  {each}")
    if twice or search.found is None:
        sys.exit(1)


def _what(trial: TriedCandidate) -> str:
    return f"round {trial.round} {json.dumps(trial.keys, sort_keys=True)}"


if __name__ == "__main__":
    main()
