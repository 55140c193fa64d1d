"""Random kills in the middle of changes of servers, and what becomes of them.

    .venv/bin/python -m benchmarks.faults [--rounds 300] [--seed N] [--only NUMBER]

It needs what scripts/box needs, and makes a host of its own. Each round begins a change of servers
(`faults_cases.py`), and at a random moment kills by SIGKILL the run, its connection's end on the host, the script that
runs there, or the host. Then it looks at what the next runs make of it:

- The next `herd up` ends with 0; where it goes on with a bad change, with 1.
- Then each server answers a prompt, and one more run finds nothing to do.
- Nothing is left over: one state is kept of each server, no file is half-written, each release can be read.

The host dies as a container does: what it had written is not lost with its page cache. A failure is printed with its
number, by which `--only` repeats it with the same seed, and at the end a table. With LLAMAHERD_KEEP=1 the host is
neither removed afterwards nor made anew before.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from benchmarks.faults_cases import CASES, CLEAN, FORGET, KILLS, LEFT, OTHER_KEY, Case, Change, Round, Victim, drawn
from benchmarks.switches import HERD, Rig, rig_of
from box import downloads, tiny_moe
from box.cli import BOX, CACHE, TINY_MOE, make_api_key
from box.host import BoxHost
from tests.box.slot import PORTS_OF_A_SLOT, SLOT, slotted

NAME, PORT = slotted("llamaherd-faults"), 2250 + PORTS_OF_A_SLOT * SLOT
LONGEST = 400
"""Seconds of a run that nobody kills."""
NOTICED = 90
"""Seconds in which a run notices that the host's end of it is gone."""


class FaultError(Exception):
    """What should not have become of a fault."""


@dataclass
class Bench:
    """A host, the inventory that it is brought to, and what was said since a round began."""

    box: BoxHost
    inventory: Path
    stands: str = ""
    """The inventory that the host is known to be at."""
    usual: dict[str, float] = field(default_factory=dict)
    """Seconds that each change takes when nothing is killed."""
    said: list[str] = field(default_factory=list)

    def rig(self, change: Change) -> Rig:
        """The box's rig, changed."""
        rig = rig_of(self.box)
        change(rig)
        return rig

    def declare(self, change: Change) -> Rig:
        """Write it as the inventory."""
        rig = self.rig(change)
        self.inventory.write_text(yaml.safe_dump(rig, sort_keys=False))
        return rig

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """A run, as a process group of its own."""
        self.said.append(f"$ herd {' '.join(arguments)}\n")
        return subprocess.Popen(
            [HERD, "-i", self.inventory, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def end(self, process: subprocess.Popen[str], seconds: float) -> tuple[int, str]:
        """A run's exit code, and what it said."""
        try:
            said = process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            kill_group(process)
            self.said.append(process.communicate()[0])
            raise FaultError(f"the run did not end within {seconds:g} s") from None
        self.said.append(said)
        return process.returncode, said

    def expect(self, code: int, *arguments: str) -> str:
        """What a run says that must end with this code."""
        ended, said = self.end(self.begin(*arguments), LONGEST)
        if ended != code:
            raise FaultError(f"`herd {' '.join(arguments)}` ended with {ended}, not {code}")
        return said

    def bring(self, change: Change) -> None:
        """The host as this inventory says."""
        rig = self.declare(change)
        text = self.inventory.read_text()
        if self.stands != text:
            self.expect(0, "up", "--yes", "--retry")
            self.answers(rig)
        self.stands = text

    def answers(self, rig: Rig) -> None:
        """Raise FaultError unless each server answers a prompt."""
        for name, instance in rig["instances"].items():
            key = Path(instance["api_key"]["file"]).read_text().strip() if "api_key" in instance else ""
            said = self.box.exec(
                *("curl", "-s", "-m", "60", "-H", f"Authorization: Bearer {key}"),
                *("-d", '{"messages":[{"role":"user","content":"Hello"}],"max_tokens":8}'),
                f"http://127.0.0.1:{instance['port']}/v1/chat/completions",
                check=False,
            )
            if '"choices"' not in said:
                raise FaultError(f"{name} answers no prompt: {said[:200] or 'nothing'}")


def main() -> None:
    """Try as many faults as wished, or one of them again."""
    parser = argparse.ArgumentParser(description="Kill runs, their sessions and their host at random moments.")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--first", type=int, default=1, help="the number of the first round")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--only", type=int)
    wished = parser.parse_args()
    numbers = [wished.only] if wished.only else range(wished.first, wished.first + wished.rounds)
    say(f"seed {wished.seed}")
    came: Counter[tuple[str, Victim, bool]] = Counter()
    with tempfile.TemporaryDirectory() as folder, made() as box:
        bench = Bench(box, Path(folder) / "box.yaml")
        try:
            for number in numbers:
                fault = drawn(wished.seed, number)
                came[fault.case, fault.victim, tried(bench, fault)] += 1
        finally:
            say(table(came))


@contextmanager
def made() -> Iterator[BoxHost]:
    """The host, and what is deployed to it."""
    for artifact in (downloads.LLAMA_CPP, downloads.GEMMA):
        downloads.fetch(artifact, CACHE)
    tiny_moe.write(TINY_MOE)
    make_api_key()
    OTHER_KEY.touch(0o600)
    OTHER_KEY.write_text(f"{secrets.token_urlsafe(32)}\n")
    box = BoxHost(NAME, PORT, BOX / NAME)
    keep = bool(os.environ.get("LLAMAHERD_KEEP"))
    if not keep:
        box.down()
    box.up()
    try:
        yield box
    finally:
        if not keep:
            box.down()


def tried(bench: Bench, fault: Round) -> bool:
    """Whether all was well after a fault. What was not is said, and the host is as before then."""
    bench.said.clear()
    began = time.monotonic()
    try:
        bench.box.exec("sh", "-c", CLEAN)
        measure(bench, fault.case)
        struck(bench, fault)
        checked(bench, fault)
    except FaultError as why:
        say(f"FAILED {fault}: {why}")
        say("    " + "".join(bench.said).replace("\n", "\n    "))
        bench.box.exec("sh", "-c", FORGET, check=False)
        bench.stands = ""
        return False
    say(f"well {fault} ({time.monotonic() - began:.0f} s)")
    return True


def measure(bench: Bench, name: str) -> None:
    """How long a change takes when nothing is killed, once; and that it ends as it should."""
    if name in bench.usual:
        return
    case = CASES[name]
    prepare(bench, case)
    began = time.monotonic()
    bench.expect(0 if case.good else 1, *case.command)
    bench.usual[name] = time.monotonic() - began
    bench.stands = ""
    say(f"{name} takes {bench.usual[name]:.1f} s")


def prepare(bench: Bench, case: Case) -> None:
    """The host as before a change, which is declared then."""
    bench.bring(case.before)
    bench.declare(case.change)
    if case.tried:
        bench.expect(1, "up", "--yes")
    bench.stands = ""


def struck(bench: Bench, fault: Round) -> None:
    """Begin the change, and kill something meanwhile."""
    case = CASES[fault.case]
    prepare(bench, case)
    process = bench.begin(*case.command)
    with suppress(subprocess.TimeoutExpired):
        process.wait(bench.usual[fault.case] * fault.moment)
    kill(bench.box, process, fault.victim)
    bench.end(process, NOTICED)
    bench.said.append(f"({fault.victim} killed; {fault.rest:g} s)\n")
    time.sleep(fault.rest)


def kill(box: BoxHost, process: subprocess.Popen[str], victim: Victim) -> None:
    """Kill what is to be killed; a host is started again."""
    if victim == "controller":
        kill_group(process)
    elif victim == "host":
        subprocess.run(["docker", "kill", box.name], check=True, stdout=subprocess.DEVNULL)
        box.up()
    else:
        box.exec("sh", "-c", KILLS[victim], check=False)


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a run with all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def checked(bench: Bench, fault: Round) -> None:
    """Raise FaultError unless the next runs find and leave the host as they should."""
    case = CASES[fault.case]
    if fault.goes_on and not case.good:
        bench.expect(1, "up", "--yes")
        bench.answers(bench.rig(case.before))
    rig = bench.declare(case.change if fault.goes_on and case.good else case.before)
    bench.expect(0, "up", "--yes")
    bench.answers(rig)
    if ": as planned, nothing to do\n" not in bench.expect(0, "up", "--yes"):
        raise FaultError("a second run finds something to do")
    if left := bench.box.exec("sh", "-c", LEFT):
        raise FaultError(f"something is left over: {left}")
    told = json.loads(bench.expect(0, "history", "--json"))["rigs"][0]["releases"]
    if len(told) != int(bench.box.exec("sh", "-c", "ls /var/lib/llamaherd/releases/*.json | wc -l")):
        raise FaultError("not every release can be read")
    bench.stands = bench.inventory.read_text()


def table(came: Counter[tuple[str, Victim, bool]]) -> str:
    """What became of each change, by what was killed meanwhile."""
    rows = [
        f"| {case} | {victim} | {came[case, victim, True] + came[case, victim, False]} | {came[case, victim, True]} "
        f"| {came[case, victim, False]} |"
        for case, victim in sorted({(case, victim) for case, victim, _ in came})
    ]
    well = sum(count for (*_, converged), count in came.items() if converged)
    head = ["| change | killed | tries | converged | failures |", "| --- | --- | ---: | ---: | ---: |"]
    return "\n".join([*head, *rows, f"\n{came.total()} rounds, {came.total() - well} failures"])


def say(sentence: str) -> None:
    """One line, at once."""
    print(sentence, flush=True)


if __name__ == "__main__":
    main()
