"""Locks on a host, by the script that takes them, in a folder of the test's own."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from pathlib import Path

import pytest

from llamaherd.layout import LOCKS
from llamaherd.render import render

SCRIPTS = sorted((Path(__file__).resolve().parents[2] / "templates").rglob("*.sh*"))


def script(folder: Path, then: str, *, seconds: int = 60, what: str = "this test") -> str:
    """What takes the lock `host` and does something with it."""
    text = render("host/hold.sh.j2").replace(str(LOCKS), str(folder))
    return f"{text}\nhold 8 host {seconds} '{what}' || exit 1\n{then}\n"


def run(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-s"], input=text, capture_output=True, text=True, check=False, timeout=300)


def held(folder: Path, what: str) -> subprocess.Popen[str]:
    """A run that holds the lock until its input ends."""
    command = ["sh", "-c", script(folder, "echo held; read -r _", what=what)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_is_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "locks"
    assert run(f"umask 000\n{script(folder, 'echo done')}").stdout == "done\n"
    assert [oct(path.stat().st_mode & 0o777) for path in (folder, folder / "host")] == ["0o700", "0o600"]


def made_by_others(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def a_link(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / "elsewhere")


def anothers(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)


def a_file(folder: Path) -> None:
    folder.write_text("")


@pytest.mark.parametrize("made", [made_by_others, a_link, anothers, a_file])
def test_a_folder_that_is_not_ours_alone_is_refused(tmp_path: Path, made: object) -> None:
    if os.getuid() != 0 and made is anothers:
        pytest.skip("only root gives folders away")
    folder = tmp_path / "locks"
    assert callable(made)
    made(folder)
    ended = run(script(folder, "echo done"))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"{folder} is no folder of root's alone" in ended.stderr
    assert not (folder / "host").exists()


def test_who_waits_is_told_for_whom(tmp_path: Path) -> None:
    other = held(tmp_path / "locks", "starting llama-chat")
    assert other.stdin
    waiting = subprocess.Popen(["sh", "-c", script(tmp_path / "locks", "echo done")], stdout=subprocess.PIPE, text=True)
    assert waiting.stdout
    line = waiting.stdout.readline()
    assert re.fullmatch(
        rf"waiting for another run, process {other.pid} since [\d:]+: starting llama-chat, for up to 60 s\n", line
    )
    other.communicate()
    assert waiting.communicate()[0] == "done\n"


def test_waiting_ends_with_a_way_out(tmp_path: Path) -> None:
    other = held(tmp_path / "locks", "starting llama-chat")
    ended = run(script(tmp_path / "locks", "echo done", seconds=1))
    assert (ended.returncode, "done" in ended.stdout) == (1, False)
    assert f"process {other.pid}" in ended.stderr
    assert "wait or end it, and run again" in ended.stderr
    other.communicate()


def test_what_a_killed_run_held_is_free(tmp_path: Path) -> None:
    other = held(tmp_path / "locks", "starting llama-chat")
    other.kill()
    other.communicate()
    assert run(script(tmp_path / "locks", "echo done")).stdout == "done\n"


def test_one_at_a_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    text = script(tmp_path / "locks", f"echo in >>{log}; sleep 0.02; echo out >>{log}")
    runs = [threading.Thread(target=run, args=(text,)) for _ in range(8)]
    for each in runs:
        each.start()
    for each in runs:
        each.join()
    assert log.read_text().split() == ["in", "out"] * 8


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_opens_a_lock_elsewhere(path: Path) -> None:
    if path.name in ("hold.sh.j2", "receive.sh.j2"):
        return  # the second runs as whoever logs in: root is not led by what lies there
    text = path.read_text()
    # A descriptor that is copied or closed opens no file.
    assert not re.search(r"exec \d+<?>(?!&)|\d>>", text), "locks are opened by hold.sh.j2"
    assert "/run/lock" not in text
    assert "/var/lock" not in text
