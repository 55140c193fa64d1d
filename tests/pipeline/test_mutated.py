"""A few inputs of each kind of benchmarks/mutate.py, which tries tens of thousands: findings or a sentence, each.

LLAMAHERD_SEARCH=20 tries twenty times as many.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.mutate import attempt
from benchmarks.mutated_kinds import KINDS
from llamaherd.resources import ROOT
from tests.conftest import SEARCH

FEW = 4 * max(1, SEARCH)
HERE = [name for name in KINDS if name != "command"]
"""Kinds that are tried in this process. A command sets signals and starts processes: it has one of its own."""


@pytest.mark.parametrize("name", HERE)
def test_what_was_changed_at_random_is_refused_or_read(name: str) -> None:
    ends = [attempt(KINDS[name], name, seed).ended for seed in range(FEW)]
    assert [end for end in ends if end.startswith("wrong")] == []


def test_command_lines_that_were_changed_at_random_are_refused_or_run() -> None:
    argv = [sys.executable, "-m", "benchmarks.mutate", "--only", "command", "--count", str(FEW)]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("name", [name for name in HERE if name != "listing"])
def test_what_it_begins_with_is_right(name: str, tmp_path: Path) -> None:
    """Else the changes would be to something that is refused as it is."""
    ends = {KINDS[name].judge(tmp_path, seed) for seed in KINDS[name].seeds}
    assert ends - {"refused", "broken off"}


def test_the_same_seed_makes_the_same_input() -> None:
    assert [attempt(KINDS["rig"], "rig", seed).data for seed in (1, 2)] == [
        attempt(KINDS["rig"], "rig", seed).data for seed in (1, 2)
    ]
