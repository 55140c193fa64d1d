"""One round of `faults.py`: a change that is begun, kills in the middle of it, and what the next runs make of that."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from benchmarks.faults_cases import ASIDE, CASES, CLEAN, FORGET, KILLS, LEFT, UP, Case, Change, Round, Victim, both
from benchmarks.switches import HERD, Rig, rig_of
from box.host import BoxHost

LONGEST = 400
"""Seconds of a run that nobody kills."""
NOTICED = 90
"""Seconds in which a run notices that the host's end of it is gone."""


class FaultError(Exception):
    """What should not have become of a fault."""


@dataclass(frozen=True)
class Run:
    """A run, as a process group of its own, and the file that it says all into."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def at_work(self) -> bool:
        """Whether it changes its host: it has said that it begins, it waits for no other run, and has not ended."""
        begun, _, said = self.log.read_text().partition("--> Beginning operation run...")
        waits = (said.splitlines() or [begun])[-1].find("waiting for another run") >= 0
        return self.process.poll() is None and bool(said) and not waits and "--> Results:" not in said

    def wait(self, seconds: float) -> int | None:
        """Its exit code; None where it has not ended by then. It is killed where who waits is interrupted."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        except KeyboardInterrupt:
            self.kill()
            raise

    def kill(self) -> None:
        """Kill it with all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


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
    hits: int = 0
    """How often something was killed while a run was at work."""

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

    def begin(self, *arguments: str) -> Run:
        """A run, by which time all that was begun before has ended."""
        self.said.append(f"$ herd {' '.join(arguments)}\n")
        log = self.inventory.with_name("said.txt")
        with log.open("wb") as said:
            process = subprocess.Popen(
                [HERD, "-i", self.inventory, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Run(process, log)

    def end(self, run: Run, seconds: float) -> tuple[int, str]:
        """A run's exit code, and what it said. It is killed where nobody waits for it any more."""
        code = run.wait(seconds)
        run.kill()
        self.said.append(run.log.read_text())
        if code is None:
            raise FaultError(f"the run did not end within {seconds:g} s")
        return code, self.said[-1]

    def expect(self, code: int, *arguments: str, seconds: float = LONGEST) -> str:
        """What a run says that must end with this code."""
        ended, said = self.end(self.begin(*arguments), seconds)
        if ended != code:
            raise FaultError(f"`herd {' '.join(arguments)}` ended with {ended}, not {code}")
        return said

    def bring(self, change: Change) -> None:
        """The host as this inventory says."""
        rig = self.declare(change)
        text = self.inventory.read_text()
        if self.stands != text:
            self.expect(0, "up", "-v", "--yes", "--retry")
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


def tried(bench: Bench, fault: Round) -> str:
    """What was wrong after a fault, which is said; empty where all was well. The host is as before then."""
    bench.said.clear()
    began = time.monotonic()
    try:
        bench.box.exec("sh", "-c", CLEAN)
        if len(fault.kills) == 1:
            measure(bench, fault.case)
        hits = struck(bench, fault)
        checked(bench, fault)
    except FaultError as why:
        said = "".join(bench.said).replace("\n", "\n    ")
        wrong = f"FAILED {fault}: {why}\n    {said}"
        report(wrong)
        bench.box.exec("sh", "-c", FORGET, check=False)
        bench.stands = ""
        return wrong
    bench.hits += hits
    report(f"well {fault} ({hits} of {len(fault.kills)} at work, {time.monotonic() - began:.0f} s)")
    return ""


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
    report(f"{name} takes {bench.usual[name]:.1f} s")


def prepare(bench: Bench, case: Case) -> None:
    """The host as before a change, which is declared then."""
    bench.bring(case.before)
    bench.declare(case.change)
    if case.tried:
        bench.expect(1, "up", "-v", "--yes")
    bench.stands = ""


def struck(bench: Bench, fault: Round) -> int:
    """Begin the change, and kill something meanwhile; then in another one, and so on. Returns how many hit work."""
    case = CASES[fault.case]
    prepare(bench, case)
    hits = 0
    for number, each in enumerate(fault.kills):
        if number:
            bench.declare(both(case.before, ASIDE) if number % 2 else case.change)
        run = bench.begin(*((*UP, "--retry") if number else case.command))
        run.wait(each.moment * (2 * until_at_work(run) if len(fault.kills) > 1 else bench.usual[fault.case]))
        hits += killed(bench.box, run, each.victim)
        bench.end(run, NOTICED)
        bench.said.append(f"({each})\n")
        time.sleep(each.rest)
    return hits


def until_at_work(run: Run) -> float:
    """How many seconds it took to begin, or to find nothing to do: what it takes from there, depends on as much."""
    began = time.monotonic()
    while not run.at_work and run.wait(0.05) is None:
        if time.monotonic() - began > LONGEST:
            run.kill()
            raise FaultError(f"the run did not begin within {LONGEST} s")
    return time.monotonic() - began


def killed(box: BoxHost, run: Run, victim: Victim) -> bool:
    """Kill what is to be killed; a host is started again. Returns whether it was there, and the run at work."""
    hit = run.at_work
    if victim == "controller":
        run.kill()
    elif victim == "host":
        subprocess.run(["docker", "kill", box.name], check=True, stdout=subprocess.DEVNULL)
        box.up()
    else:
        hit = bool(box.exec("sh", "-c", KILLS[victim], check=False)) and hit
    return hit


def checked(bench: Bench, fault: Round) -> None:
    """Raise FaultError unless the next runs find and leave the host as they should."""
    case = CASES[fault.case]
    if fault.continues and not case.good:
        bench.declare(case.change)
        bench.expect(1, "up", "-v", "--yes")
        bench.answers(bench.rig(case.before))
    rig = bench.declare(case.change if fault.continues and case.good else case.before)
    bench.expect(0, "up", "-v", "--yes")
    bench.answers(rig)
    if ": up to date, nothing to do\n" not in bench.expect(0, "up", "-v", "--yes"):
        raise FaultError("a second run finds something to do")
    if left := bench.box.exec("sh", "-c", LEFT):
        raise FaultError(f"something is left over: {left}")
    told = json.loads(bench.expect(0, "history", "--json"))["rigs"][0]["releases"]
    if len(told) != int(bench.box.exec("sh", "-c", "ls /var/lib/llamaherd/releases/*.json | wc -l")):
        raise FaultError("not every release can be read")
    bench.stands = bench.inventory.read_text()


def report(sentence: str) -> None:
    """One line, at once."""
    print(sentence, flush=True)
