"""Folders and files of a host, as `Host` writes and reads them."""

from __future__ import annotations

import errno
import os
import pwd
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PIECE = 1 << 20


def ids_of(owner: str) -> tuple[int, int]:
    """Return the user and group of an owner: an account's name, or the number of a container's user."""
    if owner.isdigit():
        return int(owner), int(owner)
    try:
        account = pwd.getpwnam(owner)
    except KeyError:
        raise OSError(errno.ENOENT, f"there is no account {owner}") from None
    return account.pw_uid, account.pw_gid


def pieces(path: str) -> Iterator[bytes]:
    """Yield a file in pieces: a model is larger than memory. Raise OSError."""
    with Path(path).open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def make_folder(folder: Path) -> None:
    """Make a folder with those above it, where missing: with mode 0755, though the program's own umask is 077."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)


def sync_folder(folder: Path) -> None:
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
