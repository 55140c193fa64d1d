"""Samples of laws: how many examples an ordinary run draws, and that a seed draws the same ones everywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.rigs import ROOT
from tests.support.sample import SEED, drawn

LAW = """
import pytest
from tests.support.sample import drawn

@pytest.mark.parametrize("example", drawn(range(1000)))
def test_law(example):
    pass
"""


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (19, 19), (20, 5), (60, 6), (1000, 100)])
def test_a_tenth_is_drawn_or_all_of_a_few(count: int, expected: int) -> None:
    sample = drawn(range(count), "1", everything=False)
    assert len(sample) == expected
    assert sample == sorted(set(sample))


def test_a_search_runs_all_examples() -> None:
    assert drawn(range(1000), "1", everything=True) == list(range(1000))


def test_another_seed_draws_other_examples() -> None:
    one, same, other = (drawn(range(1000), seed, everything=False) for seed in ("1", "1", "2"))
    assert one == same
    assert one != other


def test_workers_draw_the_examples_of_the_seed_in_the_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a seed, the controller makes one; a worker that collects other tests fails the run."""
    for name in ("LLAMAHERD_SEED", "LLAMAHERD_SAMPLE", "LLAMAHERD_SEARCH"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "test_law.py").write_text(LAW)
    header = "from tests.support.sample import header as pytest_report_header\n"
    (tmp_path / "conftest.py").write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{header}")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    argv = [sys.executable, "-m", "pytest", "-p", "xdist", "-n", "2", str(tmp_path)]
    ended = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "100 passed" in ended.stdout, ended.stdout
    seed = ended.stdout.partition("LLAMAHERD_SEED=")[2].split()[0]
    assert seed.isdigit()
    assert f"seed {seed}:" in ended.stdout


def test_processes_inherit_the_seed() -> None:
    command = "from tests.support.sample import SEED; print(SEED)"
    ended = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == SEED
