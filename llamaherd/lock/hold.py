"""One `herd lock` at a time in a folder: from reading the lock to writing it nobody else writes one."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from llamaherd.diagnostics.findings import Place
from llamaherd.lock.file import LockError

PATIENCE = 600.0
"""Seconds; to lock a large fleet over a slow line takes minutes."""
_LOOK = 0.1  # seconds between two tries


@contextmanager
def lock_held(path: Path, say: Callable[[str], None], patience: float = PATIENCE) -> Iterator[None]:
    """Keep other runs out of the folder of a lock; waits for one that is there, and says so. Raises LockError (LH030).

    The folder itself is locked, which leaves no file behind and can be done where nothing can be written.
    """
    folder = path.resolve().parent
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise LockError(
            Place(path), f"{folder} cannot be opened: {error.strerror}", "check the folder and its mode"
        ) from None
    try:
        _wait(handle, folder, path, say, patience)
        yield
    finally:
        # Closing it lets others in, as does the end of this process, however it comes.
        os.close(handle)


def _wait(handle: int, folder: Path, path: Path, say: Callable[[str], None], patience: float) -> None:
    told, until = False, time.monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                # Network filesystems lock files that are open for writing, or nothing at all.
                say(f"{folder} is where no lock can be held: let no other `herd lock` run there meanwhile")
                return
        else:
            return
        if time.monotonic() > until:
            raise LockError(
                Place(path),
                f"another `herd lock` has been at work in {folder} for {patience:.0f} s",
                f"see what it waits for, or end it: `fuser -v {folder}` names it",
            )
        if not told:
            say(f"another `herd lock` is at work in {folder}: waiting for it")
            told = True
        time.sleep(_LOOK)
