"""Commands of real life that are right: scripts, `docker run`, Compose files, units. Nothing is said of any.

They are written for this test, one to a file, in the shapes that such commands have.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from llamaherd.recipes import examine, kind_of

RIGHT = sorted((Path(__file__).parents[1] / "data" / "recipes" / "right").iterdir())


@pytest.mark.parametrize("file", RIGHT, ids=lambda file: file.name)
def test_nothing_is_said_of_what_is_right(file: Path) -> None:
    assert [str(finding) for finding in examine(file)] == []


def test_there_are_enough_and_each_is_read_as_what_it_is() -> None:
    assert len(RIGHT) >= 54
    kinds = {file: kind_of(file, file.read_text(encoding="utf-8")) for file in RIGHT}
    assert {file.suffix: kind for file, kind in kinds.items()} == {
        ".sh": "shell",
        ".service": "shell",
        ".yaml": "compose",
        ".yml": "swap",
        ".ini": "preset",
        ".container": "quadlet",
    }
