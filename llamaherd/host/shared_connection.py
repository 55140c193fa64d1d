"""Share an SSH connection: commands in a row use one connection to a host, which OpenSSH holds for a minute.

The first client becomes the master of the connection (`ControlMaster`), and later clients reach it by a socket in a
private folder. A client whose connection was started by another key, user or client configuration has another socket.
"""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from llamaherd.host.ssh import settings
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.text.quoting import SSH_REFUSED

VARIABLE = "HERD_SSH_PERSIST"
"""The environment variable that switches sharing off: `0`."""

JOIN_SECONDS = 10
"""Seconds to wait for a shell on a shared connection. Without a response, the connection may be dead."""

_LONGEST = 86
"""Bytes of the socket's path: 104 of an address on any system, less what ssh adds while it creates the socket."""

_PROBE_SECONDS = 2


def shared_socket(connect: Connect) -> Path | None:
    """Return the path of the socket of a host's shared connection; None if its connections are not shared.

    They are not shared if the user has switched that off, has a `ControlPath` in the client's own files, which then
    counts, or has no private folder.
    """
    if connect.host == LOCAL or os.environ.get(VARIABLE) == "0":
        return None
    folder = next((each for each in _folders() if _is_private(each)), None)
    if folder is None:
        return None
    path = folder / _identity(connect)
    if SSH_REFUSED.search(str(path)) or len(os.fsencode(path)) > _LONGEST:
        return None
    return path if path.exists() or not _has_own_path(connect) else None


def share_none() -> None:
    """Switch sharing off in this process and its children: a run reboots hosts, which ends their connections."""
    os.environ[VARIABLE] = "0"


def is_open(path: Path) -> bool:
    """Return whether the master of a shared connection still runs."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_PROBE_SECONDS)
        client.connect(str(path))
        return True
    return False


def _folders() -> Iterator[Path]:
    """Yield the folders that may have the sockets. The first private one is used."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    with suppress(OSError):
        if Path(runtime).is_absolute() and Path(runtime).stat().st_uid == os.getuid():
            yield Path(runtime, "llamaherd")
    yield Path(tempfile.gettempdir(), f"llamaherd-{os.getuid()}")


def _is_private(folder: Path) -> bool:
    """Return whether a folder is this user's alone. Create the folder if it is missing."""
    try:
        with suppress(FileExistsError):
            folder.mkdir(0o700)
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077


def _identity(connect: Connect) -> str:
    """Return the name of the socket: a hash of the declared connection and of the files that decide the login."""
    files = [connect.key, connect.known_hosts]
    with suppress(RuntimeError):  # a user without a home
        files.append(Path("~/.ssh/config").expanduser())
    text = f"{connect.model_dump_json()} {[_version(each) for each in files]} {os.environ.get('SSH_AUTH_SOCK')}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _version(file: Path | None) -> tuple[int, int] | None:
    """Return size and time of a file; None if it does not exist."""
    with suppress(OSError):
        if file:
            found = file.stat()
            return found.st_size, found.st_mtime_ns
    return None


def _has_own_path(connect: Connect) -> bool:
    """Return whether the client's own files have a `ControlPath` for a host. Also return True if they are invalid."""
    try:
        return "controlpath" in settings(connect)
    except (OSError, subprocess.SubprocessError):
        return True
