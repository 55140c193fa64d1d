"""Faults that `benchmarks/mutants.py` draws: each is one change of code that runs, and the rest stays as it is."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import mutants
from benchmarks.mutants import mutant
from benchmarks.mutations_of_code import candidates, draw, probe_lines

SOURCE = '''"""A module with the number 1."""

from __future__ import annotations

LIMIT = 3


def cut(values: list[int], most: int | None = None) -> list[int]:
    """Return values up to 9."""
    if most is None or not values:
        raise ValueError(f"ä {LIMIT + 1}")
    values.sort()
    return [each for each in values if each < most]
'''
CHANGES = {
    "3 -> 4",
    "most is None -> (most is not None)",
    "most is None or not values -> (most is None and (not values))",
    "most is None or not values -> (not (most is None or not values))",
    "most is None or not values -> False",
    'raise ValueError(f"ä {LIMIT + 1}") -> pass',
    "values.sort() -> pass",
    "[each for each in values if each < most] -> None",
    "each < most -> (each <= most)",
    "each < most -> (not (each < most))",
}


def test_messages_types_and_docstrings_have_no_fault() -> None:
    assert {f"{fault.old} -> {fault.new}" for fault in candidates(SOURCE, "cut.py")} == CHANGES


def test_a_mutant_has_its_fault_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "cut.py").write_text(SOURCE)
    for fault in candidates(SOURCE, "cut.py"):
        with mutant(tmp_path, [fault]) as tree:
            text = (tree / "cut.py").read_text()
        ast.parse(text)
        lines = SOURCE.splitlines(keepends=True)
        begin = len("".join(lines[: fault.line - 1]))
        before, _, after = SOURCE[begin:].partition(fault.old)
        assert "\n" not in before
        assert text == SOURCE[:begin] + before + fault.new + after


def test_the_same_seed_draws_the_same_faults(tmp_path: Path) -> None:
    (tmp_path / "llamaherd").mkdir()
    (tmp_path / "llamaherd/cut.py").write_text(SOURCE)
    assert draw(tmp_path, 3, 1) == draw(tmp_path, 3, 1) != draw(tmp_path, 3, 2)


def test_functions_that_read_a_faulty_name_are_recorded(tmp_path: Path) -> None:
    (tmp_path / "llamaherd").mkdir()
    (tmp_path / "llamaherd/cut.py").write_text(SOURCE)
    (outside,) = (each for each in candidates(SOURCE, "llamaherd/cut.py") if each.old == "3")
    (text,) = probe_lines(tmp_path, [outside]).values()
    (added,) = set(text.splitlines()) - set(SOURCE.splitlines())
    assert added == '    __import__("mutant_probes").reached((0,))'
    assert text.replace(f"{added}\n", "") == SOURCE


TESTS = """
import pytest
from llamaherd.cut import cut

def test_short_values():
    assert cut([2, 1, 3], 3) == [1, 2]

def test_no_values():
    with pytest.raises(ValueError):
        cut([], 3)

def test_that_fails_without_a_fault():
    assert cut([1], 0)
"""


@pytest.mark.usefixtures("starts_processes")
def test_each_fault_is_found_or_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "root"
    files = {"llamaherd/cut.py": SOURCE, "tests/test_cut.py": TESTS, "llamaherd/__init__.py": ""}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q", root], check=True)
    monkeypatch.setattr(mutants, "ROOT", root)
    words = ["--count", "6", "--seed", "3", "--jobs", "1", "--keep", str(tmp_path / "keep")]
    monkeypatch.setattr(sys, "argv", ["mutants", *words])
    assert mutants.main() == 0
    printed = capsys.readouterr().out
    assert printed.startswith("seed 3, ")
    ends = dict(re.findall(r"^ +\d+  llamaherd/cut.py:\d+  \w+\S*: (.*)\n     (.*)", printed, re.MULTILINE))
    assert 2 <= len(ends) <= 6
    survivors = {change for change, end in ends.items() if end == "SURVIVES"}
    assert survivors <= {"3 -> 4", "most is None -> (most is not None)"}, printed
    assert "left out: tests/test_cut.py::test_that_fails_without_a_fault" in printed
