"""No shell script opens a lock of the host: programs on hosts do, in a folder that is root's alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).resolve().parents[2] / "templates").rglob("*.sh*"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_opens_a_lock_elsewhere(path: Path) -> None:
    text = path.read_text()
    # A descriptor that is copied or closed opens no file.
    assert not re.search(r"exec \d+<?>(?!&)|\d>>", text)
    assert "/run/lock" not in text
    assert "/var/lock" not in text
