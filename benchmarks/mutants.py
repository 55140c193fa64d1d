"""Put small faults into `llamaherd/` and `roles/` at random, and report which of them the tests find.

    .venv/bin/python -m benchmarks.mutants [--count 60] [--seed N] [--only NUMBER,…] [--jobs 2] [--keep FOLDER]

Each mutant is a copy of the tree with one fault (`mutations_of_code.py`). The tests are those that need no host: all
but `tests/box`. The program works in three steps:

1. It runs all tests once, on a tree whose functions record which test calls them. A failing test that also fails on
   the unchanged tree is left out of steps 2 and 3.
2. For each mutant it runs the tests that call the faulty function, those of the mirrored folder first, until one
   fails. A fault outside functions runs the tests of each function that reads the name. Tests that exceed their time
   limit fail.
3. It puts all surviving faults into one tree and runs all tests. It runs each test that fails there on each survivor.

It prints the seed, then one line for each mutant: its number, place, change, and the failing test or `SURVIVES`.
The same seed draws the same faults from the same tree. FOLDER keeps the calls of step 1 and the logs of pytest.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from benchmarks.mutations_of_code import Fault, draw, probe_lines

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 900
"""Seconds that the tests of one mutant may take."""
WHOLE_LIMIT = 7200
PROBES = """import os
seen = set()
def reached(numbers):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if (numbers, test) not in seen:
        seen.add((numbers, test))
        with open({calls!r}, "a") as file:
            file.writelines(f"{{number}}\\t{{test}}\\n" for number in numbers)
"""


def snapshot(folder: Path) -> Path:
    """Copy the files that git lists to `folder`, so that you can edit the checkout meanwhile."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    return folder


@contextmanager
def mutant(original: Path, faults: Sequence[Fault] = ()) -> Iterator[Path]:
    """Yield a copy of the tree with these faults."""
    with tempfile.TemporaryDirectory() as temporary:
        tree = shutil.copytree(original, Path(temporary) / "tree", symlinks=True)
        for fault in sorted(faults, key=lambda fault: -fault.begin):  # an earlier offset in the file stays valid
            path = tree / fault.file
            text = path.read_bytes()
            path.write_bytes(text[: fault.begin] + fault.new.encode() + text[fault.end :])
        yield tree


def run_tests(tree: Path, log: Path, arguments: Iterable[str], limit: int, jobs: int = 1) -> list[str] | None:
    """Run pytest in `tree` and return the failing tests, or None if they exceed `limit` seconds."""
    listed = log.with_suffix(".arguments")
    listed.write_text("\n".join(arguments) + "\n")
    command = [
        sys.executable,
        "-u",
        "-m",
        "pytest",
        "-q",
        "-rfE",
        "-m",
        "not box and not rare",
        "-p",
        "no:cacheprovider",
    ]
    if jobs > 1 and find_spec("xdist"):
        command += ["-n", str(jobs), "--dist", "loadfile"]
    with log.open("w") as file, tempfile.TemporaryDirectory() as temporary:
        process = subprocess.Popen(
            [*command, f"--basetemp={temporary}/pytest", f"@{listed}"],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", log.read_text(errors="replace"), re.MULTILINE)
    if code not in (0, 5) and not failed:
        return [f"pytest ended with {code}"]
    return list(dict.fromkeys(name.partition("[")[0] for name in failed))


def called(original: Path, keep: Path, faults: Sequence[Fault], jobs: int) -> tuple[dict[int, set[str]], list[str]]:
    """Run all tests once; return the tests that call each faulty function, and those that fail without a fault."""
    calls, broken = keep / "calls.tsv", keep / "broken.txt"
    if not broken.exists():
        calls.write_text("")
        with mutant(original) as tree:
            (tree / "mutant_probes.py").write_text(PROBES.format(calls=str(calls)))
            for name, text in probe_lines(original, faults).items():
                (tree / name).write_text(text)
            failed = run_tests(tree, keep / "probes.log", ["tests"], WHOLE_LIMIT, jobs) or []
        with calls.open("a") as file:  # a test that fails with probes may call each of them
            file.writelines(f"{fault.number}\t{name}\n" for fault in faults for name in failed)
        with mutant(original) as tree:
            again = run_tests(tree, keep / "broken.log", failed, LIMIT) if failed else []
        broken.write_text("\n".join(again or []))
    tests: dict[int, set[str]] = defaultdict(set)
    for line in calls.read_text().splitlines():
        number, _, test = line.partition("\t")
        if test:
            tests[int(number)].add(test.partition("[")[0])
    return tests, broken.read_text().split()


def find(original: Path, fault: Fault, tests: Iterable[str], log: Path) -> str:
    """Return the first of these tests that fails with the fault, or an empty string."""
    near = f"tests/{fault.file.removeprefix('llamaherd/').rpartition('/')[0]}/"
    ordered = sorted(tests, key=lambda name: (not name.startswith(near), name))
    if not ordered:
        return ""
    with mutant(original, [fault]) as tree:
        failed = run_tests(tree, log, ["-x", *ordered], LIMIT)
    return "the time limit" if failed is None else " ".join(failed)


def main() -> int:
    """Draw the faults, run the tests and print the table; return 1 if fewer than 80 % are found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 30))
    parser.add_argument("--only", default="", help="run these numbers alone, and skip step 3")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--list", action="store_true", help="print the faults and run no test")
    asked = parser.parse_args()
    keep = asked.keep or Path(tempfile.mkdtemp(prefix="mutants-"))
    keep.mkdir(parents=True, exist_ok=True)
    print(f"seed {asked.seed}, logs in {keep}", flush=True)
    original = keep / "tree" if (keep / "tree").exists() else snapshot(keep / "tree")
    faults = draw(original, asked.count, asked.seed)
    if asked.list:
        print("\n".join(map(str, faults)))
        return 0
    tests, broken = called(original, keep, faults, asked.jobs)
    only = {int(number) for number in asked.only.split(",") if number}
    tried = [fault for fault in faults if not only or fault.number in only]
    found: dict[int, str] = {}

    def attempt(fault: Fault) -> None:
        log = keep / f"{fault.number}.log"
        found[fault.number] = find(original, fault, tests[fault.number] - set(broken), log)
        print(f"{fault}\n     {found[fault.number] or 'SURVIVES step 2'}", flush=True)

    with ThreadPoolExecutor(asked.jobs) as pool:
        list(pool.map(attempt, tried))
    survivors = [fault for fault in tried if not found[fault.number]]
    if survivors and not only:
        with mutant(original, survivors) as tree:
            failed = run_tests(tree, keep / "together.log", ["tests"], WHOLE_LIMIT, asked.jobs) or []
        for fault in survivors:
            found[fault.number] = find(original, fault, set(failed) - set(broken), keep / f"{fault.number}-whole.log")
            print(f"{fault}\n     {found[fault.number] or 'SURVIVES'}", flush=True)
    count = sum(map(bool, found.values()))
    print(f"{count} of {len(tried)} found, {count / len(tried):.0%}; left out: {' '.join(broken) or 'no test'}")
    return int(count < 0.8 * len(tried))


if __name__ == "__main__":
    sys.exit(main())
