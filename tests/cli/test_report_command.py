"""`herd report`: beside an inventory, of what is named, in each of its forms."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from llamaherd.installation import install_command
from llamaherd.measure.results.result import Run, SuiteRef
from llamaherd.measure.results.store import Journal, redact_result, result_bytes, write_result
from tests.bench.made import IN_FORM, result, run
from tests.report.many import many
from tests.support.envelope import envelope
from tests.support.rigs import ROOT

DATA = ROOT / "tests/data/bench"
SUITE = SuiteRef(name="llamaherd", sha256="a" * 64)


def herd(*words: str | Path) -> Result:
    ended = CliRunner().invoke(main, [str(word) for word in words], prog_name="herd")
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Two rigs: two results of duo/chat, one of duo/code, one of six/chat."""
    for rig, instance, day, speed in (
        *(("duo", "chat", 1, 100.0), ("duo", "chat", 2, 80.0)),
        *(("duo", "code", 1, 50.0), ("six", "chat", 3, 40.0)),
    ):
        began = f"2026-03-0{day}T00:00:00Z"
        runs = [run(speed + each / 10) for each in range(5)]
        made = result(*runs, rig=rig, instance=instance, began=began, ended=began, suite=SUITE)
        write_result(tmp_path / "results", made)
    return tmp_path


def told(ended: Result) -> list[str]:
    return [f"{each['label']} {each['measured'][:10]}" for each in envelope(ended.stdout)["data"]["results"]]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ["duo/chat 2026-03-01", "duo/chat 2026-03-02", "duo/code 2026-03-01", "six/chat 2026-03-03"]),
        (["six"], ["six/chat 2026-03-03"]),
        (["duo/chat"], ["duo/chat 2026-03-01", "duo/chat 2026-03-02"]),
        (["duo/code", "six", "six/chat"], ["duo/code 2026-03-01", "six/chat 2026-03-03"]),
    ],
)
def test_what_is_named_or_all(fleet: Path, words: list[str], expected: list[str]) -> None:
    ended = herd("report", "-i", fleet, *words, "--json")
    assert ended.exit_code == 0, ended.output
    assert told(ended) == expected


def test_files_stand_beside_results(fleet: Path) -> None:
    ended = herd("report", "-i", fleet, "six", DATA / "six.txt", DATA / "one.md", "--json")
    assert ended.exit_code == 0, ended.output
    labels = [each["label"] for each in envelope(ended.stdout)["data"]["results"]]
    assert "six/chat" in labels
    assert {"six.txt", "one.md:1", "one.md:7", "Gemma 4 26B-A4B (vLLM tokenspeed-preview)"} <= set(labels)


def test_results_for_others_are_not_taken_for_each_other(tmp_path: Path) -> None:
    """Neither has a name: one is no older result of the other, and none is stale."""
    for name, day, speed in (("a.json", 1, 100.0), ("b.json", 2, 50.0)):
        whole = result(run(speed), run(speed + 1), began=f"2026-03-0{day}T00:00:00Z", ended="2026-03-03T00:00:00Z")
        (tmp_path / name).write_bytes(result_bytes(redact_result(whole)))
    ended = herd("report", "-i", tmp_path, tmp_path / "a.json", tmp_path / "b.json", "--markdown")
    assert ended.exit_code == 0, ended.output
    assert [line for line in ended.stdout.splitlines() if line.startswith("### ")] == ["### a.json", "### b.json"]
    assert "stale" not in ended.stdout


def test_here_there_are_tables_with_bars(fleet: Path) -> None:
    ended = herd("report", "-i", fleet)
    assert ended.exit_code == 0, ended.output
    (now, other, _) = [line.split("│")[0] for line in ended.stdout.splitlines() if "█" in line]
    assert now.split()[:3] == ["duo/chat", "80.20", "±"]
    assert now.count("█") == 30
    assert 17 <= other.count("█") <= 19
    assert "2026-03-01 00:00:00" in ended.stdout


def test_letters_that_every_terminal_has(fleet: Path) -> None:
    words = [str(Path(sys.executable).with_name("herd")), "report", "-i", str(fleet)]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, capture_output=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    assert b"####" in done.stdout
    assert done.stdout.isascii()


@pytest.mark.parametrize(
    ("name", "begins"), [("a.html", "<!doctype html>"), ("a.md", "# Measured speeds"), ("a.csv", "rig,instance,")]
)
def test_a_file_says_by_its_name_what_it_is(fleet: Path, name: str, begins: str) -> None:
    to = fleet / name
    to.write_text("what was there")
    ended = herd("report", "-i", fleet, "-o", to)
    assert (ended.exit_code, ended.output) == (0, "")
    assert to.read_text(encoding="utf-8").startswith(begins)
    assert [each.name for each in fleet.iterdir()].count(name) == 1
    assert not list(fleet.glob(".herd-*"))
    again = to.read_bytes()
    herd("report", "-i", fleet, "-o", to)
    assert to.read_bytes() == again


def test_forms_that_are_asked_for(fleet: Path) -> None:
    assert herd("report", "-i", fleet, "--markdown").stdout.startswith("# Measured speeds")
    rows = list(csv.DictReader(io.StringIO(herd("report", "-i", fleet, "duo/chat", "--csv").stdout)))
    decode = [row for row in rows if row["metric"] == "decode"]
    assert [(row["measured"][:10], row["value"], row["n"]) for row in decode] == [
        ("2026-03-01", "100.2", "5"),
        ("2026-03-02", "80.1998", "5"),
    ]
    to = fleet / "figures.txt"
    assert herd("report", "-i", fleet, "--csv", "-o", to).exit_code == 0
    assert to.read_text().startswith("rig,")


def test_charts_are_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in many(2, instances=1):
        write_result(tmp_path / "results", each)
    folder = tmp_path / "charts"
    ended = herd("report", "-i", tmp_path, "attic/server-0", "--charts", folder)
    assert (ended.exit_code, ended.stdout) == (0, "")
    names = sorted(each.name for each in folder.iterdir())
    assert ended.stderr == f"{len(names)} files written to {folder}\n"
    assert {each.rpartition(".")[0] for each in names if each.endswith("png")} == {
        each.rpartition(".")[0] for each in names if each.endswith("svg")
    }
    light = (folder / "attic-server-0-decode-over-the-context.png").read_bytes()
    assert light.startswith(b"\x89PNG")
    svg = (folder / "attic-server-0-over-time.svg").read_text()
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    herd("report", "-i", tmp_path, "attic/server-0", "--charts", folder, "--dark")
    assert (folder / "attic-server-0-decode-over-the-context.png").read_bytes() != light
    assert sorted(each.name for each in folder.iterdir()) == names
    refused = herd("report", "-i", tmp_path, "--dark")
    assert (refused.exit_code, "--dark is for --card and --charts" in refused.stderr) == (2, True)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused = herd("report", "-i", tmp_path, "--charts", folder)
    assert (refused.exit_code, f"help: run `{install_command('report')}`" in refused.stderr) == (2, True)


def test_without_charts_there_is_nothing_to_draw(tmp_path: Path) -> None:
    write_result(tmp_path / "results", result(run(50.0), suite=SUITE))
    ended = herd("report", "-i", tmp_path, "--charts", tmp_path / "charts")
    assert (ended.exit_code, "there is no chart to draw" in ended.stderr) == (2, True)


def test_a_page_without_matplotlib_has_tables_and_says_what_to_install(
    fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert herd("report", "-i", fleet, "-o", fleet / "a.html").exit_code == 0
    text = (fleet / "a.html").read_text()
    assert "<svg" not in text
    assert "charts are not drawn, only their tables: the extra" in text
    assert "<table" in text


def test_what_cannot_be_written(fleet: Path) -> None:
    for to, why in ((fleet / "report.txt", ".html, .md or .csv"), (fleet / "no/where.html", "cannot write")):
        ended = herd("report", "-i", fleet, "-o", to)
        assert ended.exit_code == 2
        assert why in ended.stderr
    assert not (fleet / "report.txt").exists()


def test_one_that_cannot_be_read_is_left_out_and_named(fleet: Path) -> None:
    (path,) = (fleet / "results/six/chat").iterdir()
    path.write_text(path.read_text().replace("40", "90"))
    ended = herd("report", "-i", fleet, "-o", fleet / "a.html")
    assert ended.exit_code == 1
    assert path.name in ended.stderr
    page = (fleet / "a.html").read_text()
    assert path.name in page
    assert "six/chat" not in page.replace(str(path), "")


def test_one_that_is_being_measured_is_told_as_cut_off(fleet: Path) -> None:
    with Journal.begin(fleet / "results", result(rig="wsl", began="2026-03-05T00:00:00Z", suite=SUITE)) as journal:
        for speed in (90.0, 90.1, 90.2):
            journal.add_run(0, run(speed))
        ended = herd("report", "-i", fleet, "wsl")
    assert ended.exit_code == 0, ended.output
    assert "it was cut off" in ended.stdout


@pytest.mark.parametrize(
    "bad",
    [
        Run(predicted_n=2**63 - 1, predicted_ms=1e-6),
        Run(predicted_n=2**63 - 1, predicted_ms=1.0),
        Run(prompt_n=1, prompt_ms=1e15),
        Run(predicted_n=5, predicted_ms=10.0, watts=1e15),
    ],
    ids=["no time", "many tokens", "all time", "all power"],
)
def test_what_nobody_can_have_measured_is_left_out(fleet: Path, bad: Run) -> None:
    write_result(fleet / "results", result(bad, rig="wsl", suite=SUITE))
    ended = herd("report", "-i", fleet, "-o", fleet / "a.html")
    assert ended.exit_code == 1
    assert "contains impossible values" in ended.stderr
    assert herd("report", "-i", fleet, "wsl").exit_code == 2


@pytest.mark.parametrize("began", ["0000-99-99T99:99:99Z", "2026-13-01T00:00:00Z"])
def test_a_day_that_is_none(fleet: Path, began: str) -> None:
    path = write_result(fleet / "results", result(run(), rig="wsl", suite=SUITE))
    path.write_text(path.read_text(encoding="utf-8").replace(IN_FORM["began"], began), encoding="utf-8")
    ended = herd("report", "-i", fleet)
    assert ended.exit_code == 1
    assert f"{path} is no usable result" in ended.stderr


@pytest.mark.parametrize("word", ["nobody", "duo/nobody", "no/such/file.json", "../results", "\x1b[31m", "a\0b"])
def test_a_name_of_nothing_ends_with_a_sentence(fleet: Path, word: str) -> None:
    ended = herd("report", "-i", fleet, word)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert "help: " in ended.stderr
    assert "\x1b" not in ended.stderr


def test_without_results_there_is_a_way_out(tmp_path: Path) -> None:
    ended = herd("report", "-i", tmp_path)
    assert ended.exit_code == 2
    assert "there are no results in" in ended.stderr
