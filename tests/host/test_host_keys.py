"""The key of a host that no file knows: the fix of each message, run for real against an sshd of this machine."""

from __future__ import annotations

import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from llamaherd.host.remote import RemoteError, Shell
from llamaherd.host.ssh import UnknownHostKeyError, why_not_run
from llamaherd.inventory.schema import LOCAL, Connect
from tests.support.stores import needs_root

HERD = Path(sys.executable).parent / "herd"
UNKNOWN = "Host key verification failed.\n"
ATTIC = Connect(host="attic")
REAL_SSH = shutil.which("ssh") or "ssh"


@dataclass(frozen=True)
class Door:
    """An sshd on loopback, an alias of it for the client, and the file of known hosts."""

    folder: Path
    port: int

    @property
    def known(self) -> Path:
        return self.folder / "known"

    @property
    def environment(self) -> dict[str, str]:
        """With an `ssh` that reads the test's own configuration: the client ignores HOME."""
        return os.environ | {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HF_ENDPOINT": "http://127.0.0.1:9"}

    def herd(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [HERD, *words],
            cwd=self.folder / "empty",
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


def configure(folder: Path, text: str) -> None:
    """Give the client this configuration, by an `ssh` before the real one."""
    program = folder / "bin" / "ssh"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {REAL_SSH} -F {folder / "config"} "$@"\n')
    program.chmod(0o755)
    (folder / "config").write_text(text)


def make_key(file: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "empty").mkdir()
    make_key(tmp_path / "host")
    make_key(tmp_path / "id")
    shutil.copy(tmp_path / "id.pub", tmp_path / "authorized")
    configure(
        tmp_path,
        f"Host attic\n  HostName 127.0.0.1\n  Port {port}\n  User root\n  IdentityFile {tmp_path / 'id'}\n"
        f"  UserKnownHostsFile {tmp_path / 'known'}\n  GlobalKnownHostsFile /dev/null\n",
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    settings = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": tmp_path / "host",
        "PidFile": "none",
        "AuthorizedKeysFile": tmp_path / "authorized",
        "StrictModes": "no",
        "UsePAM": "no",
        "PermitRootLogin": "yes",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    running = subprocess.Popen(
        [shutil.which("sshd") or "/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", *options], stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 20
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert time.monotonic() < until, "sshd does not listen"
            time.sleep(0.05)
        made = Door(tmp_path, port)
        monkeypatch.setenv("PATH", made.environment["PATH"])
        yield made
    finally:
        running.terminate()
        running.wait()


def on_terminal(door: Door, typed: str, *words: str) -> tuple[int, str]:
    """Run `herd` on a terminal of its own, and type this at the client's question. Return its exit code and output."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(door.folder / "empty")
        os.execve(HERD, [str(HERD), *words], door.environment)
    said, answered, until = "", False, time.monotonic() + 180
    while time.monotonic() < until:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the end of a terminal whose program has ended
            break
        said += piece.decode(errors="replace")
        if not answered and "(yes/no" in said:
            answered = True
            os.write(terminal, f"{typed}\n".encode())
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), said.replace("\r\n", "\n")


@needs_root
def test_on_a_terminal_the_fingerprint_is_shown_and_confirmed_once(door: Door) -> None:
    code, said = on_terminal(door, "yes", "init", "--from", "attic")
    assert code == 0, said
    shown = subprocess.run(["ssh-keygen", "-lf", door.folder / "host.pub"], capture_output=True, text=True, check=True)
    assert shown.stdout.split()[1] in said
    assert said.count("(yes/no") == 1
    assert f"[127.0.0.1]:{door.port} ssh-ed25519" in door.known.read_text()
    assert "connect: {host: attic}\n" in (door.folder / "empty" / "attic.yaml").read_text()
    again = door.herd("init", "--from", "attic", "--name", "again")  # the free disk in attic.yaml changes
    assert again.returncode == 0, again.stderr


@needs_root
def test_on_a_no_nothing_is_written(door: Door) -> None:
    code, said = on_terminal(door, "no", "init", "--from", "attic")
    assert code == 1, said
    assert "error: the host key of attic is unknown" in said
    assert not door.known.exists()
    assert list((door.folder / "empty").iterdir()) == []


@needs_root
def test_without_a_terminal_the_help_has_a_command_that_works(door: Door) -> None:
    ended = door.herd("init", "--from", "attic")
    assert ended.returncode == 1
    assert "error: the host key of attic is unknown" in ended.stderr
    assert "confirm it once with `ssh attic`" in ended.stderr
    (command,) = re.findall(r"without a terminal run `(ssh-keyscan [^`]+)`", ended.stderr)
    assert command == f"ssh-keyscan -p {door.port} 127.0.0.1 >>{door.known}"
    subprocess.run(["sh", "-c", command], check=True, capture_output=True)
    assert door.herd("init", "--from", "attic").returncode == 0


@pytest.mark.usefixtures("starts_processes")
def test_a_scan_is_not_proposed_where_it_cannot_reach_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for line in ("ProxyJump door", "ProxyCommand nc door 22", "HostKeyAlias other"):
        configure(tmp_path, f"Host attic\n  HostName 10.9.9.9\n  {line}\n")
        error = why_not_run(ATTIC, 255, UNKNOWN)
        assert isinstance(error, UnknownHostKeyError)
        assert error.help == "compare it at the host's console, and confirm it once with `ssh attic`"


@pytest.mark.usefixtures("starts_processes")
def test_a_changed_key_is_removed_by_the_name_that_the_client_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    configure(tmp_path, f"Host attic\n  HostName 10.9.9.9\n  Port 2222\n  UserKnownHostsFile {tmp_path / 'known'}\n")
    error = why_not_run(ATTIC, 255, "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!\n" + UNKNOWN)
    assert error
    assert not isinstance(error, UnknownHostKeyError)
    assert f"`ssh-keygen -f {tmp_path / 'known'} -R '[10.9.9.9]:2222'`" in error.help


@pytest.mark.usefixtures("starts_processes")
def test_declared_known_hosts_are_in_the_command(tmp_path: Path) -> None:
    known = tmp_path / "known hosts"
    error = why_not_run(ATTIC.model_copy(update={"known_hosts": known}), 255, UNKNOWN)
    assert error
    assert f"`ssh -o UserKnownHostsFile='{known}' attic`" in error.help


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_a_public_key_is_named_as_the_mistake(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", file], check=True)
    public = (tmp_path / "id.pub").rename(tmp_path / "mine")  # the schema refuses a file that ends in .pub
    with pytest.raises(RemoteError) as caught:
        Shell(Connect(host="127.0.0.1", port=9, key=public))
    assert caught.value.message == f"{public} is a public key, and `connect: key:` is the private one"
    assert caught.value.help == "name the file of the private key"


def test_a_private_key_is_no_public_one(tmp_path: Path) -> None:
    make_key(tmp_path / "id")
    with (
        pytest.raises(RemoteError, match="connection refused"),
        Shell(Connect(host="127.0.0.1", port=9, key=tmp_path / "id")),
    ):
        pass


def test_this_machine_has_no_host_key() -> None:
    assert why_not_run(Connect(host=LOCAL), 255, UNKNOWN) is None
