"""`herd init --example NAME`: the examples of llamaherd, written into a fleet folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from llamaherd.pipeline.fleet_files import examine_fleet
from llamaherd.scaffold import ScaffoldError, example_names, example_rigs
from tests.support.rigs import ROOT


def herd(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], prog_name="herd")


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one; the folders above it hold no fleet."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path / "new")
    return tmp_path / "new"


def test_all_examples_are_offered() -> None:
    found = {path.stem for path in (ROOT / "inventory" / "examples").iterdir() if path.name != "herd.lock"}
    assert set(example_names()) == found


@pytest.mark.parametrize("name", example_names())
def test_an_example_passes_the_check_on_its_own(tmp_path: Path, name: str) -> None:
    ended = herd("init", tmp_path / "fleet", "--example", name)
    assert ended.exit_code == 0, ended.output
    fleet, findings = examine_fleet(tmp_path / "fleet")
    assert fleet.rigs
    assert [str(finding) for finding in findings if finding.severity == "error"] == []
    for file in (tmp_path / "fleet").glob("*.yaml"):
        schema = file.read_text(encoding="utf-8").splitlines()[0].removeprefix("# yaml-language-server: $schema=")
        assert (tmp_path / "fleet" / schema).is_file(), file


def test_an_example_brings_the_rigs_that_it_names() -> None:
    assert set(example_rigs("wsl")) == {"wsl", "duo"}
    assert set(example_rigs("household")) == {"attic", "porch", "fleet"}


def test_an_unknown_example_lists_all(tmp_path: Path) -> None:
    ended = herd("init", tmp_path / "fleet", "--example", "duos")
    assert ended.exit_code == 1
    assert "help: the examples are budget, duo, household, one, six, wsl" in ended.stderr
    assert not (tmp_path / "fleet").exists()


@pytest.mark.parametrize("name", ["../box", "", "duo.yaml", "/etc"])
def test_a_path_is_no_example(name: str) -> None:
    with pytest.raises(ScaffoldError, match="there is no example"):
        example_rigs(name)


def test_without_a_folder_it_is_the_current_one_if_that_is_empty(empty: Path) -> None:
    ended = herd("init", "--example", "duo")
    assert (ended.exit_code, (empty / "duo.yaml").is_file()) == (0, True)
    assert ended.stderr == "next: edit duo.yaml, and run `herd check`\n"
    (empty / "duo.yaml").write_text("rig: mine\n")
    assert "kept       duo.yaml" in herd("init", "--example", "duo").stdout


def test_in_a_fleet_the_files_are_written_to_its_folder(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    herd("init")
    (empty / "roles").mkdir()
    monkeypatch.chdir(empty / "roles")
    ended = herd("init", "--example", "one")
    assert (empty / "one.yaml").is_file()
    assert ended.stderr == f"next: run `cd {empty}`, edit one.yaml, and run `herd check`\n"


def test_a_folder_with_other_files_must_be_named(empty: Path) -> None:
    (empty / "thesis.tex").touch()
    ended = herd("init", "--example", "duo")
    assert (ended.exit_code, [path.name for path in empty.iterdir()]) == (1, ["thesis.tex"])
    assert "as in `herd init fleet`; `herd init .` is this folder" in ended.stderr
    assert herd("init", ".", "--example", "duo").exit_code == 0


def test_two_kinds_of_a_first_rig_contradict(empty: Path) -> None:
    ended = herd("init", "--example", "duo", "--from", "local")
    assert (ended.exit_code, list(empty.iterdir())) == (2, [])
