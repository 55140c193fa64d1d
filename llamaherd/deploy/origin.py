"""The origin of a run: its user, machine, commit and lock, for the release that it records on a host."""

from __future__ import annotations

import getpass
import hashlib
import os
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from llamaherd import __version__
from llamaherd.pipeline.history import Origin
from llamaherd.pipeline.load import inventory_folder, lock_path

GIT_SECONDS = 5
"""The longest that git may take, as on a sleeping disk: a release can do without the commit."""


def origin(inventory: Path) -> Origin:
    """Return the origin of a run by this process with this inventory."""
    return Origin(
        user=_user(),
        machine=socket.gethostname(),
        commit=_commit(inventory),
        lock=_lock(inventory),
        version=__version__,
    )


def _user() -> str:
    """Return the login name, also under sudo."""
    if given := os.environ.get("SUDO_USER"):
        return given
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


def _lock(inventory: Path) -> str:
    with suppress(OSError):
        return hashlib.sha256(lock_path(inventory).read_bytes()).hexdigest()[:12]
    return ""


def _commit(inventory: Path) -> str:
    """Return the commit of the inventory, with a `+` if it has further changes; empty without a repository."""
    folder = inventory_folder(inventory)
    found = _git(folder, "rev-parse", "--short=12", "HEAD")
    return f"{found}+" if found and _git(folder, "status", "--porcelain", "--", ".") else found


def _git(folder: Path, *arguments: str) -> str:
    try:
        ended = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout.strip() if ended.returncode == 0 else ""
