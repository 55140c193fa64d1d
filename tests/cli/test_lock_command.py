"""`herd lock`: what it refuses before it writes a lock."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from llamaherd.cli.herd import main
from llamaherd.lock.file import write_lock
from tests.support.rigs import changed, cpu_rig, hub_lock


@pytest.mark.parametrize("broken", ["rig: [\n", yaml.safe_dump(changed(cpu_rig(), {"rig": "other", "engine": {}}))])
def test_a_rig_with_an_error_leaves_the_lock_as_it_is(tmp_path: Path, broken: str) -> None:
    (tmp_path / "box.yaml").write_text(yaml.safe_dump(cpu_rig()))
    (tmp_path / "other.yaml").write_text(broken)
    write_lock(tmp_path / "herd.lock", hub_lock())
    before = (tmp_path / "herd.lock").read_bytes()
    ended = CliRunner().invoke(main, ["lock", "-i", str(tmp_path)], prog_name="herd")
    assert (ended.exit_code, "other.yaml" in ended.output) == (2, True), ended.output
    assert (tmp_path / "herd.lock").read_bytes() == before
