"""The tiers of tests: which test is in which, what a pure test must not do, and which lanes a change can touch."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests import run
from tests.box.slot import LANES
from tests.support import lanes
from tests.support.rigs import ROOT

HELPERS = """
import socket
def connected(): return socket.socket()
def added(a, b): return a + b
class Server:
    def port(self): return connected()
"""
CONFTEST = """
import subprocess, pytest
@pytest.fixture
def started(): return subprocess.run(["true"])
@pytest.fixture
def number(): return 1
"""
PRODUCT = """
import subprocess, time
def starts():
    try: subprocess.run(["true"])
    except Exception: pass
def waits(): time.sleep(0)
"""
TESTS = """
import sub.product as product
from tests.helpers import Server, added, connected
import subprocess
def test_names_it(): subprocess.run(["true"])
def test_by_a_helper(): connected()
def test_by_a_class(): Server().port()
def test_by_a_fixture(started): pass
def test_by_its_subject(starts_processes): product.starts()
def test_of_values(number): assert added(number, 1) == 2
def test_that_starts(): product.starts()
def test_that_waits(): product.waits()
"""
PROCESS = {"names_it", "by_a_helper", "by_a_class", "by_a_fixture", "by_its_subject"}
"""The tests that belong to the process tier."""
FORBIDDEN = {"that_starts", "that_waits"}
"""Pure ones by their source, which do what a pure test must not."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with tests of its own, and our conftest.py."""
    texts = {
        "tests/helpers.py": HELPERS,
        "tests/sub/conftest.py": CONFTEST,
        "tests/sub/test_it.py": TESTS,
        "sub/product.py": PRODUCT,
        "pytest.ini": "[pytest]\npythonpath = .\naddopts = --import-mode=importlib\n"
        "markers =\n  pure: a\n  process: a\n  box: a\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "tests" / "support").mkdir()
    for name in ("conftest.py", *(f"support/{file.name}" for file in (ROOT / "tests" / "support").glob("[ts]*.py"))):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests" / name)
    return tmp_path


def ran(project: Path, *options: str) -> str:
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "-q", *options]
    return subprocess.run(argv, cwd=project, capture_output=True, text=True, check=False, timeout=120).stdout


def test_the_tier_follows_from_the_source(project: Path) -> None:
    said = ran(project, "-m", "process")
    assert {line.partition("::test_")[2] for line in said.splitlines() if line.startswith("PASSED")} == PROCESS


def test_a_pure_test_that_starts_something_fails(project: Path) -> None:
    said = ran(project, "-m", "pure")
    failed = {line.partition("::test_")[2].partition(" ")[0] for line in said.splitlines() if line.startswith("FAILED")}
    assert failed == FORBIDDEN, said
    assert "PASSED tests/sub/test_it.py::test_of_values" in said
    assert "is pure, but: subprocess.Popen" in said


def test_the_main_road_is_a_lane() -> None:
    assert run.MAIN in LANES
    assert lanes.lanes() == LANES
    assert list((ROOT / "tests" / "box").glob("test_*.py")) == [], "no lane runs it"
    assert all((ROOT / "roles" / role).is_dir() for role in lanes.OPTIONAL)


@pytest.mark.parametrize(
    ("file", "touched"),
    [
        ("docs/bench.md", set()),
        ("README.md", set()),
        ("llamaherd/cli/report.py", set()),
        ("docs/tutorial_household.md", {"hosts"}),
        ("tests/text/test_numbers.py", set()),
        ("tests/box/gpus/test_driver.py", {"gpus"}),
        ("tests/box/bench.py", set(LANES)),
        ("tests/support/fake_kernel.py", {"gpus"}),
        ("llamaherd/measure/tune/tuning.py", {"measuring"}),
        ("templates/gateway/read-model.lua", {"hosts", "main", "measuring", "serving"}),
        ("roles/serve/onhost/proof.py", set(LANES)),
        ("roles/base/onhost.py", set(LANES)),
        ("roles/serve/plan.py", set(LANES)),
        ("llamaherd/text/numbers.py", set(LANES)),
        ("requirements.lock", set(LANES)),
        ("llamaherd/nobody/knows.py", set(LANES)),
    ],
)
def test_a_change_touches_the_lanes_that_run_it(file: str, touched: set[str]) -> None:
    assert {lane for lane in LANES if lanes.touches(file, lane)} == touched


def test_without_the_commit_to_compare_with_all_lanes_run() -> None:
    assert lanes.lanes_touched("0" * 40) == LANES


ONCE = """
from pathlib import Path
def test_one():
    before = Path("seen").exists()
    Path("seen").touch()
    assert before
def test_two(): pass
"""
"""Fails the first time."""
ALWAYS = "def test_one(): raise AssertionError\n"
FOUR = "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_one(n): raise AssertionError\n"
HANGS = """
import subprocess, sys, time
def test_one():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    open("hangs", "w").close()
    time.sleep(600)
"""


@pytest.fixture
def part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> run.Part:
    """A part of a run with tests that lie in test_it.py."""
    monkeypatch.setattr(run, "LOGS", tmp_path)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    (tmp_path / "pytest.ini").touch()
    return run.pytest_part("one", "test_it.py")


@pytest.mark.parametrize(
    ("tests", "code", "runs", "said"),
    [
        (ONCE, 0, 2, ["one", "passed", "UNSTEADY:"]),
        (ALWAYS, 1, 2, ["one", "FAILED"]),
        (FOUR, 1, 1, ["one", "FAILED"]),
    ],
    ids=["fails once", "fails again", "many fail"],
)
def test_what_fails_beside_others_is_run_alone(
    tests: str,
    code: int,
    runs: int,
    said: list[str],
    part: run.Part,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "test_it.py").write_text(tests)
    assert asyncio.run(run.run([[part]])) == code
    printed = capsys.readouterr().out
    (line,) = [line for line in printed.partition("== summary")[2].splitlines() if line.startswith("one ")]
    assert [word for word in line.split() if word in ("one", "passed", "FAILED", "UNSTEADY:")] == said
    assert sum(line.startswith(("one  ", "one alone")) for line in printed.splitlines()) == runs + 1


def test_a_test_that_stands_still_fails_and_its_stack_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"LOGS": tmp_path, "ROOT": tmp_path, "LONGEST": 5}.items():
        monkeypatch.setattr(run, name, value)
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_it.py").write_text("import time\ndef test_one(): time.sleep(600)\n")
    assert asyncio.run(run.run([[run.pytest_part("one", "test_it.py", workers=1)]])) == 1
    printed = capsys.readouterr().out
    assert "time.sleep(600)" in printed
    assert "Timeout (>5.0s) from pytest-timeout" in printed


def test_a_part_that_never_ends_runs_again_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "LOGS", tmp_path)
    part = run.Part("one", (sys.executable, "-c", "import time; time.sleep(600)"), longest=1)
    assert asyncio.run(run.run([[part]])) == 1
    printed = capsys.readouterr().out
    assert printed.count("not done after 1 s, interrupted") == 2


def test_an_interrupted_run_leaves_no_process(part: run.Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_it.py").write_text(HANGS)
    mark = f"canary-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setattr(secrets, "token_hex", lambda _: mark)

    async def interrupted() -> int:
        running = asyncio.create_task(run.run([[part]]))
        while not (tmp_path / "hangs").exists():
            await asyncio.sleep(0.05)
        assert len(marked(mark)) >= 2
        os.kill(os.getpid(), signal.SIGINT)
        return await running

    assert asyncio.run(interrupted()) == 130
    deadline = time.monotonic() + 10
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert marked(mark) == []


def marked(mark: str) -> list[str]:
    """Return the processes that have the mark of a run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{run.MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found.append(folder.name)
    return found
