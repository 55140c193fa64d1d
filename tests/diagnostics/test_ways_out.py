"""Single mistakes in a rig, as people make them: with what is asked in its place, the rig is as it was meant."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from llamaherd.diagnostics.findings import Finding
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.pipeline.fleet_files import examine_fleet
from tests.support.sample import drawn

DATA = Path(__file__).parents[1] / "data"
RIGHT = (DATA / "duo.yaml").read_text(encoding="utf-8")
MISTAKES = [
    line.split(" => ") for line in (DATA / "mistakes.txt").read_text(encoding="utf-8").splitlines() if line[:1] != "#"
]
"""What stands in the right rig, and what in the wrong one; where the help is no question, words of it behind that."""
ASKED = re.compile(r"did you mean `(.+?)`")


def findings_of(text: str, folder: Path) -> list[Finding]:
    (folder / "keys").mkdir(exist_ok=True)
    (folder / "keys" / "coder").write_text("5b1f09c7d2e84a36\n", encoding="utf-8")
    file = folder / "duo.yaml"
    file.write_text(text, encoding="utf-8")
    return [found for found in examine_fleet(file)[1] if found.severity != "note"]


def data_of(text: str, folder: Path) -> Any:
    file = folder / "data.yaml"
    file.write_text(text, encoding="utf-8")
    return read_yaml(file).data


def applied(text: str, found: Finding) -> str:
    """The rig with what is asked in place of what the finding points at."""
    asked = ASKED.search(found.help)
    assert asked, found
    lines = text.splitlines(keepends=True)
    line, column = found.place.line - 1, found.place.column - 1
    before, rest = lines[line][:column], lines[line][column:]
    if found.code == "LH010" or ": " not in asked[1]:
        word = re.match(r"[^,:\]}\n]+", rest)
        assert word, rest
        value = rest[word.end() :]
        if ": " in asked[1]:
            value = re.sub(r"^:[^,}\n]*", "", value)
        lines[line] = before + asked[1] + value
    else:
        key = before.rindex(asked[1].partition(":")[0] + ":")
        given = re.match(r"\[.*?\]|\{.*?\}|\"[^\"]*\"|[^,}\n]+(?:,\d+)?", rest)
        assert given, rest
        lines[line] = before[:key] + asked[1] + rest[given.end() :]
    return "".join(lines)


def test_the_right_rig_is_right(tmp_path: Path) -> None:
    assert findings_of(RIGHT, tmp_path) == []


@pytest.mark.parametrize("case", drawn(MISTAKES), ids=lambda case: case[1])
def test_the_way_out_is_right(case: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Advice names files below the home of who asks, and mistakes.txt below that of one person.
    monkeypatch.setenv("HOME", "/home/ann")
    right, wrong, *words = (part.replace("\\n", "\n").replace("(nothing)", "") for part in case)
    assert RIGHT.count(right) >= 1, right
    text = RIGHT.replace(right, wrong, 1)
    found = findings_of(text, tmp_path)
    assert found, "nothing is said"
    if words:
        assert words[0] in found[0].help
        return
    assert len(found) == 1, found
    better = applied(text, found[0])
    if data_of(better, tmp_path) != data_of(RIGHT, tmp_path):
        # What somebody wanted besides may have a finding of its own.
        assert found[0].code not in {each.code for each in findings_of(better, tmp_path)}
