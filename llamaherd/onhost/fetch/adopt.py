"""Adopt model files that are on this host already: verify each by its sha256, and link or copy it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import fnmatch
import hashlib
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from llamaherd.onhost.fetch import candidates as fetch_candidates
from llamaherd.onhost.fetch import manifest
from llamaherd.onhost.fetch.candidates import Candidate
from llamaherd.onhost.fetch.job import File, Job
from llamaherd.onhost.fetch.report import Progress, show_part

_CHUNK = 4 * 1024 * 1024
_UNFINISHED = ".adopting"
_FICLONE = 0x40049409  # linux/fs.h; Python has no name for it

OnRead = Callable[[int], None]
"""Told how many bytes of a file were looked at so far."""


class _OtherFileError(Exception):
    """The candidate is another file, or one that changes."""


def adopt(job: Job, run: Path, root: Path = Path("/")) -> None:
    """Bring what the host has into `incoming`; what it has not, or what cannot be used, is left to the fetch."""
    progress = Progress(run)
    sizes = {file.size for file in job.files if not _is_whole(file, job.incoming)}
    if not sizes:
        return
    for folder in job.folders:
        if not _has_entries(folder):
            progress.warn(f"{folder}, which is in `store: from:`, is empty or not there: is it mounted?")
    progress.show("looking for what is on this host already")
    found = fetch_candidates.find_candidates(
        job.store, [*fetch_candidates.find_caches(root), *job.folders], sizes, but=job.incoming
    )
    try:
        with _opened(job.incoming, os.O_DIRECTORY) as incoming:
            _remove_all(incoming, f"*{_UNFINISHED}")
            for file in job.files:
                if not _is_whole(file, job.incoming):
                    _adopt_one(
                        file, fetch_candidates.likely_candidates(found, file.sha256, file.size), incoming, progress
                    )
    except OSError as error:
        progress.note(f"what is on this host already cannot be used: {job.incoming}: {error.strerror}")


def _has_entries(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


def _is_whole(file: File, incoming: Path) -> bool:
    whole = incoming / file.sha256
    return whole.is_file() and whole.stat().st_size == file.size


def _adopt_one(file: File, candidates: list[Candidate], incoming: int, progress: Progress) -> None:
    """Take the first candidate that is the file."""
    for candidate in candidates:
        try:
            how = _take(candidate, file, incoming, _looking(progress, candidate.path, file.size))
        except _OtherFileError:
            continue
        except OSError as error:
            progress.note(f"{file.name}: {candidate.path} cannot be used: {error.strerror}")
            continue
        # What an earlier fetch had of it is of no use any more.
        _remove_all(incoming, f"{file.sha256}.*")
        progress.note(f"{file.name}: {how} from {candidate.path}; nothing of it is fetched")
        return


def _take(candidate: Candidate, file: File, incoming: int, seen: OnRead) -> str:
    """Bring a candidate in, and say how. Raises _NotItError and OSError."""
    # Opened once: what is proved is what is taken, whatever its path may lead to by then.
    with _opened(Path(os.path.realpath(candidate.path)), os.O_NOFOLLOW) as source:
        state = os.fstat(source)
        if not stat.S_ISREG(state.st_mode) or state.st_size != file.size:
            raise _OtherFileError
        # What is vouched for is proved, and where nobody else can write to it, a link is as good as a clone.
        if candidate.vouched and candidate.vouched.unchanged(state) and _linked(source, file, incoming, None):
            return "linked"
        if _cloned(source, file, incoming, seen):
            return "cloned"
        if _linked(source, file, incoming, seen):
            return "linked"
        _copy(source, file, incoming, seen)
        return "copied"


def _cloned(source: int, file: File, incoming: int, seen: OnRead) -> bool:
    """Bring in a copy that shares its blocks; False where the filesystem has no such copies."""
    with _unfinished(file, incoming) as copy:
        try:
            fcntl.ioctl(copy, _FICLONE, source)
        except OSError:
            return False
        # Nobody else can write to the clone: unlike a link, it cannot change once it is proved.
        _prove(file, _digest(copy, file.size, seen))
        _finish(copy, file, incoming)
        return True


def _linked(source: int, file: File, incoming: int, seen: OnRead | None) -> bool:
    """Bring in another name of the same file; False where that cannot be. What is proved already needs no `seen`."""
    if not _is_linkable(source, incoming):
        return False
    if seen:
        before = os.fstat(source)
        _prove(file, _digest(source, file.size, seen))
        after = os.fstat(source)
        if (before.st_mtime_ns, before.st_ctime_ns, file.size) != (after.st_mtime_ns, after.st_ctime_ns, after.st_size):
            raise _OtherFileError
        if _is_open_for_writing(source):
            return False
    try:
        _link(source, file, incoming)
    except OSError:  # some filesystems have no hard links
        return False
    return True


def _copy(source: int, file: File, incoming: int, seen: OnRead) -> None:
    """Bring in a copy, hashed while it is made, in one reading. Raises OSError."""
    room = os.fstatvfs(incoming)
    if room.f_bavail * room.f_frsize < file.size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with _unfinished(file, incoming) as copy:
        _prove(file, _digest(source, file.size, seen, into=copy))
        _finish(copy, file, incoming)


def _is_linkable(source: int, incoming: int) -> bool:
    """Whether a file can have a name in `incoming` too, every server can read it, and nobody but us write to it.

    A link shares its bytes, owner and mode with the file: what its owner changes later, the store would vouch for.
    """
    state, folder = os.fstat(source), os.fstat(incoming)
    return (
        manifest.is_writable_by_us_only(state)
        and state.st_dev == folder.st_dev
        # The same filesystem seen through two mounts takes no links from one to the other.
        and _mount(source) == _mount(incoming)
        and bool(state.st_mode & stat.S_IROTH)
        and not _is_open_for_writing(source)
    )


def _mount(handle: int) -> str:
    lines = Path(f"/proc/self/fdinfo/{handle}").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("mnt_id:"))


def _is_open_for_writing(source: int) -> bool:
    """Whether any process has the file open to write to it: fcntl(2) grants no read lease then."""
    # Who opens the file in just this moment makes the kernel send a signal: one that does nothing.
    fcntl.fcntl(source, fcntl.F_SETSIG, signal.SIGURG)
    try:
        fcntl.fcntl(source, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        # Without leases (network filesystems), or the right to them, nothing can be told.
        return error.errno == errno.EAGAIN
    fcntl.fcntl(source, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _link(source: int, file: File, incoming: int) -> None:
    os.fsync(source)
    # By descriptor, so that it is the file that was proved. Only with a dst_dir_fd does Python call linkat(2), which
    # follows this link of /proc.
    os.link(f"/proc/self/fd/{source}", file.sha256, dst_dir_fd=incoming, follow_symlinks=True)
    os.fsync(incoming)


def _digest(source: int, size: int, seen: OnRead, into: int | None = None) -> str:
    """The sha256 of a file's first `size` bytes, which are written to `into` as they pass."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_CHUNK))
    done = 0
    while done < size and (count := os.preadv(source, [buffer[: size - done]], done)):
        part = buffer[:count]
        digest.update(part)
        while into is not None and part:
            part = part[os.write(into, part) :]
        done += count
        seen(done)
    return digest.hexdigest()


def _prove(file: File, sha256: str) -> None:
    if sha256 != file.sha256:
        raise _OtherFileError


def _finish(copy: int, file: File, incoming: int) -> None:
    """Give a proved copy its name, to the owner of the folder."""
    owner = os.fstat(incoming)
    os.ftruncate(copy, file.size)  # of a file that grew, the beginning was proved
    os.fchown(copy, owner.st_uid, owner.st_gid)
    os.fchmod(copy, 0o644)
    os.fsync(copy)
    os.rename(f"{file.sha256}{_UNFINISHED}", file.sha256, src_dir_fd=incoming, dst_dir_fd=incoming)
    os.fsync(incoming)


@contextlib.contextmanager
def _unfinished(file: File, incoming: int) -> Iterator[int]:
    """A new file to copy to; it is gone afterwards unless it was renamed."""
    name = f"{file.sha256}{_UNFINISHED}"
    # The folder's owner is trusted less than root: no link that it put there is followed.
    copy = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=incoming)
    try:
        yield copy
    finally:
        os.close(copy)
        _remove(incoming, name)


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    # Without O_NONBLOCK, a named pipe that took the file's place would be waited for.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | flags)
    try:
        yield handle
    finally:
        os.close(handle)


def _remove_all(folder: int, pattern: str) -> None:
    for name in fnmatch.filter(os.listdir(folder), pattern):
        _remove(folder, name)


def _remove(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _looking(progress: Progress, path: Path, size: int) -> OnRead:
    """Shows what is looked at, and how far, every second."""
    shown = time.monotonic()

    def seen(done: int) -> None:
        nonlocal shown
        if time.monotonic() - shown >= 1:
            shown = time.monotonic()
            progress.show(f"looking at {path}: {show_part(done, size)}")

    return seen
