"""Commands in a row share a connection, tried with a real sshd; whatever becomes of it, the next command runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llamaherd.host import remote
from llamaherd.host.remote import Patience, RemoteError, Shell
from llamaherd.host.ssh import VARIABLE, is_open, shared_socket
from llamaherd.inventory.schema import LOCAL, Connect
from tests.support.sshd import MISSING, SSHD, Sshd, running_sshd

pytestmark = pytest.mark.skipif(SSHD is None, reason=MISSING)

COMMAND = """
import sys
from llamaherd.host.remote import Patience, Shell
from llamaherd.inventory.schema import Connect

with Shell(Connect.model_validate_json(sys.argv[1]), root=False) as shell:
    sys.exit(shell.run(sys.argv[2], lambda _, line: print(line, end="", flush=True), Patience.within(60)))
"""


@pytest.fixture(autouse=True)
def sharing(no_shared_connections: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Share connections, as users do."""
    del no_shared_connections
    monkeypatch.delenv(VARIABLE)


@pytest.fixture
def sshd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """A server, and a runtime folder of its own."""
    with running_sshd() as running:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(running.runtime))
        yield running


def run(connect: Connect, script: str = "echo hello", *, fresh: bool = False) -> tuple[int, list[str]]:
    """Return the exit code and the output of a script."""
    lines: list[str] = []
    with Shell(connect, root=False, fresh=fresh) as shell:
        code = shell.run(script, lambda _, line: lines.append(line), Patience.within(30))
    return code, lines


def start(sshd: Sshd, script: str) -> subprocess.Popen[str]:
    """Start a command whose output is a pipe."""
    words = [sys.executable, "-c", COMMAND, sshd.connect.model_dump_json(), script]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)


def test_commands_in_a_row_log_in_once(sshd: Sshd) -> None:
    for _ in range(3):
        assert run(sshd.connect) == (0, ["hello\n"])
    assert run(sshd.connect, "exit 3") == (3, [])
    assert sshd.logins == 1
    (path,) = sshd.sockets
    assert path == shared_socket(sshd.connect)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o077 == 0


def test_a_fresh_login_and_a_user_who_switched_it_off_share_nothing(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(sshd.connect)
    run(sshd.connect, fresh=True)
    assert sshd.logins == 2
    monkeypatch.setenv(VARIABLE, "0")
    run(sshd.connect)
    run(sshd.connect)
    assert sshd.logins == 4


def test_a_command_with_a_pipe_ends_while_the_connection_stays(sshd: Sshd) -> None:
    """Also one that fails: a master that held the pipes would keep the reader waiting for a minute."""
    for script, code in (("echo hello; echo oh >&2", 0), ("exit 4", 4)):
        process = start(sshd, script)
        process.communicate(timeout=30)
        assert process.returncode == code
    assert is_open(sshd.sockets[0])
    assert sshd.logins == 1


def test_ctrl_c_of_a_command_ends_no_other(sshd: Sshd) -> None:
    first = start(sshd, "echo started; sleep 60")
    assert first.stdout
    assert first.stdout.readline() == "started\n"
    with Shell(sshd.connect, root=False) as other:
        os.killpg(first.pid, signal.SIGINT)
        first.communicate(timeout=30)
        assert first.returncode
        assert other.run("echo hello", lambda *_: None, Patience.within(30)) == 0
    assert run(sshd.connect) == (0, ["hello\n"])
    assert sshd.logins == 1


def test_a_killed_master_leaves_a_socket_that_does_no_harm(sshd: Sshd) -> None:
    run(sshd.connect)
    for pid in sshd.masters():
        os.kill(pid, signal.SIGKILL)
    assert sshd.sockets
    assert run(sshd.connect) == (0, ["hello\n"])
    assert sshd.logins == 2


def test_a_host_that_is_gone_delays_the_next_command_for_seconds(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is there and nothing comes through, as with a pulled cable."""
    run(sshd.connect)
    stopped = sshd.sessions()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(remote, "JOIN_SECONDS", 1)
    began = time.monotonic()
    assert run(sshd.connect) == (0, ["hello\n"])
    assert time.monotonic() - began < 15
    assert run(sshd.connect) == (0, ["hello\n"])
    assert sshd.logins == 2  # the second one is shared again
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)


def test_a_connection_that_ends_during_a_script_is_reported(sshd: Sshd) -> None:
    """The client of a shared connection prints nothing then, and ends with the same code as a script may."""
    run(sshd.connect)
    with Shell(sshd.connect, root=False) as shell:
        lines = shell.lines("echo started; sleep 60", Patience.within(30))
        assert next(lines) == ("stdout", "started\n")
        for pid in sshd.sessions():
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(RemoteError, match="was lost while a command ran"):
            next(lines)
    assert run(sshd.connect, "exit 255") == (255, [])


def test_another_key_is_tried_though_a_connection_is_open(sshd: Sshd) -> None:
    run(sshd.connect)
    with pytest.raises(RemoteError, match="does not accept"):
        run(sshd.connect.model_copy(update={"key": sshd.folder / "other"}))
    (sshd.folder / "id").unlink()
    (sshd.folder / "id").write_text((sshd.folder / "other").read_text())
    (sshd.folder / "id").chmod(0o600)
    with pytest.raises(RemoteError, match="does not accept"):
        run(sshd.connect)


def test_many_commands_at_once(sshd: Sshd) -> None:
    """On a host without a connection, and then on one that has more commands than sessions (`MaxSessions`)."""
    for _ in range(2):
        with ThreadPoolExecutor(12) as pool:
            ended = list(pool.map(lambda _: run(sshd.connect, "sleep 1; echo hello"), range(12)))
        assert ended == [(0, ["hello\n"])] * 12


def test_a_server_that_refuses_a_second_session(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_sshd(sessions=1) as sshd:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(sshd.runtime))
        with Shell(sshd.connect, root=False):
            assert run(sshd.connect) == (0, ["hello\n"])


def test_a_control_path_of_the_user_counts(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may lead to a connection that only the user can open, by a password or a token."""
    config = sshd.folder / "config"
    config.write_text(f"Host *\n  ControlMaster auto\n  ControlPath {sshd.folder}/own\n  ControlPersist 60\n")
    real, program = os.environ["PATH"], sshd.folder / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPATH={real}\nexec ssh -F {config} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{real}")
    assert shared_socket(sshd.connect) is None
    try:
        for _ in range(2):
            assert run(sshd.connect) == (0, ["hello\n"])
        assert sshd.logins == 1
        assert (sshd.folder / "own").is_socket()
    finally:
        subprocess.run([program, "-O", "exit", "-p", str(sshd.connect.port), "127.0.0.1"], capture_output=True)


@pytest.mark.usefixtures("starts_processes")
def test_a_folder_of_others_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    duo = Connect(host="duo")
    with tempfile.TemporaryDirectory(prefix="herd", dir="/tmp") as name:
        place, folder = Path(name), Path(name, "llamaherd")
        monkeypatch.setattr("tempfile.gettempdir", lambda: f"{name}/none")
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        for mode in (0o755, 0o770, 0o711):
            folder.mkdir()
            folder.chmod(mode)
            assert shared_socket(duo) is None, oct(mode)
            folder.rmdir()
        (place / "private").mkdir(0o700)
        folder.symlink_to(place / "private")
        assert shared_socket(duo) is None
        folder.unlink()
        assert shared_socket(duo)
        assert shared_socket(Connect(host=LOCAL)) is None
        (place / ("long" * 20)).mkdir()
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(place / ("long" * 20)))
        assert shared_socket(duo) is None


def test_the_reason_of_a_jump_host_is_reported(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client discards the messages of a proxy while it shares its connection."""
    proxy = "sh -c 'echo door: no entry for you >&2; exit 1'"
    real = shutil.which("ssh")
    assert real
    program = sshd.folder / "bin/ssh"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {real} -o ProxyCommand="{proxy}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(RemoteError, match=r"the jump host does not connect to .*: door: no entry for you"):
        run(sshd.connect)
    assert sshd.sockets == []
