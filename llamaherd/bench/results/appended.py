"""A file of lines that only grows: each line is on the disk once it was added, and one program at a time writes it.

Killed at any moment, all whole lines are there. Nothing stays locked when its process is gone.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import Self, TypeVar

from llamaherd.diagnostics.findings import UserError
from llamaherd.text.textfile import UnreadableError, read_bytes

T = TypeVar("T")


class Appended:
    """An open file of lines. Raises UserError where the disk does not take one."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle

    @classmethod
    def begin(cls, path: Path, first: bytes) -> Self:
        """A new file with its first line: whoever sees it sees that line."""
        with said(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, part = mkstemp(".part", ".herd-", path.parent)
        lines = cls(path, handle)
        try:
            with said(path):
                os.fchmod(handle, 0o644)
                fcntl.fcntl(handle, fcntl.F_SETFL, os.O_APPEND)
                _lock(handle, path)
                lines.add(first)
                _link(part, path)
                sync_folder(path.parent)
        except BaseException:
            lines.close()
            raise
        finally:
            Path(part).unlink(missing_ok=True)
        return lines

    @classmethod
    def resume(cls, path: Path, most: int, fold: Callable[[bytes], tuple[T, int]]) -> tuple[Self, T]:
        """One that is there already, up to `most` bytes, and what `fold` makes of it; what is beyond is cut.

        `fold` also tells how many bytes its whole lines take.
        """
        with said(path):
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _lock(handle, path)
            found, length = fold(read(path, most))
            with said(path):
                os.ftruncate(handle, length)
        except BaseException:
            os.close(handle)
            raise
        return cls(path, handle), found

    def add(self, line: bytes) -> None:
        """Add a line, or nothing: what a full disk took of it is taken back."""
        with said(self.path):
            before = os.fstat(self._handle).st_size
            try:
                left = line
                while left:
                    left = left[os.write(self._handle, left) :]
                os.fsync(self._handle)
            except OSError:
                os.ftruncate(self._handle, before)
                raise

    def close(self) -> None:
        """Let others write it; what it holds stays."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def read(path: Path, most: int) -> bytes:
    """All of a file, up to `most` bytes. Raises UserError."""
    try:
        return read_bytes(path, most)
    except UnreadableError as error:
        raise UserError(f"cannot read {path}: {error}", error.help) from None


def sync_folder(folder: Path) -> None:
    """Have the disk keep which files a folder has."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def said(path: Path) -> Iterator[None]:
    """Errors of the file system as a sentence."""
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UserError(f"cannot write {path}: {why}", "check the folder, its mode and its disk") from None


def _link(part: str, path: Path) -> None:
    """Give a file its name: whichever is there has its first line, and another's is left alone."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise UserError(f"{path} is there already", "another measurement began in the same second: try again") from None


def _lock(handle: int, path: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise UserError(f"{path} is being written by another run", "wait for that one, or end it") from None
