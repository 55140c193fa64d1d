"""What a store can lend to a neighbour: the files that its manifests vouch for, by content."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from pathlib import Path
from typing import BinaryIO

from llamaherd.fetcher import manifest
from llamaherd.fetcher.manifest import Vouched


class Shelf:
    """The files of a store by sha256. No name that a client sends becomes a path."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._read: dict[Path, tuple[int, int, int]] = {}
        self._files: dict[str, list[Vouched]] = {}

    def names(self) -> list[str]:
        """The sha256 of every file that can be had now."""
        return [sha256 for sha256 in sorted(self._current()) if self._has(sha256)]

    def _has(self, sha256: str) -> bool:
        stream = self.find(sha256)
        if stream:
            stream.close()
        return stream is not None

    def find(self, sha256: str) -> BinaryIO | None:
        """A file, open, if it is still the one that was found whole, and nobody else can change it."""
        for vouched in self._current().get(sha256, []):
            with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
                # Without O_NONBLOCK, a named pipe that took the file's place would be waited for.
                handle = os.open(vouched.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                stream = stack.enter_context(os.fdopen(handle, "rb"))
                seen = os.fstat(handle)
                if stat.S_ISREG(seen.st_mode) and vouched.unchanged(seen) and manifest.is_ours(seen):
                    stack.pop_all()
                    return stream
        return None

    def _current(self) -> dict[str, list[Vouched]]:
        """What the manifests say, read anew once any of them came, changed or went."""
        states = {path: _state(path) for path in manifest.manifests(self._store)}
        with self._lock:
            if states != self._read:
                self._files = {}
                for path in states:
                    for each in manifest.read(path):
                        self._files.setdefault(each.sha256, []).append(each)
                self._read = states
            return self._files


def _state(path: Path) -> tuple[int, int, int]:
    """What differs once a file was written anew; zeros if it is gone."""
    try:
        seen = path.stat()
    except OSError:
        return 0, 0, 0
    return seen.st_ino, seen.st_size, seen.st_mtime_ns
