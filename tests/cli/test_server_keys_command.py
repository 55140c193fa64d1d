"""Keys of servers that are not made yet, as commands treat them: `herd up` makes them, and nothing else does."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server_keys import KeylessFleet
from tests.support.ssh_hosts import HERD


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeylessFleet:
    """Its hosts say which keys they have, and then nothing more."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return KeylessFleet(tmp_path)


def herd(fleet: KeylessFleet, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, as a run of pyinfra leaves much behind."""
    command = [HERD, *words, "-i", str(fleet.folder)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [("check",), ("plan",), ("diff",), ("verify", "porch")], ids=" ".join)
def test_who_changes_no_host_makes_none(fleet: KeylessFleet, words: tuple[str, ...]) -> None:
    ended = herd(fleet, *words)
    said = ended.stdout + ended.stderr
    assert "LH024" not in said
    assert "LH022" not in said
    assert not (fleet.folder / "keys").exists()


def test_a_run_makes_it_and_says_so_without_showing_it(fleet: KeylessFleet) -> None:
    first = herd(fleet, "up", "porch")
    assert f"made {fleet.key('porch')}, the key of servers of rig porch" in first.stderr
    key = fleet.key("porch").read_text().strip()
    assert key not in first.stdout + first.stderr
    assert stat.S_IMODE(fleet.key("porch").stat().st_mode) == 0o600
    again = herd(fleet, "up", "porch")
    assert "made " not in again.stderr
    assert fleet.key("porch").read_text().strip() == key


def test_a_run_that_tells_more_makes_it_too(fleet: KeylessFleet) -> None:
    assert f"made {fleet.key('porch')}" in herd(fleet, "up", "porch", "-v").stderr


@pytest.mark.parametrize("words", [("up",), ("up", "attic"), ("up", "-v"), ("diff",)], ids=" ".join)
def test_a_key_of_another_machine_ends_it_before_anything_is_changed(
    fleet: KeylessFleet, words: tuple[str, ...]
) -> None:
    fleet.host("porch", has="chat")
    ended = herd(fleet, *words)
    assert ended.returncode == (1 if words == ("diff",) else 2)
    assert "error LH024" in ended.stderr
    assert "bring the file from where `herd up` made it" in ended.stderr
    assert not fleet.key("porch").exists()


def test_pyinfras_own_command_makes_it_too(fleet: KeylessFleet) -> None:
    script = "import pathlib, sys\nfrom llamaherd.deploy.run import pyinfra_hosts\n"
    script += "pyinfra_hosts(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", script, str(fleet.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"made {fleet.key('porch')}" in done.stderr
    assert fleet.key("porch").read_text().strip() not in done.stdout + done.stderr
