"""`herd compare`: files of ours and of others, and results beside an inventory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from llamaherd.measure.results.result import Cell, Condition, Kind, Start, SuiteRef
from llamaherd.measure.results.store import Journal, result_bytes, with_id, write_result
from tests.bench.made import result, run
from tests.support.envelope import envelope
from tests.support.rigs import ROOT

DATA = ROOT / "tests/data/bench"
SUITE = SuiteRef(name="llamaherd", sha256="a" * 64)
PROCESS = (Start(process="7"),)


def herd(*words: str | Path) -> Result:
    ended = CliRunner().invoke(main, [str(word) for word in words], prog_name="herd")
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Two results of an instance: on the second day it is 20 % slower."""
    for day, speed in ((1, 100.0), (2, 80.0)):
        runs = [run(speed + each / 10) for each in range(5)]
        began = f"2026-03-0{day}T00:00:00Z"
        write_result(tmp_path / "results", result(*runs, began=began, ended=began, suite=SUITE, starts=PROCESS))
    return tmp_path


def test_the_newest_beside_the_one_before(fleet: Path) -> None:
    ended = herd("compare", "-i", fleet, "duo/chat:2", "duo/chat", "--json")
    assert ended.exit_code == 0, ended.output
    said = envelope(ended.stdout)["data"]
    (cell,) = said["cells"]
    assert (cell["metric"], cell["verdict"], cell["more"]) == ("decode", "slower", None)
    assert cell["a"]["value"] == pytest.approx(100.2, abs=0.01)
    assert (cell["a"]["n"], cell["a"]["of"]) == (5, "run")
    assert cell["ratio"]["value"] == pytest.approx(0.8, abs=0.001)
    assert said["differences"] == []


def test_for_people_there_is_a_table_and_a_chart(fleet: Path) -> None:
    ended = herd("compare", "-i", fleet, "duo/chat:2", "duo/chat")
    assert ended.exit_code == 0, ended.output
    assert "no known difference" in ended.stdout
    (row,) = [line for line in ended.stdout.splitlines() if "slower " in line and "t/s" in line]
    assert "-20.0 %" in row
    assert row.rstrip().endswith("slower")
    (line,) = [line for line in ended.stdout.splitlines() if line.strip().startswith("code, 256 out: decode")]
    assert "├●┤" in line or "●" in line
    assert line.index("●") < line.index("│")


def test_letters_that_every_terminal_has(fleet: Path) -> None:
    words = [str(Path(sys.executable).with_name("herd")), "compare", "-i", str(fleet), "duo/chat", "duo/chat"]
    done = subprocess.run(
        words, capture_output=True, check=False, cwd=ROOT, env=os.environ | {"PYTHONIOENCODING": "ascii"}
    )
    assert done.returncode == 0, done.stderr
    assert b": decode" in done.stdout
    assert done.stdout.isascii()


def test_a_journal_is_compared_with_what_it_has(fleet: Path) -> None:
    with Journal.begin(fleet / "results", result(began="2026-03-03T00:00:00Z", suite=SUITE)) as journal:
        for speed in (90.0, 90.1, 90.2):
            journal.add_run(0, run(speed))
    ended = herd("compare", "-i", fleet, "duo/chat:2", "duo/chat", "--json")
    said = envelope(ended.stdout)["data"]
    assert said["notes_b"] == ["it was cut off"]
    assert said["cells"][0]["b"]["n"] == 3
    assert said["cells"][0]["verdict"] == "faster"


def test_what_others_have_measured() -> None:
    ended = herd("compare", DATA / "llama-bench.json", DATA / "llama-bench.jsonl", "--json")
    said = envelope(ended.stdout)["data"]
    assert [(each["metric"], each["verdict"]) for each in said["cells"]] == [
        ("prefill", "not known yet"),
        ("decode", "not known yet"),
    ]
    assert said["cells"][0]["more"]["of"] == "start"
    assert said["differences"] == []
    assert (
        "one start each, at two times: 3% of prefill, 1% of decode are assumed to lie between them" in said["notes"][1]
    )
    assert "random tokens" in said["notes_a"][0]


def of_lengths(folder: Path, day: int, kind: Kind, tokens: int, suite: SuiteRef = SUITE) -> None:
    """Keep a result whose answers are that long."""
    began = f"2026-04-0{day}T00:00:00Z"
    cells = (Cell(condition=Condition(kind=kind, generated=tokens), runs=(run(), run(), run())),)
    write_result(folder / "results", result(began=began, ended=began, suite=suite).model_copy(update={"cells": cells}))


@pytest.mark.parametrize(
    ("kind", "tokens", "suite", "help_"),
    [
        ("code", 64, SUITE, "`code, 128 out` and `code, 64 out` differ in length: measure both with the same `--time`"),
        ("prose", 128, SUITE, "measure both with the same options of `herd bench`"),
        (
            "code",
            128,
            SuiteRef(name="llamaherd", sha256="b" * 64),
            "their prompts differ: measure both with the same version of `herd bench`",
        ),
    ],
)
def test_without_a_common_cell_it_fails_and_prints_what_to_do(
    tmp_path: Path, kind: Kind, tokens: int, suite: SuiteRef, help_: str
) -> None:
    of_lengths(tmp_path, 1, "code", 128)
    of_lengths(tmp_path, 2, kind, tokens, suite)
    ended = herd("compare", "-i", tmp_path, "duo/chat:2", "duo/chat")
    assert ended.exit_code == 1, ended.output
    text = " ".join(ended.stdout.split())
    assert f"no condition was measured in both help: {help_}" in text
    ended = herd("compare", "-i", tmp_path, "duo/chat:2", "duo/chat", "--json")
    assert ended.exit_code == 1, ended.output
    assert envelope(ended.stdout)["data"]["help"] == help_


def test_one_of_which_nothing_counts_is_to_be_measured_again(tmp_path: Path) -> None:
    of_lengths(tmp_path, 1, "code", 128)
    began = "2026-04-02T00:00:00Z"
    write_result(tmp_path / "results", result(run(excluded="noise"), began=began, ended=began, suite=SUITE))
    ended = herd("compare", "-i", tmp_path, "duo/chat:2", "duo/chat")
    assert ended.exit_code == 1, ended.output
    assert "help: measure B again: none of its runs can be compared" in ended.stdout


def test_contradictions_of_a_table_are_said() -> None:
    ended = herd("compare", DATA / "six.txt", DATA / "one.md:1")
    assert ended.exit_code == 1, ended.output
    text = " ".join(ended.stdout.split())
    assert "14.7 s is that of 7,648 tokens at the prefill speed of the same run, not of 202,752" in text
    assert "is of the text and not of the machine" in text
    assert "no condition was measured in both" in text


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("nowhere.json", "there is no file nowhere.json"),
        ("duo/other", "there is no result of duo/other"),
        ("duo/chat:9", "there are 2 results of duo/chat"),
        ("../../etc/passwd", "there is no file ../../etc/passwd"),
        (str(DATA / "one.md"), "holds 7 results"),
        (str(DATA / "one.md:9"), "holds 7 results"),
        (str(ROOT / "LICENSE"), "contains no measurement in a supported format"),
        (str(DATA), "it is a folder"),
        ("/dev/zero", "it is a device"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(word: str, said: str, fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(fleet)
    ended = herd("compare", "-i", fleet, "duo/chat", word)
    assert ended.exit_code == 2
    assert ended.stdout == ""
    assert said in ended.stderr
    assert "help: " in ended.stderr


def test_a_terminal_obeys_nothing_in_a_result(tmp_path: Path) -> None:
    wild = result(run(), run(99.0), stack="\x1b]0;gone\x07[bold]x[/]", suite=SUITE)
    (tmp_path / "a.json").write_bytes(result_bytes(with_id(wild)))
    ended = herd("compare", tmp_path / "a.json", tmp_path / "a.json")
    assert ended.exit_code == 0, ended.output
    assert "\x1b]0" not in ended.stdout
    assert "[bold]x[/]" in ended.stdout
