"""Whether a unit runs: systemd that does not respond is no reason to conclude that it does not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from llamaherd.render import render

SYSTEMCTL = """#!/bin/sh
n=$(cat {count} 2>/dev/null || echo 0)
echo $((n + 1)) >{count}
sed -n "$((n + 1))p" {states}
"""


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (["active"], 0),
        (["activating"], 0),
        (["inactive"], 1),
        (["failed"], 1),
        (["", "", "active"], 0),
        (["", "inactive"], 1),
        ([], 9),
    ],
)
def test_a_unit_runs(tmp_path: Path, states: list[str], code: int) -> None:
    program = tmp_path / "systemctl"
    program.write_text(SYSTEMCTL.format(count=tmp_path / "count", states=tmp_path / "states"))
    program.chmod(0o755)
    (tmp_path / "states").write_text("".join(f"{each}\n" for each in states))
    (tmp_path / "sleep").write_text("#!/bin/sh\n")
    (tmp_path / "sleep").chmod(0o755)
    script = render("host/runs.sh.j2") + "\n(runs a.service; echo $? >answer)\n[ -s answer ] || echo 9 >answer\n"
    ended = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert int((tmp_path / "answer").read_text()) == code, ended.stderr
    assert ("does not respond" in ended.stderr) == (code == 9)
