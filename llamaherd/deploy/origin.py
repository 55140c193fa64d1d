"""On whose behalf a run is, and from what: for the release that it leaves on a host."""

from __future__ import annotations

import getpass
import hashlib
import os
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from llamaherd import __version__
from llamaherd.pipeline.load import lock_path
from llamaherd.pipeline.release import Origin

GIT_SECONDS = 5
"""A repository on a sleeping disk is not waited for longer: the commit is good to know, and no more."""


def origin(inventory: Path) -> Origin:
    """Who runs this, here, with this inventory."""
    return Origin(
        user=_user(),
        machine=socket.gethostname(),
        commit=_commit(inventory),
        lock=_lock(inventory),
        version=__version__,
    )


def _user() -> str:
    """Whoever became root by sudo is known by his own name."""
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
    """The commit that the inventory is at, with a `+` where it holds more; empty where git knows of none."""
    folder = inventory if inventory.is_dir() else inventory.parent
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
