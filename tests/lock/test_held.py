"""Several `herd lock` at once, in processes of their own: none loses what another has written."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from llamaherd import lock
from llamaherd.lock import LockError, lock_held
from tests.lock.test_git_refs import git
from tests.support.rigs import ROOT

NAMES = ("one", "two", "three")
HERD = [sys.executable, "-c", "from llamaherd.cli.herd import main; main()"]


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A rig with three engines from three branches, all of them locked."""
    source = tmp_path / "source"
    source.mkdir()
    git(source, "init", "-q", "-b", "main")
    folder = tmp_path / "fleet"
    folder.mkdir()
    for name in NAMES:
        git(source, "commit", "-q", "--allow-empty", "-m", name)
        git(source, "branch", name)
    engines = {name: {"kind": "llama.cpp", "source": {"git": f"file://{source}", "ref": name}} for name in NAMES}
    rig = {
        "rig": "duo",
        "connect": {"host": "duo.lan"},
        "host": {"os": "debian-12", "cpu": {"cores": 4}, "ram": "32GB"},
        "engines": engines,
        "models": {},
        "instances": {},
    }
    (folder / "duo.yaml").write_text(yaml.safe_dump(rig))
    assert herd(folder, "lock").wait() == 0
    return folder


def herd(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = dict(os.environ) | {"HERD_INVENTORY": str(folder), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [*HERD, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


@contextmanager
def somebody_at_work(folder: Path) -> Iterator[None]:
    """Another process that holds the folder, as far as the kernel can tell."""
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    yield
    os.close(handle)


def test_three_at_once_lose_nothing(fleet: Path) -> None:
    source = fleet.parent / "source"
    git(source, "commit", "-q", "--allow-empty", "-m", "later")
    for name in NAMES:
        git(source, "branch", "-f", name)
    with somebody_at_work(fleet):
        runs = [herd(fleet, "lock", "--upgrade", name) for name in NAMES]
        # All three have begun, and are told to wait, before the first goes on.
        for run in runs:
            assert run.stderr
            assert run.stderr.readline() == f"another `herd lock` is running in {fleet}: waiting for it\n"
    for run in runs:
        out, err = run.communicate()
        assert run.returncode == 0, err
        assert ": written, 3 engines" in out
    newest = git(source, "rev-parse", "main").strip()
    assert [engine.commit for engine in lock.read_lock_file(fleet / "herd.lock").engines] == [newest] * 3
    assert sorted(path.name for path in fleet.iterdir()) == ["duo.yaml", "herd.lock"]


def test_who_is_killed_holds_nothing(fleet: Path) -> None:
    with somebody_at_work(fleet):
        run = herd(fleet, "lock")
        assert run.stderr
        run.stderr.readline()
        run.send_signal(signal.SIGKILL)
        run.wait()
    assert herd(fleet, "lock").wait() == 0


def test_who_waits_can_be_interrupted(fleet: Path) -> None:
    with somebody_at_work(fleet):
        run = herd(fleet, "lock")
        assert run.stderr
        run.stderr.readline()
        run.send_signal(signal.SIGINT)
        _, err = run.communicate()
    assert run.returncode not in (0, -signal.SIGINT)
    assert "Traceback" not in err


def test_nobody_waits_for_ever(tmp_path: Path) -> None:
    said: list[str] = []
    with (
        somebody_at_work(tmp_path),
        pytest.raises(LockError) as caught,
        lock_held(tmp_path / "herd.lock", said.append, 0),
    ):
        raise AssertionError
    assert f"another `herd lock` has been running in {tmp_path}" in caught.value.message
    assert caught.value.help


def test_two_folders_have_nothing_to_do_with_each_other(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    said: list[str] = []
    with lock_held(tmp_path / "a/herd.lock", said.append), lock_held(tmp_path / "b/herd.lock", said.append):
        assert said == []


def test_through_a_link_it_is_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a/herd.lock").symlink_to(tmp_path / "b/herd.lock")
    done = threading.Event()
    with (
        lock_held(tmp_path / "a/herd.lock", print),
        pytest.raises(LockError),
        lock_held(tmp_path / "b/herd.lock", print, 0),
    ):
        done.set()
    assert not done.is_set()


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with (
        pytest.raises(LockError, match="cannot be opened: No such file"),
        lock_held(tmp_path / "gone/herd.lock", print),
    ):
        raise AssertionError
