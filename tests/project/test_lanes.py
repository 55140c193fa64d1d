"""The lanes of tests on hosts: each such test is in one of them, and scripts/test runs each of them."""

from __future__ import annotations

import re
import subprocess
import sys

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
