"""`herd up` locks what is new, in one line, and moves nothing; with `--locked` it refuses instead."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from llamaherd.cli.apply import lock_new_names
from llamaherd.cli.herd import main
from llamaherd.lock import Lock, LockedArchive, read_lock_file, write_lock
from tests.support.rigs import changed, cpu_rig

SHA = "ab" * 32


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fleet folder, the current one: a rig whose engine is an archive without a hash."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "llama.tar.gz").write_bytes(b"a source archive")
    source = {"archive": "llama.tar.gz", "folder": "llama.cpp", "version": {"number": 11434}}
    connect = {"host": "127.0.0.1", "port": 9}
    rig = changed(cpu_rig(), {"engines/main/source": source, "connect": connect, "models": {}, "instances": {}})
    (tmp_path / "box.yaml").write_text(yaml.safe_dump(rig, sort_keys=False))
    return tmp_path


def sha(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_new_names_are_locked_in_one_line(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock_new_names(None, ())
    locked = sha(fleet / "llama.tar.gz")
    assert capsys.readouterr().err == f"locked in herd.lock: llama.tar.gz with sha256 {locked[:12]}\n"
    assert read_lock_file(fleet / "herd.lock").archives == (
        LockedArchive(archive="llama.tar.gz", sha256=locked, size=16),
    )
    lock_new_names(None, ())
    assert capsys.readouterr().err == ""


def test_what_is_locked_stays_as_it_is(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also what no rig declares any more: `herd lock` removes it."""
    before = Lock(archives=tuple(LockedArchive(archive=name, sha256=SHA, size=1) for name in ("llama.tar.gz", "old")))
    write_lock(fleet / "herd.lock", before)
    lock_new_names(None, ())
    assert read_lock_file(fleet / "herd.lock") == before
    (fleet / "next.tar.gz").write_bytes(b"another archive")
    rig = yaml.safe_load((fleet / "box.yaml").read_text())
    rig["engines"]["next"] = rig["engines"]["main"] | {"source": {"archive": "next.tar.gz"}}
    (fleet / "box.yaml").write_text(yaml.safe_dump(rig))
    lock_new_names(None, ())
    after = read_lock_file(fleet / "herd.lock")
    assert {each.archive: each.sha256 for each in after.archives} == {
        "llama.tar.gz": SHA,
        "next.tar.gz": sha(fleet / "next.tar.gz"),
        "old": SHA,
    }
    assert capsys.readouterr().err.startswith("locked in herd.lock: next.tar.gz with sha256 ")


def test_only_the_named_rigs_are_locked(fleet: Path) -> None:
    lock_new_names(None, ["other"])
    assert not (fleet / "herd.lock").exists()


def test_an_inventory_with_errors_is_not_locked(fleet: Path) -> None:
    text = (fleet / "box.yaml").read_text()
    (fleet / "other.yaml").write_text(text.replace("rig: box", "rig: other").replace("ram: 4GB", "ram: much"))
    ended = CliRunner().invoke(main, ["up"], prog_name="herd")
    assert (ended.exit_code, "other.yaml" in ended.stderr) == (2, True)
    assert not (fleet / "herd.lock").exists()


def test_what_cannot_be_resolved_ends_the_run(fleet: Path) -> None:
    (fleet / "llama.tar.gz").unlink()
    ended = CliRunner().invoke(main, ["up"], prog_name="herd")
    assert ended.exit_code == 1
    assert "LH034" in ended.stderr
    assert "herd.lock was not changed" in ended.stderr
    assert "Inspecting" not in ended.stderr


def herd(fleet: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own: a run that reaches hosts leaves pyinfra in another mode."""
    program = Path(sys.executable).parent / "herd"
    return subprocess.run([program, *words], cwd=fleet, capture_output=True, text=True, check=False, timeout=120)


def test_locked_refuses_and_writes_nothing(fleet: Path) -> None:
    ended = herd(fleet, "up", "--locked")
    assert ended.returncode == 2
    assert "rig `box`: the archive of engine `main`" in " ".join(ended.stderr.split())
    assert "run `herd lock` and commit the lock" in ended.stderr
    assert not (fleet / "herd.lock").exists()
    lock_new_names(None, ())
    assert "LH031" not in herd(fleet, "up", "--locked").stderr


def test_up_locks_before_it_inspects(fleet: Path) -> None:
    ended = herd(fleet, "up")
    lines = [line for line in ended.stderr.splitlines() if line.startswith(("locked", "--> Inspecting"))]
    assert lines[0].startswith("locked in herd.lock: llama.tar.gz")
    assert (fleet / "herd.lock").exists()
