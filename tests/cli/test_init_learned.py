"""`herd init` beside searches: what was found best on such GPUs stands in the rig's file, as a comment alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamaherd.cli.fleet_folder import measured_lines
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.hardware import FoundHost
from llamaherd.pipeline.fleet_files import examine_fleet
from llamaherd.scaffold import fleet_files, rig_yaml, write_files
from tests.scaffold.test_scaffold import DUO, seen
from tests.tune.kept import keep, like


def written(folder: Path, look: FoundHost, measured: list[str]) -> tuple[str, Rig]:
    """The text of the rig and what is read of it."""
    text = rig_yaml(look, "new", DUO, measured)
    write_files(folder, fleet_files({"new": text}))
    return text, examine_fleet(folder / "new.yaml")[0].rigs["new"]


def test_what_was_found_on_such_a_host_is_a_comment_and_nothing_else(tmp_path: Path) -> None:
    look = seen("duo")
    keep(tmp_path / "results", like(("RTX 3090", 24), cores=look.cores))
    lines = measured_lines(tmp_path, look)
    text, rig = written(tmp_path, look, lines)
    plain = rig_yaml(look, "new", DUO)
    assert text.startswith(plain)
    added = text.removeprefix(plain).splitlines()
    assert all(line == "" or line.startswith("# ") for line in added)
    assert (
        "# What `herd tune` has measured on rigs with such GPUs and as many cores. Nothing of it is used here:" in added
    )
    assert any("on duo/worker (RTX 3090, " in line for line in added)
    assert any(line.startswith("#   threads: ") for line in added)
    assert rig == written(tmp_path / "plain", look, [])[1]


@pytest.mark.parametrize("look", ["h100", "laptop", "cpu-box", "no-driver"])
def test_of_other_hosts_nothing_is_said(tmp_path: Path, look: str) -> None:
    there = seen(look)
    keep(tmp_path / "results", like(("RTX 3090", 24), cores=there.cores or there.threads))
    keep(tmp_path / "results", like(cores=there.cores or there.threads), "cpu/worker")
    assert measured_lines(tmp_path, there) == []
    assert rig_yaml(there, "new", DUO, []) == rig_yaml(there, "new", DUO)


def test_a_name_that_wants_to_be_yaml_stays_in_the_comment(tmp_path: Path) -> None:
    look = seen("duo")
    keep(tmp_path / "results", like(("RTX 3090", 24), cores=look.cores, model="x\nrig: other\n\u2028y: 1\r"))
    _, rig = written(tmp_path, look, measured_lines(tmp_path, look))
    assert rig == written(tmp_path / "plain", look, [])[1]
