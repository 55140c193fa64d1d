"""A file that is being fetched: its bytes on the disk, the map of its blocks, and errors of the disk."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from llamaherd.onhost.fetch.job import FetchError, show_size


class StorageError(FetchError):
    """The host's disk cannot write or read bytes. Bytes that were fetched before stay."""


class DiskFullError(StorageError):
    """There is no room for more bytes; there may be later."""


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn errors of the system about a file into sentences. Raise StorageError."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error


def free_bytes(folder: Path) -> int:
    """Return the bytes that may still be written to the filesystem of a folder. Raise StorageError."""
    with storage_errors(folder):
        filesystem = os.statvfs(folder)
        return filesystem.f_bavail * filesystem.f_frsize


def storage_error(error: OSError, path: Path) -> StorageError:
    """Return the sentence for an error of the system about this path."""
    again = "then run `herd up` again: it continues from here"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            what = "quota is used up" if error.errno == errno.EDQUOT else "disk is full"
            return DiskFullError(f"the {what} at {path.parent}{_left(path.parent)}", f"make room, {again}")
        case errno.EROFS:
            return StorageError(
                f"{path.parent} is read-only", f"check `dmesg` for the reason, mount it writable, {again}"
            )
        case errno.EIO:
            return StorageError(f"the disk fails at {path}", f"check `dmesg` and `smartctl -a`, {again}")
        case errno.ESTALE | errno.ENODEV | errno.ENXIO:
            return StorageError(f"the filesystem of {path.parent} was unmounted", f"mount it again, {again}")
        case errno.EFBIG:
            return StorageError(
                f"the filesystem of {path.parent} does not take files of this size",
                "use one that does, such as ext4: FAT32 ends at 4 GiB",
            )
        case errno.EACCES | errno.EPERM:
            return StorageError(
                f"{path} may not be written to by this user",
                f"check the owner of {path.parent} and how it is mounted, {again}",
            )
        case _:
            return StorageError(f"{path} cannot be used: {error.strerror or error}", f"repair that, {again}")


def _left(folder: Path) -> str:
    try:
        return f": {show_size(free_bytes(folder))} are free"
    except StorageError:
        return ""


_HEADER = struct.Struct("=8sIIQ16s")
_MAGIC, _VERSION = b"herdpart", 1
_COUNT = struct.Struct("=I")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def boot_id() -> bytes:
    """Return the id of this boot of the machine."""
    return bytes.fromhex(_BOOT.read_text(encoding="ascii").strip().replace("-", ""))


def kept_bytes(incoming: Path, sha256: str, size: int) -> int:
    """Return how many bytes of a file exist already, as far as is known without its lock."""
    try:
        if (incoming / sha256).stat().st_size == size:
            return size
    except OSError:
        pass
    try:
        # The space on the disk: a part has its full size from the beginning, and holes in it.
        return min(size, (incoming / f"{sha256}.part").stat().st_blocks * 512)
    except OSError:
        return 0


def _read(path: Path, size: int, block: int) -> tuple[bytes, array[int]] | None:
    """Return the boot id and the counts of a map; None if it is not a map of a file of this size in such blocks."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) != _HEADER.size + -(-size // block) * _COUNT.size:
        return None
    *kind, boot = _HEADER.unpack_from(data)
    counts = array("I", data[_HEADER.size :])
    sound = all(count <= min(block, size - number * block) for number, count in enumerate(counts))
    if kind != [_MAGIC, _VERSION, block, size] or not sound:
        return None
    return boot, counts


class Part:
    """A file that arrives in `incoming`, locked against other processes.

    Blocks may be written by several threads at once, each block by one of them.
    """

    def __init__(self, incoming: Path, sha256: str, size: int, block: int, waiting: Callable[[], None]) -> None:
        """Open an existing part, or begin a new one. Call `waiting` if another process has it. Raise StorageError."""
        self.size = size
        self._block = block
        self._folder = incoming
        self._whole = incoming / sha256
        self._path = incoming / f"{sha256}.part"
        self._map_path = incoming / f"{sha256}.map"
        self._synced_path = incoming / f"{sha256}.synced"
        self._new_path = incoming / f"{sha256}.synced.new"
        self._syncing = threading.Lock()
        self._boot = boot_id()
        self._closed = False
        self._first = 0  # no block before this one lacks anything
        with storage_errors(self._path):
            self._map = _locked(self._map_path, waiting)
            self.whole = self._is_whole()
            if self.whole:
                self._forget()
                self._file = os.open(self._whole, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                self._counts = array("I")
            else:
                self._file = os.open(self._path, _FLAGS, 0o644)
                self._counts = self._trusted()
        self._snapshot = self._counts[:]

    @property
    def blocks(self) -> int:
        return len(self._counts)

    @property
    def have(self) -> int:
        """The number of bytes that have arrived."""
        return self.size if self.whole else sum(self._counts)

    def lacking(self, block: int) -> tuple[int, int]:
        """Return the range of a block that is still missing, as offsets in the file; equal if it is complete."""
        start = block * self._block
        return start + self._counts[block], min(start + self._block, self.size)

    def prefix(self) -> int:
        """Return how many bytes have arrived from the beginning on without a gap. For one thread."""
        while self._first < self.blocks:
            start, end = self.lacking(self._first)
            if start < end:
                return start
            self._first += 1
        return self.size

    def absorb(self, offset: int, data: memoryview) -> int:
        """Write the new ones of bytes from this offset on, which leave no gap in any block; return how many are new.

        Raise StorageError.
        """
        at, end, new = offset, offset + len(data), 0
        while at < end:
            block = at // self._block
            there, block_end = self.lacking(block)
            stop = min(end, block_end)
            if at > there:
                raise ValueError(f"bytes from {at} on would leave a gap behind {there}")
            if there < stop:
                self._write(block, there, data[there - offset : stop - offset])
                new += stop - there
            at = max(at, stop)
        return new

    def hold(self, offset: int, data: memoryview) -> None:
        """Write bytes from this offset on that may belong to another file: they do not count until `keep`.

        Bytes that have arrived stay as they are. Raise StorageError.
        """
        at, end = offset, offset + len(data)
        while at < end:
            there, block_end = self.lacking(at // self._block)
            stop = min(end, block_end)
            first = max(at, there)
            with storage_errors(self._path):
                _pwrite_all(self._file, data[first - offset : max(first, stop) - offset], first)
            at = stop

    def keep(self, start: int, end: int) -> int:
        """Count all bytes from `start` to before `end`, which have been held, as arrived. Return how many are new.

        Raise StorageError.
        """
        new = 0
        for block in range(start // self._block, -(-end // self._block)):
            there, block_end = self.lacking(block)
            stop = min(end, block_end)
            if there < stop:
                new += stop - there
                with storage_errors(self._path):
                    self._count(block, stop)
        return new

    def _write(self, block: int, offset: int, data: memoryview) -> None:
        with storage_errors(self._path):
            while len(data):
                written = os.pwrite(self._file, data, offset)
                offset, data = offset + written, data[written:]
                self._count(block, offset)

    def _count(self, block: int, end: int) -> None:
        """Record that a block's bytes have arrived up to this offset of the file."""
        self._counts[block] = end - block * self._block
        # A write, not a store into mapped memory: where the disk is full or gone, that would be a SIGBUS.
        os.pwrite(self._map, _COUNT.pack(self._counts[block]), _HEADER.size + block * _COUNT.size)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Read from this offset on; return how many bytes, at least one. Raise StorageError."""
        with storage_errors(self._path):
            count = os.preadv(self._file, [buffer], offset)
        if not count:
            raise StorageError(f"{self._path} was made shorter by another program", "run `herd up` again")
        return count

    def sync(self) -> None:
        """Write the bytes that have arrived to the disk, and record them. Raise StorageError."""
        with self._syncing:
            counts = self._counts[:]
            if self._closed or self.whole or counts == self._snapshot:
                return
            with storage_errors(self._path):
                os.fdatasync(self._file)
            # The bytes are safe; for their record there may be room later.
            with suppress(DiskFullError), storage_errors(self._synced_path):
                self._write_synced(counts)
                self._snapshot = counts

    def _write_synced(self, counts: array[int]) -> None:
        handle = os.open(self._new_path, _FLAGS | os.O_TRUNC, 0o644)
        try:
            _pwrite_all(handle, self._header() + counts.tobytes(), 0)
            os.fsync(handle)
        finally:
            os.close(handle)
        self._new_path.replace(self._synced_path)
        self._sync_folder()

    def discard(self) -> None:
        """Drop every byte and begin again. No other thread may be writing. Raise StorageError."""
        with self._syncing, storage_errors(self._path):
            self._counts = self._begun()
            self._snapshot = self._counts[:]
            self._first = 0

    def finish(self) -> None:
        """Give the file its name: it is on disk, and verified. Raise StorageError."""
        with self._syncing, storage_errors(self._path):
            os.fsync(self._file)
            self._path.replace(self._whole)
            self._sync_folder()
            self.whole = True
            self._forget()

    def close(self) -> None:
        """Release the file to other processes."""
        with self._syncing:
            self._closed = True
            os.close(self._file)
            os.close(self._map)

    def _is_whole(self) -> bool:
        try:
            # It got its name when its hash was right.
            return self._whole.lstat().st_size == self.size
        except FileNotFoundError:
            return False

    def _forget(self) -> None:
        for path in (self._path, self._synced_path, self._new_path, self._map_path):
            path.unlink(missing_ok=True)

    def _trusted(self) -> array[int]:
        """Return the counts to continue from, and a map that holds them and is of this boot."""
        of_size = os.fstat(self._file).st_size == self.size
        known = _read(self._map_path, self.size, self._block) if of_size else None
        if known and known[0] == self._boot:
            return known[1]
        synced = _read(self._synced_path, self.size, self._block) if of_size else None
        if synced is None:
            return self._begun()
        # The header comes last: with it, the counts are valid.
        _pwrite_all(self._map, synced[1].tobytes(), _HEADER.size)
        _pwrite_all(self._map, self._header(), 0)
        return synced[1]

    def _begun(self) -> array[int]:
        counts = array("I", bytes(-(-self.size // self._block) * _COUNT.size))
        self._synced_path.unlink(missing_ok=True)
        os.ftruncate(self._map, 0)
        _pwrite_all(self._map, counts.tobytes(), _HEADER.size)
        _pwrite_all(self._map, self._header(), 0)
        os.ftruncate(self._file, 0)
        os.ftruncate(self._file, self.size)
        return counts

    def _header(self) -> bytes:
        return _HEADER.pack(_MAGIC, _VERSION, self._block, self.size, self._boot)

    def _sync_folder(self) -> None:
        handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _locked(path: Path, waiting: Callable[[], None]) -> int:
    """Return a handle of the map that no other process has locked, and that still has this name."""
    while True:
        handle = os.open(path, _FLAGS, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
        # Its last holder may have finished, and removed it.
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)


def _pwrite_all(handle: int, data: bytes | memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(handle, data, offset)
        data, offset = data[written:], offset + written
