"""A real sshd on a free port of this machine, which lets in the user who runs the tests."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.gateway import free_port

SSHD = "/usr/sbin/sshd"


@contextmanager
def running_sshd(folder: Path, *settings: str) -> Iterator[dict[str, Any]]:
    """Run an sshd with these further settings. Yield `connect` of a rig that is reached through it."""
    folder.mkdir()
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    port = free_port()
    known = f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}"
    (folder / "known_hosts").write_text(known)
    lines = [
        *settings,
        f"ListenAddress 127.0.0.1:{port}",
        f"HostKey {folder}/host",
        f"AuthorizedKeysFile {folder}/user.pub",
        f"PidFile {folder}/pid",
        "StrictModes no",
        "PermitRootLogin yes",
        "PasswordAuthentication no",
    ]
    (folder / "sshd_config").write_text("\n".join([*lines, ""]))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # it wants this folder for its unprivileged part
    with (folder / "log").open("w") as log:
        server = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
        try:
            _wait(port, server, folder / "log")
            yield {
                "host": "127.0.0.1",
                "port": port,
                "user": getpass.getuser(),
                "key": str(folder / "user"),
                "known_hosts": str(folder / "known_hosts"),
            }
        finally:
            server.terminate()
            server.wait(10)


def _wait(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until and server.poll() is None:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError(f"no sshd: {log.read_text()}")
