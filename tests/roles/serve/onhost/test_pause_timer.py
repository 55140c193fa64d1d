"""The units of a pause: systemd reads them as they are meant."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from llamaherd.onhost.server_control import ControlledServer
from roles.serve.onhost.pause_timer import write_timer
from tests.support.played_host import File, PlayedHost

pytestmark = pytest.mark.usefixtures("starts_processes")


def test_systemd_accepts_the_units_and_the_end_is_a_time_in_utc(tmp_path: Path) -> None:
    host = PlayedHost({}, files={"/opt/llamaherd/libexec/onhost/0.pyz": File("")})
    write_timer(ControlledServer("a-1.b_c", "llama-a-1.b_c", 8080, 60), 1_795_249_315.7, host)
    units = {path.rpartition("/")[2]: file.text for path, file in host.files.items() if path.startswith("/etc/")}
    assert sorted(units) == ["llamaherd-resume-a-1.b_c.service", "llamaherd-resume-a-1.b_c.timer"]
    for name, text in units.items():
        (tmp_path / name).write_text(text)
    files = [str(tmp_path / name) for name in units]
    words = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *files]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert "\nOnCalendar=2026-11-21 08:21:55 UTC\n" in units["llamaherd-resume-a-1.b_c.timer"]
