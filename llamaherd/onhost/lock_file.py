"""A lock of the host that is open, as a file that flock(1) and other versions of this program lock as well."""

from __future__ import annotations

import fcntl
import os
import time
from typing import TextIO

SHELLS_DESCRIPTOR = 9
"""The number of the open file, if it is free: `herd unlock` of the last version finds the holder by it."""
_MOST_CHARACTERS = 1 << 10


class HostLockFile:
    """An open lock. It is free again once the file is closed, also by the end of this process."""

    def __init__(self, path: str, file: TextIO) -> None:
        self.path, self._file, self._held = path, file, False

    def take(self) -> bool:
        """Hold the lock if no other program does. Return whether this program holds it."""
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._held = True
        return True

    def holder(self) -> str:
        """Return what the program that holds the lock has written there; empty where it has written nothing."""
        self._file.seek(0)
        return " ".join(self._file.read(_MOST_CHARACTERS).split())

    def sign(self, who: str) -> None:
        """Write who holds the lock, since when, and in which process."""
        self._write(f"{who} since {time.strftime('%Y-%m-%d %H:%M:%S')}, process {os.getpid()}\n")

    def clear(self) -> None:
        """Remove what was written, if the lock is held."""
        if self._held:
            self._write("")

    def _write(self, text: str) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._file.write(text)
        self._file.flush()
