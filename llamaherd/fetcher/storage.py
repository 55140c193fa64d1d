"""What a disk can refuse, in sentences."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llamaherd.fetcher.quantities import show_size
from llamaherd.fetcher.said import SaidError


class StorageError(SaidError):
    """The host's disk does not take or give bytes. What was fetched before stays."""


class DiskFullError(StorageError):
    """There is no room for more bytes; there may be later."""


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Turn what the system says of a file into sentences. Raises StorageError."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error


def free(folder: Path) -> int:
    """Bytes that may still be written to the filesystem of a folder. Raises StorageError."""
    with storage(folder):
        seen = os.statvfs(folder)
        return seen.f_bavail * seen.f_frsize


def storage_error(error: OSError, path: Path) -> StorageError:
    """The sentence for an error of the system about this path."""
    again = "then run `herd up` again: it goes on from here"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            what = "quota is used up" if error.errno == errno.EDQUOT else "disk is full"
            return DiskFullError(f"the {what} at {path.parent}{_left(path.parent)}", f"make room, {again}")
        case errno.EROFS:
            return StorageError(f"{path.parent} is read-only", f"see `dmesg` for why, mount it writable, {again}")
        case errno.EIO:
            return StorageError(f"the disk fails at {path}", f"see `dmesg` and `smartctl -a`, {again}")
        case errno.ESTALE | errno.ENODEV | errno.ENXIO:
            return StorageError(f"the filesystem of {path.parent} went away", f"mount it again, {again}")
        case errno.EFBIG:
            return StorageError(
                f"the filesystem of {path.parent} does not take files of this size",
                "use one that does, such as ext4: FAT32 ends at 4 GiB",
            )
        case errno.EACCES | errno.EPERM:
            return StorageError(
                f"{path} may not be written to by this user",
                f"see who owns {path.parent} and how it is mounted, {again}",
            )
        case _:
            return StorageError(f"{path} cannot be used: {error.strerror or error}", f"mend that, {again}")


def _left(folder: Path) -> str:
    try:
        return f": {show_size(free(folder))} are free"
    except StorageError:
        return ""
