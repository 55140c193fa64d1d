"""Run the project's checks and tests in tiers; `scripts/test` starts it. See CONTRIBUTING.md, section Tests."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.box.slot import LANES, OVER
from tests.support import sample
from tests.support.lanes import lanes_touched

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / ".box"
BIN = Path(sys.executable).parent
MAIN = "main"
"""The folder of tests on a host that `scripts/test` runs without further options."""
MARK = "LLAMAHERD_RUN"
"""The environment variable by which this program finds the processes of its own run."""
UNTIL = "LLAMAHERD_UNTIL"
"""The environment variable with the time, in seconds of time.monotonic(), after which a lane starts no test."""
CORES = len(os.sched_getaffinity(0))
"""How many lanes run at the same time, too: more make hosts so slow that what they are to do in time fails."""
FEW = 3
"""So many failures of a part are run once more, alone: more are no matter of timing."""
AGAIN = 600.0
"""Seconds in which a part that runs once more may start tests on a host, also after the time of the run."""
LONGEST = 600
"""Seconds after which a test fails that needs no host: the slowest takes 50 where it has the machine to itself."""
LONGEST_ON_HOSTS = 1800
"""Likewise on a host. The first test of a lane waits until another lane has compiled an engine, and compiles one."""
LONGEST_PART = 2700
"""Seconds after which a part is interrupted that needs no host: pytest itself may stand still, too."""
INTERRUPTED = 30
"""Seconds in which pytest ends after Ctrl-C."""
INTERNAL = 3
"""The exit code of pytest where it failed itself, and of a part that was interrupted."""
SLOWEST = 10
QUIET = 30.0
"""Seconds between two lines of progress."""
EXAMPLES = """\
examples:
  scripts/test --quick              lint, types and pure tests: 3 minutes
  scripts/test                      also process tests, and the main road on a real host: 12 minutes
  scripts/test --changed            also the tests on hosts that your change can touch
  scripts/test --all                everything, with rare tests and all examples: hours
  scripts/test tests/lock -k hub    lint, types and what you name; options go to pytest
"""


@dataclass(frozen=True)
class Part:
    """A command of the run, with a log of its own."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    longest: float | None = None
    """Seconds after which it is interrupted, and has failed."""

    @property
    def log(self) -> Path:
        """The file that the command's output is written to."""
        return LOGS / f"test-{self.name.replace(' ', '-')}.log"

    @property
    def results(self) -> Path:
        """The file in which pytest reports each test."""
        return self.log.with_suffix(".xml")


@dataclass
class Ended:
    """How a part ended."""

    part: Part
    code: int
    seconds: float
    note: str = ""


def pytest_part(name: str, *options: str, workers: int = 0, lane: str = "", everything: bool = False) -> Part:
    """Return the part that runs some of the tests."""
    part = Part(name, ())
    longest = LONGEST if workers else LONGEST_ON_HOSTS
    argv = [str(BIN / "python"), "-u", "-m", "pytest", "-q", f"--timeout={longest}", *options]
    argv += [f"--junitxml={part.results}", "-o", f"cache_dir={LOGS / f'pytest-{name}'}"]
    argv += ["-n", str(workers), "--dist", "loadfile"] if workers else []
    # A run of what has failed draws the same examples.
    environment = {"LLAMAHERD_LANE": lane, "LLAMAHERD_SAMPLE": sample.MADE} | (
        {"LLAMAHERD_SEARCH": "1"} if everything else {}
    )
    return Part(name, argv, environment, LONGEST_PART if workers else None)


def checks() -> list[Part]:
    """Return the linter, the formatter and the type checker."""
    ruff = str(BIN / "ruff")
    return [
        Part("ruff check", (ruff, "check")),
        Part("ruff format", (ruff, "format", "--check")),
        Part("mypy", (str(BIN / "mypy"),)),
    ]


def pure(everything: bool) -> Part:
    """Return the tests that start nothing: as many workers as cores."""
    return pytest_part("pure", "-m", "pure", "--ignore=tests/box", workers=CORES, everything=everything)


def process(everything: bool) -> Part:
    """Return the tests that start processes, which wait for half of their time."""
    which = "process" if everything else "process and not rare"
    return pytest_part("process", "-m", which, "--ignore=tests/box", workers=2 * CORES, everything=everything)


def box(lane: str, everything: bool) -> Part:
    """Return the tests of one lane, on hosts of its own."""
    which = "box" if everything else "box and not rare"
    return pytest_part(lane, "-m", which, f"tests/box/{lane}", lane=lane, everything=everything)


class Run:
    """Parts that run, and how those before them ended."""

    def __init__(self) -> None:
        self.mark = secrets.token_hex(8)
        self.ended: list[Ended] = []
        self.running: dict[str, float] = {}
        self.lanes = asyncio.Semaphore(CORES)

    async def one(self, part: Part) -> Ended:
        """Run a part and print how it ended; where it failed, also its output."""
        began = time.monotonic()
        self.running[part.name] = began
        part.results.unlink(missing_ok=True)
        environment = {**os.environ, **part.environment, MARK: self.mark}
        # pytest keeps the modules that it has rewritten: they are most of the time to collect tests.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if not part.environment.get("LLAMAHERD_LANE"):
            environment.pop("LLAMAHERD_LANE", None)
        with part.log.open("wb") as log:
            child = await asyncio.create_subprocess_exec(
                *part.argv,
                cwd=ROOT,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = await self.within_time(child, part)
            except asyncio.CancelledError:
                # Once, as Ctrl-C does: pytest then removes its hosts.
                with suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGINT)
                await child.wait()
                raise
        del self.running[part.name]
        ended = Ended(part, code, time.monotonic() - began)
        if code:
            print(f"\n== {part.name}\n{part.log.read_text(errors='replace')}", flush=True)
        print(f"{line_of(ended)}", flush=True)
        return ended

    async def within_time(self, child: asyncio.subprocess.Process, part: Part) -> int:
        """Return the exit code of a part, and interrupt it where it takes too long: it then runs again, alone."""
        try:
            return await asyncio.wait_for(child.wait(), part.longest)
        except TimeoutError:
            print(f"{part.name}: not done after {part.longest:.0f} s, interrupted", flush=True)
        with suppress(ProcessLookupError, TimeoutError):
            child.send_signal(signal.SIGINT)
            await asyncio.wait_for(child.wait(), INTERRUPTED)
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()
        return INTERNAL

    async def after_another(self, parts: Iterable[Part]) -> None:
        """Run parts one after another. A part that fails does not stop those behind it."""
        for part in parts:
            async with self.lanes if part.environment.get("LLAMAHERD_LANE") else nullcontext():
                self.ended.append(await self.one(part))

    async def at_once(self, groups: Iterable[Iterable[Part]]) -> None:
        """Run groups of parts at the same time."""
        progress = asyncio.create_task(self.progress())
        try:
            async with asyncio.TaskGroup() as tasks:
                for group in groups:
                    tasks.create_task(self.after_another(group))
        finally:
            progress.cancel()

    async def progress(self) -> None:
        """Print what runs, and for how long, every now and then."""
        while True:
            await asyncio.sleep(QUIET)
            running = ", ".join(f"{name} {time.monotonic() - began:.0f} s" for name, began in self.running.items())
            print(f"... {running}", flush=True)

    async def alone(self) -> None:
        """Run once more, with nothing beside it, what a part with few failures failed.

        A worker of pytest-xdist cannot wait for tests once gevent has replaced its locks, as pyinfra's command line
        does when a test imports it. pytest then ends with 3: the whole part runs again without workers.
        """
        for ended in self.ended:
            if ended.code == INTERNAL or (ended.code == 1 and 0 < len(failures(ended.part)) <= FEW):
                again = [each for each in ended.part.argv if not each.startswith("--junitxml")]
                again += ["-n", "0"] if ended.code == INTERNAL else ["--last-failed", "--last-failed-no-failures=none"]
                until = {UNTIL: str(time.monotonic() + AGAIN)}
                environment = {**ended.part.environment, **until}
                part = Part(f"{ended.part.name} alone", again, environment, ended.part.longest)
                if (await self.one(part)).code == 0:
                    ended.code = 0
                    ended.note = "UNSTEADY: mend what failed beside other tests and passes alone"

    def end_processes(self) -> None:
        """Kill what a test has left behind: each process of this run has a mark in its environment."""
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)


def cases(part: Part) -> list[ElementTree.Element]:
    """Return each test of a part, as pytest reported it."""
    try:
        return list(ElementTree.parse(part.results).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return []


def failures(part: Part) -> list[str]:
    """Return the names of the tests that failed."""
    bad = (case for case in cases(part) if case.find("failure") is not None or case.find("error") is not None)
    return [f"{case.get('classname')}::{case.get('name')}" for case in bad]


def left_out(part: Part) -> int:
    """Return the number of tests that a lane did not start because the time of the run was over."""
    skipped = (case.find("skipped") for case in cases(part))
    return sum(each is not None and OVER in (each.get("message") or "") for each in skipped)


def line_of(ended: Ended) -> str:
    """Return one line of the summary."""
    verdict = "passed" if ended.code == 0 else "FAILED"
    without = left_out(ended.part)
    count = f"{len(cases(ended.part)) - without:6} tests" if cases(ended.part) else ""
    note = f"{ended.note} {without} NOT RUN: {OVER}" if without else ended.note
    return f"{ended.part.name:<14} {verdict} {ended.seconds:6.0f} s {count} {note}".rstrip()


def slowest(part: Part) -> list[str]:
    """Return a line for each of the slowest tests, of those that take a second or more."""
    timed = sorted(((float(case.get("time", 0)), case) for case in cases(part)), key=lambda row: -row[0])
    rows = [(seconds, case) for seconds, case in timed[:SLOWEST] if seconds >= 1]
    # An interrupted lane reports a case without a name.
    return [f"    {seconds:6.1f} s  {case.get('classname')}::{case.get('name') or '':.80}" for seconds, case in rows]


def chosen(options: argparse.Namespace) -> list[list[Part]]:
    """Return the parts to run: groups at the same time, the parts of a group one after another."""
    if options.rest:
        return [[*checks(), pytest_part("pytest", *options.rest)]]
    ours = [*checks(), pure(options.all)]
    if options.quick:
        return [ours]
    lanes = [MAIN]
    if options.all:
        lanes = [*LANES]
    elif options.changed:
        touched = lanes_touched(options.since)
        print(f"lanes that the change can touch: {', '.join(touched) or 'none'}", flush=True)
        lanes += [lane for lane in touched if lane != MAIN]
    groups = [[*ours, process(options.all)], *([box(lane, options.all)] for lane in lanes if lane != "measuring")]
    if "measuring" in lanes:
        # What is measured would be slow beside all others: it begins when the tests without hosts have ended.
        groups[0].append(box("measuring", options.all))
    return groups


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options; what this program does not know goes to pytest."""
    parser = argparse.ArgumentParser(
        prog="scripts/test",
        description="Run ruff, mypy and the tests.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="only lint, types and pure tests")
    which.add_argument("--changed", action="store_true", help="also each lane that the change can touch")
    which.add_argument("--all", action="store_true", help="all lanes, rare tests, and all examples of a law")
    parser.add_argument(
        "--minutes", type=float, help="after so many, start no other test on a host (default: no limit)"
    )
    parser.add_argument("--since", metavar="COMMIT", help="what --changed compares with (default: tests/box/PASSED)")
    options, rest = parser.parse_known_args(arguments)
    options.rest = rest
    return options


async def run(groups: Sequence[Sequence[Part]]) -> int:
    """Run groups of parts, each group beside the others; return the exit code."""
    print(sample.header(), flush=True)
    all_of_it = Run()
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    assert me
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(each, me.cancel)
    try:
        await all_of_it.at_once(groups)
        await all_of_it.alone()
    except asyncio.CancelledError:
        print(f"interrupted; the logs are {LOGS}/test-*.log", file=sys.stderr)
        return 130
    finally:
        all_of_it.end_processes()
    print("\n== summary")
    for ended in all_of_it.ended:
        print(line_of(ended))
        print(*slowest(ended.part), sep="\n", end="\n" if slowest(ended.part) else "")
    return int(any(ended.code for ended in all_of_it.ended))


if __name__ == "__main__":
    LOGS.mkdir(exist_ok=True)
    options = parsed(sys.argv[1:])
    if options.minutes is not None:
        os.environ[UNTIL] = str(time.monotonic() + 60 * options.minutes)
    sys.exit(asyncio.run(run(chosen(options))))
