"""The lanes of tests on hosts: each such test is in one of them, and scripts/test runs each of them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.box.slot import LANES
from tests.support.rigs import ROOT


def collected(*arguments: str) -> list[str]:
    """The tests that pytest would run, by their names."""
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    said = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return [line for line in said.splitlines() if "::" in line]


def test_each_test_on_a_host_is_in_one_lane() -> None:
    on_hosts = collected("-m", "box", "tests/box")
    assert len(on_hosts) > 250
    astray = [name for name in on_hosts if name.split("/")[2] not in LANES]
    assert astray == [], "each test on a host lies in a folder of tests/box: it is run with the others there"


def test_no_test_on_a_host_is_elsewhere() -> None:
    marked = [path for path in (ROOT / "tests").rglob("test_*.py") if re.search(r"mark\.box\b", path.read_text())]
    astray = [str(path) for path in marked if not path.is_relative_to(ROOT / "tests" / "box")]
    assert astray == []


def test_every_lane_is_run() -> None:
    ended = subprocess.run(
        [ROOT / "scripts" / "test", "--lanes"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout.split()) == (0, LANES), ended.stderr


ONCE = """
from pathlib import Path
from pytest import mark as on
@on.box
def test_one():
    before = Path("seen").exists()
    Path("seen").touch()
    assert before
def test_two():
    pass
"""
"""Fails the first time."""
ONE = "from pytest import mark as on\n@on.box\ndef test_one(): pass\n"
LANE = "import os\nassert os.environ.get('LLAMAHERD_LANE', 'one') == 'one', 'no such lane has hosts'\n"
"""As the real one, which gives each lane hosts of its own."""
ALWAYS = "from pytest import mark as on\n@on.box\ndef test_one(): raise AssertionError\n"
QUICK = ONCE.replace("@on.box\n", "")
"""The same without a host."""
FOUR = ALWAYS.replace("def test_one()", "@on.parametrize('n', range(4))\ndef test_one(n)")


@pytest.mark.parametrize(
    ("tests", "code", "said"),
    [
        (ONCE, 0, ["pytest one       FAILED", "pytest one-alone passed", "pytest one       UNSTEADY"]),
        (ALWAYS, 1, ["pytest one       FAILED", "pytest one-alone FAILED"]),
        (FOUR, 1, ["pytest one       FAILED"]),
        (QUICK, 0, ["pytest quick     FAILED", "pytest quick-alone passed", "pytest quick     UNSTEADY"]),
    ],
    ids=["fails once", "fails again", "many fail", "fails once without a host"],
)
def test_what_fails_beside_all_others_is_run_alone(tests: str, code: int, said: list[str], tmp_path: Path) -> None:
    for path, text in {
        "scripts/setup": "#!/bin/sh\n",
        ".venv/bin/ruff": "#!/bin/sh\n",
        ".venv/bin/mypy": "#!/bin/sh\n",
        ".venv/bin/python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
        "pytest.ini": "[pytest]\nmarkers =\n  box: a\n  rare: a\naddopts = -ra\n",
        "tests/box/conftest.py": LANE,
        "tests/box/one/test_it.py": ONE if tests == QUICK else tests,
        "tests/test_quick.py": tests if tests == QUICK else ONE.replace("@on.box\n", ""),
        ".box/log": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        (tmp_path / path).chmod(0o755)
    shutil.copy(ROOT / "scripts" / "test", tmp_path / "scripts" / "test")
    ended = subprocess.run([tmp_path / "scripts" / "test"], capture_output=True, text=True, check=False, timeout=120)
    summary = ended.stdout.partition("== summary\n")[2].splitlines()
    of_lane = [line for line in summary if line.startswith(" ".join(said[0].split()[:2]))]
    assert (ended.returncode, len(of_lane)) == (code, len(said)), ended.stdout + ended.stderr
    assert all(line.startswith(words) for line, words in zip(of_lane, said, strict=True)), of_lane
