"""`herd monitoring`: dashboards and units as files; systemd itself says what it makes of the units."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from llamaherd.fleet.dashboards import DASHBOARDS
from tests.support.rigs import cpu_rig


def herd(*words: str | Path) -> Result:
    """Run it to its end."""
    ended = CliRunner().invoke(main, [str(word) for word in words], prog_name="herd")
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A rig that watches itself, in a folder whose name needs quoting everywhere."""
    folder = tmp_path / "my 50% $fleet"
    folder.mkdir()
    declared: dict[str, Any] = {**cpu_rig(), "engines": {}, "models": {}, "instances": {}}
    (folder / "box.yaml").write_text(json.dumps(declared))
    (folder / "fleet.yaml").write_text("monitoring: {on: box, rigs: [box], drift: true}")
    return folder


def test_dashboards_are_written_and_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "dashboards"
    said = herd("monitoring", "grafana", "-o", folder)
    names = [f"{each.uid}.json" for each in DASHBOARDS]
    assert said.stderr.splitlines() == [f"written: {folder / name}" for name in names]
    before = {name: (folder / name).read_text() for name in names}
    assert all(json.loads(text)["panels"] for text in before.values())
    assert herd("monitoring", "grafana", "-o", folder).exit_code == 0
    assert {each.name: each.read_text() for each in folder.iterdir()} == before


def test_a_file_of_somebody_else_stays_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "llamaherd-rig.json").write_text("notes")
    said = herd("monitoring", "grafana", "-o", tmp_path)
    assert said.exit_code == 2
    assert said.stderr.startswith(f"error: {tmp_path}/llamaherd-rig.json was not written by `herd`\n")
    assert [each.name for each in tmp_path.iterdir()] == ["llamaherd-rig.json"]


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = herd("monitoring", "grafana", "-o", tmp_path / "file" / "dashboards")
    assert (said.exit_code, said.stderr.count("\n")) == (2, 2)
    assert "cannot create" in said.stderr


def test_units_run_a_look_at_this_inventory(tmp_path: Path, fleet: Path) -> None:
    units = tmp_path / "units"
    said = herd("monitoring", "timer", "-i", fleet, "-o", units, "--at", "12:05")
    assert said.exit_code == 0, said.stderr
    assert "systemctl --user enable --now llamaherd-look.timer" in said.stderr
    service = (units / "llamaherd-look.service").read_text()
    (line,) = [line for line in service.splitlines() if line.startswith("ExecStart=")]
    words = shlex.split(line.removeprefix("ExecStart=").replace("%%", "%").replace("$$", "$"))
    assert os.access(words[0], os.X_OK)
    assert words[1:] == ["-i", str(fleet.resolve()), "diff", "--tell"]
    assert "OnCalendar=*-*-* 12:05:00\n" in (units / "llamaherd-look.timer").read_text()
    assert herd("monitoring", "timer", "-i", fleet, "-o", units).exit_code == 0, "the same are written again"


def test_systemd_takes_the_units(tmp_path: Path, fleet: Path) -> None:
    herd("monitoring", "timer", "-i", fleet, "-o", tmp_path / "units")
    files = [str(tmp_path / "units" / f"llamaherd-look.{kind}") for kind in ("timer", "service")]
    (tmp_path / "run").mkdir()
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    command = ["systemd-analyze", "--user", "verify", *files]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_unit_of_somebody_else_stays(tmp_path: Path, fleet: Path) -> None:
    (tmp_path / "llamaherd-look.service").write_text("[Service]\n")
    assert herd("monitoring", "timer", "-i", fleet, "-o", tmp_path).exit_code == 2
    assert (tmp_path / "llamaherd-look.service").read_text() == "[Service]\n"


@pytest.mark.parametrize("at", ["24:00", "3:30", "03:30\nOnBootSec=1", "*:0"])
def test_what_is_no_time_of_a_day_is_refused(at: str, tmp_path: Path, fleet: Path) -> None:
    said = herd("monitoring", "timer", "-i", fleet, "-o", tmp_path / "units", "--at", at)
    assert (said.exit_code, (tmp_path / "units").exists()) == (2, False)
    assert "is not a time of day" in said.stderr


def test_without_somebody_to_be_told_there_is_no_timer(tmp_path: Path, fleet: Path) -> None:
    (fleet / "fleet.yaml").write_text("monitoring: {on: box, rigs: [box]}")
    said = herd("monitoring", "timer", "-i", fleet, "-o", tmp_path / "units")
    assert (said.exit_code, (tmp_path / "units").exists()) == (2, False)
    assert "declare it, as in `monitoring: {on: attic, drift: true}`" in said.stderr
