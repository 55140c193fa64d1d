"""`herd bench --import`: the example of llama-bench's own page, kept and found again."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from llamaherd.measure.results.store import read_result
from tests.support.envelope import envelope
from tests.support.rigs import ROOT

FILE = ROOT / "tests/data/bench/llama-bench.json"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HERD_INVENTORY", raising=False)
    return tmp_path


def herd(*words: str | Path) -> Result:
    ended = CliRunner().invoke(main, [str(word) for word in words], prog_name="herd")
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended


def test_it_is_kept_as_what_it_is(folder: Path) -> None:
    ended = herd("bench", "--import", FILE, "--as", "duo/chat")
    assert ended.exit_code == 0, ended.output
    assert "by llama-bench: saved to" in ended.stdout
    assert "unknown: " in ended.stdout
    (first, *_) = paths = sorted(folder.glob("results/duo/chat/*.json"))
    kept = read_result(first)
    assert (kept.rig, kept.instance, kept.source.kind) == ("duo", "chat", "llama-bench")
    again = herd("bench", "--import", FILE, "--as", "duo/chat", "--json")
    assert sorted(envelope(again.stdout)["data"]["kept"]) == [str(path.relative_to(folder)) for path in paths]
    assert sorted(folder.glob("results/duo/chat/*")) == paths
    assert herd("compare", "duo/chat", FILE if len(paths) == 1 else f"{FILE}:1").exit_code == 0


def test_elsewhere_where_nobody_says(folder: Path) -> None:
    assert herd("bench", "--import", FILE).exit_code == 0
    assert [path.parent.parent.name for path in folder.glob("results/*/*/*.json")][:1] == ["elsewhere"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--import", "nowhere.json"], "nowhere.json"),
        (["--import", FILE, "--as", "duo"], "is not RIG/INSTANCE"),
        (["--import", FILE, "--as", "../../etc/passwd"], "is not RIG/INSTANCE"),
        (["--import", FILE, "duo"], "name a rig, or a server"),
        (["duo", "--as", "duo/chat"], "--as needs --import"),
        (["--import", ROOT / "LICENSE"], "contains no measurement"),
    ],
)
def test_what_cannot_be_kept_is_a_sentence(words: list[str | Path], says: str, folder: Path) -> None:
    ended = herd("bench", *words)
    assert ended.exit_code == 2
    assert says in ended.stderr
    assert not (folder / "results").exists()
