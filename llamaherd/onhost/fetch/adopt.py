"""Adopt model files that are on this host already: other programs' caches, and a bounded walk through folders."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import fnmatch
import hashlib
import os
import re
import signal
import stat
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from llamaherd.onhost.fetch import manifest
from llamaherd.onhost.fetch.job import File, Job, Progress, show_part
from llamaherd.onhost.fetch.manifest import Vouched

_IN_A_HOME = (
    # Files are named by their etag, which is the sha256 of those in LFS: https://huggingface.co/docs/hub/local-cache
    # llama.cpp also stores the files of `-hf` here, since https://github.com/ggml-org/llama.cpp/pull/20775,
    ".cache/huggingface/hub/models--*/blobs",
    # Without symlinks, the files themselves are in the snapshots.
    ".cache/huggingface/hub/models--*/snapshots",
    # llama.cpp before that, here: https://github.com/ggml-org/llama.cpp/pull/7826
    ".cache/llama.cpp",
    # LM Studio today, and in old versions: https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/553
    ".lmstudio/models",
    ".cache/lm-studio/models",
    # Files are sha256-<hex>: https://github.com/ollama/ollama/blob/main/docs/faq.md; a colon in place of the dash
    # until https://github.com/ollama/ollama/pull/3126
    ".ollama/models/blobs",
)
_OF_SERVICES = (
    # The folder of ollama's own installer: https://github.com/ollama/ollama/blob/main/scripts/install.sh
    "usr/share/ollama/.ollama/models/blobs",
    # Packages of distributions: NixOS, and Arch of old and today: https://github.com/ollama/ollama/issues/4455, 6668
    "var/lib/ollama/models/blobs",
    "var/lib/ollama/.ollama/models/blobs",
    "var/lib/ollama/blobs",
)
_DEPTH = 8
_ENTRIES = 100_000
_NAMED = re.compile(r"(?:sha256[-:])?([0-9a-f]{64})")


class Candidate(NamedTuple):
    """A file of the right size, which may be one of the job's.

    `claimed` is the sha256 by its name or by the store's manifest, which is `vouched`; None if it is unknown.
    """

    path: Path
    size: int
    claimed: str | None = None
    vouched: Vouched | None = None


def find_candidates(store: Path, others: Iterable[Path], sizes: Collection[int], but: Path) -> list[Candidate]:
    """Return every file of one of these sizes in the store and then in other folders, each once, but in one folder."""
    vouched = {each.path: each for path in manifest.find_manifests(store) for each in manifest.read_manifest(path)}
    found: dict[tuple[int, int], Candidate] = {}
    for folder in (store, *others):
        for path, state in _walk(folder, but):
            if state.st_size in sizes:
                found.setdefault((state.st_dev, state.st_ino), _candidate(path, state.st_size, vouched.get(path)))
    return list(found.values())


def likely_candidates(found: Iterable[Candidate], sha256: str, size: int) -> list[Candidate]:
    """Return the candidates that may be the file, the likeliest first."""
    fitting = [each for each in found if each.size == size and not _is_another(each, sha256)]
    return sorted(fitting, key=lambda each: (each.vouched is None, each.claimed != sha256))


def find_caches(root: Path) -> list[Path]:
    """Return the folders of other programs that are on a host whose files begin at `root`."""
    homes = [*_glob(root, "home/*"), root / "root"]
    in_homes = [folder for home in homes for pattern in _IN_A_HOME for folder in _glob(home, pattern)]
    return [*(root / place for place in _OF_SERVICES), *in_homes]


def _glob(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:  # a home on a server that does not respond hides no other home
        return []


def _candidate(path: Path, size: int, vouched: Vouched | None) -> Candidate:
    named = _NAMED.fullmatch(path.name)
    return Candidate(path, size, vouched.sha256 if vouched else named[1] if named else None, vouched)


def _is_another(candidate: Candidate, sha256: str) -> bool:
    # Models made from the same one often have the same size: a reliable name saves reading 50 GB.
    reliable = candidate.vouched is not None or candidate.path.parent.name == "blobs"
    return reliable and candidate.claimed not in (None, sha256)


def _walk(top: Path, but: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield every regular file below a folder, by way of symlinks too, each folder once, except for one folder.

    Unreadable folders are left out, and so are files deeper or later than users keep models.
    """
    visited = _identities(but)
    kernels = {device for device, _ in _identities(Path("/proc"), Path("/sys"), Path("/dev"))}
    left = _ENTRIES
    waiting = deque([(top, 0)])
    while waiting:
        folder, depth = waiting.popleft()
        here = _identities(folder)
        # Reading the kernel's files may have effects.
        if here <= visited or any(device in kernels for device, _ in here):
            continue
        visited |= here
        for entry in _entries(folder):
            left -= 1
            if left < 0:
                return
            try:
                if entry.is_file():
                    yield Path(entry.path), entry.stat()
                elif depth < _DEPTH and entry.is_dir():
                    waiting.append((Path(entry.path), depth + 1))
            except OSError:  # gone, or a link to itself
                continue


def _identities(*paths: Path) -> set[tuple[int, int]]:
    """Return device and inode of each existing path."""
    found = set()
    for path in paths:
        try:
            state = path.stat()
        except OSError:
            continue
        found.add((state.st_dev, state.st_ino))
    return found


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, by name; none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


_CHUNK = 4 * 1024 * 1024
_UNFINISHED = ".adopting"
_FICLONE = 0x40049409  # linux/fs.h; Python has no name for it

OnRead = Callable[[int], None]
"""A callback with the number of bytes of a file that were read so far."""


class _OtherFileError(Exception):
    """The candidate is another file, or one that changes."""


def adopt(job: Job, run: Path, root: Path = Path("/")) -> None:
    """Adopt the host's files into `incoming`; missing and unusable ones are left to the fetch."""
    progress = Progress(run)
    sizes = {file.size for file in job.files if not _is_whole(file, job.incoming)}
    if not sizes:
        return
    for folder in job.folders:
        if not _has_entries(folder):
            progress.warn(f"{folder}, which is in `store: from:`, is empty or does not exist: is it mounted?")
    progress.show("searching this host for existing files")
    found = find_candidates(job.store, [*find_caches(root), *job.folders], sizes, but=job.incoming)
    try:
        with _opened(job.incoming, os.O_DIRECTORY) as incoming:
            _remove_all(incoming, f"*{_UNFINISHED}")
            for file in job.files:
                if not _is_whole(file, job.incoming):
                    _adopt_one(file, likely_candidates(found, file.sha256, file.size), incoming, progress)
    except OSError as error:
        progress.note(f"the existing files of this host cannot be used: {job.incoming}: {error.strerror}")


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
    """Adopt the first candidate that is the file."""
    for candidate in candidates:
        try:
            how = _take(candidate, file, incoming, _shown_reading(progress, candidate.path, file.size))
        except _OtherFileError:
            continue
        except OSError as error:
            progress.note(f"{file.name}: {candidate.path} cannot be used: {error.strerror}")
            continue
        # The part of an earlier fetch is not needed any more.
        _remove_all(incoming, f"{file.sha256}.*")
        progress.note(f"{file.name}: {how} from {candidate.path}; nothing of it is fetched")
        return


def _take(candidate: Candidate, file: File, incoming: int, on_read: OnRead) -> str:
    """Adopt a candidate, and return how. Raise _OtherFileError and OSError."""
    # Opened once: the verified file is the adopted one, wherever its path leads by then.
    with _opened(Path(os.path.realpath(candidate.path)), os.O_NOFOLLOW) as source:
        state = os.fstat(source)
        if not stat.S_ISREG(state.st_mode) or state.st_size != file.size:
            raise _OtherFileError
        # A file of a manifest is verified, and where only root can write to it, a link is as good as a clone.
        if candidate.vouched and candidate.vouched.unchanged(state) and _linked(source, file, incoming, None):
            return "linked"
        if _cloned(source, file, incoming, on_read):
            return "cloned"
        if _linked(source, file, incoming, on_read):
            return "linked"
        _copy(source, file, incoming, on_read)
        return "copied"


def _cloned(source: int, file: File, incoming: int, on_read: OnRead) -> bool:
    """Adopt a copy that shares its blocks; return False if the filesystem has no such copies."""
    with _unfinished(file, incoming) as copy:
        try:
            fcntl.ioctl(copy, _FICLONE, source)
        except OSError:
            return False
        # No other user can write to the clone: unlike a link, it cannot change once it is verified.
        _prove(file, _digest(copy, file.size, on_read))
        _finish(copy, file, incoming)
        return True


def _linked(source: int, file: File, incoming: int, on_read: OnRead | None) -> bool:
    """Adopt another name of the same file; return False if that is impossible.

    A file that is verified already needs no `seen`.
    """
    if not _is_linkable(source, incoming):
        return False
    if on_read:
        before = os.fstat(source)
        _prove(file, _digest(source, file.size, on_read))
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


def _copy(source: int, file: File, incoming: int, on_read: OnRead) -> None:
    """Adopt a copy, hashed while it is made, in one reading. Raise OSError."""
    room = os.fstatvfs(incoming)
    if room.f_bavail * room.f_frsize < file.size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with _unfinished(file, incoming) as copy:
        _prove(file, _digest(source, file.size, on_read, into=copy))
        _finish(copy, file, incoming)


def _is_linkable(source: int, incoming: int) -> bool:
    """Return whether a file can have a name in `incoming` too, every server can read it, and only root can write to it.

    A link shares its bytes, owner and mode with the file: the manifest would list later changes by its owner.
    """
    state, folder = os.fstat(source), os.fstat(incoming)
    return (
        manifest.is_writable_by_us_only(state)
        and state.st_dev == folder.st_dev
        # Two mounts of the same filesystem allow no links from one to the other.
        and _mount(source) == _mount(incoming)
        and bool(state.st_mode & stat.S_IROTH)
        and not _is_open_for_writing(source)
    )


def _mount(handle: int) -> str:
    lines = Path(f"/proc/self/fdinfo/{handle}").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("mnt_id:"))


def _is_open_for_writing(source: int) -> bool:
    """Return whether any process has the file open to write to it: fcntl(2) grants no read lease then."""
    # A process that opens the file in this moment makes the kernel send a signal: one that does nothing.
    fcntl.fcntl(source, fcntl.F_SETSIG, signal.SIGURG)
    try:
        fcntl.fcntl(source, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        # Without leases (network filesystems), or the right to them, it is unknown.
        return error.errno == errno.EAGAIN
    fcntl.fcntl(source, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _link(source: int, file: File, incoming: int) -> None:
    os.fsync(source)
    # By descriptor, so that it is the verified file. Only with a dst_dir_fd does Python call linkat(2), which follows
    # this link of /proc.
    os.link(f"/proc/self/fd/{source}", file.sha256, dst_dir_fd=incoming, follow_symlinks=True)
    os.fsync(incoming)


def _digest(source: int, size: int, on_read: OnRead, into: int | None = None) -> str:
    """Return the sha256 of a file's first `size` bytes, and write them to `into`."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_CHUNK))
    done = 0
    while done < size and (count := os.preadv(source, [buffer[: size - done]], done)):
        part = buffer[:count]
        digest.update(part)
        while into is not None and part:
            part = part[os.write(into, part) :]
        done += count
        on_read(done)
    return digest.hexdigest()


def _prove(file: File, sha256: str) -> None:
    if sha256 != file.sha256:
        raise _OtherFileError


def _finish(copy: int, file: File, incoming: int) -> None:
    """Give a verified copy its name, and the owner of the folder."""
    owner = os.fstat(incoming)
    os.ftruncate(copy, file.size)  # of a file that grew, the beginning was verified
    os.fchown(copy, owner.st_uid, owner.st_gid)
    os.fchmod(copy, 0o644)
    os.fsync(copy)
    os.rename(f"{file.sha256}{_UNFINISHED}", file.sha256, src_dir_fd=incoming, dst_dir_fd=incoming)
    os.fsync(incoming)


@contextlib.contextmanager
def _unfinished(file: File, incoming: int) -> Iterator[int]:
    """Yield a new file to copy to; it is removed at the end unless it was renamed."""
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
    # Without O_NONBLOCK, opening a named pipe in place of the file would wait.
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


def _shown_reading(progress: Progress, path: Path, size: int) -> OnRead:
    """Show the file that is read, and the progress, every second."""
    shown = time.monotonic()

    def on_read(done: int) -> None:
        nonlocal shown
        if time.monotonic() - shown >= 1:
            shown = time.monotonic()
            progress.show(f"reading {path}: {show_part(done, size)}")

    return on_read
