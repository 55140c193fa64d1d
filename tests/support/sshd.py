"""A real sshd on this machine's loopback, which lets the current user log in, and records the logins."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamaherd.inventory.schema import Connect

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
MISSING = "sshd is not installed"
SETTINGS = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
MaxStartups 100
MaxSessions {sessions}
LogLevel VERBOSE
"""


@dataclass(frozen=True)
class Sshd:
    """The server, its folder, and how to log in."""

    folder: Path
    connect: Connect
    pid: int

    @property
    def declared(self) -> dict[str, Any]:
        """Return `connect` of a rig that is reached through this server."""
        return self.connect.model_dump(mode="json", exclude_defaults=True)

    @property
    def runtime(self) -> Path:
        """Return the folder that stands in for the user's runtime folder."""
        return self.folder / "run"

    @property
    def logins(self) -> int:
        """Return the number of logins by now."""
        return (self.folder / "log").read_text().count("Accepted publickey")

    @property
    def sockets(self) -> list[Path]:
        """Return the sockets of shared connections."""
        return [path for path in self.runtime.glob("*/*") if path.is_socket()]

    def masters(self) -> list[int]:
        """Return the processes that hold shared connections to this server."""
        return [pid for pid, words in _processes() if f"{self.runtime}/" in words and "[mux]" in words]

    def sessions(self) -> list[int]:
        """Return the server's processes of open connections."""
        found = [pid for pid, _ in _processes() if pid != self.pid and _parent(pid) == self.pid]
        return [*found, *(pid for pid, _ in _processes() if _parent(pid) in found)]


@contextmanager
def running_sshd(*settings: str, sessions: int = 10, programs: Path | None = None) -> Iterator[Sshd]:
    """Yield a server with further settings that accepts so many sessions in one connection. End its connections, too.

    Programs of the folder `programs` come first on the host.
    """
    assert SSHD
    with tempfile.TemporaryDirectory(prefix="sshd", dir="/tmp") as name:  # a socket's path is short
        folder = Path(name)
        (folder / "run").mkdir(0o700)
        for key in ("host_key", "id", "other"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
        shutil.copy(folder / "id.pub", folder / "authorized_keys")
        port = _free_port()
        path = f"{programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        first = [*settings, *([f"SetEnv PATH={path}"] if programs else [])]
        (folder / "settings").write_text(
            "\n".join(first) + SETTINGS.format(port=port, folder=folder, sessions=sessions)
        )
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host_key.pub').read_text()}")
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        server = subprocess.Popen([SSHD, "-D", "-f", str(folder / "settings"), "-E", str(folder / "log")])
        connect = Connect(
            host="127.0.0.1",
            port=port,
            user=getpass.getuser(),
            key=folder / "id",
            known_hosts=folder / "known_hosts",
        )
        sshd = Sshd(folder, connect, server.pid)
        try:
            _wait_for(port)
            yield sshd
        finally:
            for pid in (*sshd.masters(), *sshd.sessions()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            server.terminate()
            server.wait()


def _free_port() -> int:
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return int(each.getsockname()[1])


def _wait_for(port: int) -> None:
    for _ in range(100):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens at port {port}")


def _processes() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                yield int(entry.name), (entry / "cmdline").read_text(errors="replace")


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    return 0
