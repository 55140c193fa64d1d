"""The interface of verbs to a host: programs, files, locks and time. Tests implement it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import BinaryIO, Protocol

from llamaherd.layout import LOCKS
from llamaherd.onhost.posix import (
    MOST_OUTPUT,
    PIPE_SECONDS,
    SHELLS_DESCRIPTOR,
    HostLockFile,
    HostPartialFile,
    ended_by_force,
    ids_of,
    lines_of,
    make_folder,
    pieces,
    processor_seconds,
    sync_folder,
    text_of,
    waiting_seconds,
)

COMMAND_SECONDS = 30
"""Default limit of a program."""
TIMED_OUT, NOT_STARTED = 124, 127
"""Exit codes of a program that took too long, and of one that could not be started."""
POLL_SECONDS = 0.5
_HEARD_SECONDS = 1.0
MOST_LINE = 1 << 16
"""Bytes of a line from the controller."""
WSL_PROGRAMS = "/usr/lib/wsl/lib"
"""Where WSL has the programs of Windows' NVIDIA driver: no PATH of root contains it."""
MOST_DEPTH = 100
"""Folders within each other."""
SECRET_BYTES = 32


Reporter = Callable[[str], None]
"""Shows a line, or writes it to the journal."""


class FailedError(Exception):
    """A verb failed: one sentence, its fix, and the last lines of the failed program, if there is one."""

    def __init__(self, message: str, fix: str = "", log: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message, self.fix, self.log = message, fix, tuple(log)


class HeldError(FailedError):
    """Another run holds a lock of the host."""


class UnknownStateError(Exception):
    """A part of the host, as `systemd`, did not respond: its state is unknown, which is not the same as absent."""

    def __init__(self, part: str) -> None:
        super().__init__(f"{part} did not respond")
        self.part = part


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit code and its output."""

    code: int
    out: str = ""
    err: str = ""
    is_cut: bool = False
    """Whether it printed more than MOST_OUTPUT, so that the beginning of `out` is missing."""

    @property
    def ok(self) -> bool:
        """Return whether it succeeded."""
        return self.code == 0


@dataclass(frozen=True)
class Entry:
    """A file, a folder or a link: its kind, permission bits and owner."""

    kind: str
    """`file`, `folder`, `link` or `other`."""
    mode: int = 0
    owner: str = "root"
    size: int = 0
    number: int = field(default=0, compare=False)
    """The owner's user id."""
    modified: int = field(default=0, compare=False)
    """When its content was written last: nanoseconds since 1970."""
    changed: int = field(default=0, compare=False)
    """When its content, owner or permissions changed last: nanoseconds since 1970."""
    links: int = field(default=1, compare=False)
    """Names of the file: hard links."""
    device: int = field(default=0, compare=False)
    inode: int = field(default=0, compare=False)
    """With its device, the same for all names of a file."""
    blocks: int = field(default=0, compare=False)
    """Blocks of 512 bytes that it takes of the disk."""

    @property
    def written(self) -> float:
        """Return when its content was written last: seconds since 1970."""
        return self.modified / 1e9


class LockFile(Protocol):
    """An open lock of the host, which this program or another program may hold."""

    path: str

    def take(self) -> bool:
        """Hold the lock if no other program does. Return whether this program holds it."""

    def holder(self) -> str:
        """Return the text that the holder of the lock has written there; empty if it has written none."""

    def sign(self, author: str) -> None:
        """Write the name of the lock's holder, the time, and its process."""


class PartialFile(Protocol):
    """An open file of which a part is missing, and its lock."""

    def take(self) -> bool:
        """Hold the lock if no other program does. Return whether this program holds it."""

    def is_in_place(self) -> bool:
        """Return whether its path still leads to it: another program may have renamed or removed it."""

    def size(self) -> int:
        """Return its size in bytes."""

    def clear(self) -> None:
        """Remove its content. Raise OSError."""

    def receive(self) -> None:
        """Append what the controller sends until it has ended. Raise OSError."""

    def rename(self, to: str) -> None:
        """Rename it, without a wait until the disk has its content. Raise OSError."""


class System(Protocol):
    """A host. Paths are absolute; a write is complete or absent, also after a power failure."""

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = COMMAND_SECONDS,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Run a program with `text` on stdin, and return how it ended: TIMED_OUT after so many seconds."""

    def run_logged(
        self, argv: Sequence[str], log: str, *, seconds: float, heard: Callable[[str], None] | None = None
    ) -> Ended:
        """Run a program that appends its output to a file, also if this one is killed. Raise OSError.

        Call `heard` each second with what the program has printed since the last call, which may be nothing.
        Return how it ended, with its output.
        """

    def stream(self, argv: Sequence[str], *, seconds: float | None = None) -> Iterator[str]:
        """Yield each line that a program prints, on stdout and stderr together, without its line break.

        Kill the program after so many seconds, and once the controller has ended.
        """

    def read(self, path: str, most: int = MOST_OUTPUT) -> str | None:
        """Return the text of a file, `most` bytes of it; None if it cannot be read."""

    def read_bytes(self, path: str, most: int = MOST_OUTPUT) -> bytes | None:
        """Return `most` bytes of a file; None if it cannot be read."""

    def write(self, path: str, text: str | bytes, *, mode: int = 0o600, owner: str = "root") -> None:
        """Write a file at once, with its folders. Raise OSError, also where there is no such owner."""

    def copy(self, source: str, target: str) -> None:
        """Copy a file with its mode and owner, and rename it into place. Raise OSError."""

    def link(self, path: str, target: str) -> None:
        """Point a symbolic link somewhere, at once. Raise OSError."""

    def target(self, path: str) -> str:
        """Return where a symbolic link points; empty where it is none."""

    def rename(self, path: str, to: str) -> None:
        """Rename a file, a link or a folder. Raise OSError."""

    def folder(self, path: str, *, mode: int = 0o755) -> None:
        """Make a folder, with those above it, and set its permissions. Raise OSError."""

    def remove(self, path: str) -> None:
        """Remove a file, a link or a folder with all in it; nothing where it is not there. Raise OSError."""

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; none if it does not exist."""

    def entry(self, path: str) -> Entry | None:
        """Return the entry at a path, without following a link; None if there is none."""

    def same_file(self, path: str, other: str) -> bool:
        """Return whether two paths lead to one file, by following links."""

    def tree(self, path: str, depth: int = MOST_DEPTH) -> Iterator[tuple[str, Entry]]:
        """Yield the paths in a folder, each folder before its content, `depth` names deep. No link is followed.

        Unreadable folders are left out.
        """

    def resolved(self, path: str) -> str:
        """Return a path without symbolic links, as far as it exists."""

    def free(self, path: str) -> int | None:
        """Return the bytes that are free in the filesystem of a path; None where there is no such path."""

    def digest(self, paths: Sequence[str]) -> str:
        """Return the sha256 of files one after another. Those that cannot be read count as empty."""

    def hash(self, path: str, read: Callable[[int], None]) -> str:
        """Return the sha256 of a file. `read` is called with the bytes that were read by then. Raise OSError."""

    def is_heard(self) -> bool:
        """Return whether the controller still reads the reports."""

    def random(self) -> bytes:
        """Return 32 bytes at random, for a secret."""

    def lock(self, name: str, seconds: float, purpose: str) -> AbstractContextManager[bool]:
        """Hold a lock of the host, and yield whether another run held it. Raise FailedError after `seconds`."""

    def lock_file(self, name: str) -> AbstractContextManager[LockFile]:
        """Open a lock of the host, and release it at the end. Raise FailedError if no lock can be held."""

    def partial_file(self, path: str) -> AbstractContextManager[PartialFile]:
        """Open a file that the controller sends, and make it where it is missing. Raise OSError."""

    def kill(self, pid: int) -> None:
        """Kill a process; do nothing if there is none."""

    def send(self, value: object) -> None:
        """Send a value to the controller before the verb returns."""

    def next_line(self, seconds: float) -> str | None:
        """Return the next line from the controller, with its line break; empty once the controller has ended.

        None after so many seconds without one. A controller sends lines only after a value that was sent to it.
        """

    @property
    def program(self) -> str:
        """Return where this program is on the host, for units that it starts."""

    def computed(self, pid: int) -> float:
        """Return the seconds of processor time that a server has used: all in the control group of one process."""

    def waited(self, pid: int) -> float:
        """Return the seconds that a server's threads have waited for a processor, which other programs had."""

    def now(self) -> float:
        """Return seconds of a clock that never jumps."""

    def clock(self) -> float:
        """Return seconds since 1970."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def report(self, line: str) -> None:
        """Show a line of progress to the user, or write it to the journal."""

    def warn(self, line: str) -> None:
        """Show a line about something that failed."""


class Host:
    """The host that the program runs on. `System` describes the methods."""

    def __init__(self, report: Reporter, warn: Reporter, send: Callable[[object], None] | None = None) -> None:
        self._report, self._warn, self._send = report, warn, send
        self._received = b""

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = COMMAND_SECONDS,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        own = _environment() if environment is None else dict(environment)
        pipe = subprocess.PIPE
        try:
            # Locks are inherited: where this program is killed, its child goes on, and the next run waits for it.
            process = subprocess.Popen(
                argv, stdin=pipe, stdout=pipe, stderr=pipe, env=own, start_new_session=True, close_fds=False
            )
        except OSError as error:
            return Ended(NOT_STARTED, "", f"{argv[0]}: {error.strerror}")
        try:
            out, err = process.communicate(text.encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            return Ended(TIMED_OUT, *ended_by_force(process))
        return Ended(process.returncode, text_of(out), text_of(err), len(out) > MOST_OUTPUT)

    def run_logged(
        self, argv: Sequence[str], log: str, *, seconds: float, heard: Callable[[str], None] | None = None
    ) -> Ended:
        make_folder(Path(log).parent)
        handle = os.open(log, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
        with os.fdopen(handle, "rb") as file:
            os.fchmod(handle, 0o644)  # users read it, whatever the umask
            began = file.seek(0, os.SEEK_END)
            try:
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=handle,
                    stderr=handle,
                    env=_environment(),
                    start_new_session=True,
                    close_fds=False,
                )
            except OSError as error:
                return Ended(NOT_STARTED, f"{argv[0]}: {error.strerror}")
            try:
                code = _wait(process, seconds, handle, began, heard) if heard else process.wait(seconds)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):  # it may be stuck in the kernel
                    process.wait(PIPE_SECONDS)
                code = TIMED_OUT
            file.seek(max(began, file.seek(0, os.SEEK_END) - MOST_OUTPUT))
            return Ended(code, text_of(file.read(MOST_OUTPUT)))

    def stream(self, argv: Sequence[str], *, seconds: float | None = None) -> Iterator[str]:
        none, both = subprocess.DEVNULL, subprocess.STDOUT
        try:
            process = subprocess.Popen(
                argv, stdin=none, stdout=subprocess.PIPE, stderr=both, env=_environment(), start_new_session=True
            )
        except OSError as error:
            yield f"{argv[0]}: {error.strerror}"
            return
        try:
            assert process.stdout
            yield from lines_of(process.stdout.fileno(), sys.stdin.fileno(), seconds)
        finally:
            ended_by_force(process)

    def read(self, path: str, most: int = MOST_OUTPUT) -> str | None:
        data = self.read_bytes(path, most)
        return None if data is None else data.decode(errors="replace")

    def read_bytes(self, path: str, most: int = MOST_OUTPUT) -> bytes | None:
        try:
            with Path(path).open("rb") as file:
                return file.read(most)
        except OSError:
            return None

    def write(self, path: str, text: str | bytes, *, mode: int = 0o600, owner: str = "root") -> None:
        place = Path(path)
        make_folder(place.parent)
        with _replacing(place, *ids_of(owner), mode) as file:
            file.write(text.encode() if isinstance(text, str) else text)

    def copy(self, source: str, target: str) -> None:
        place = Path(target)
        make_folder(place.parent)
        owner = Path(source).stat()
        mode = stat.S_IMODE(owner.st_mode)
        with _replacing(place, owner.st_uid, owner.st_gid, mode, source) as file, Path(source).open("rb") as data:
            shutil.copyfileobj(data, file)

    def link(self, path: str, target: str) -> None:
        place = Path(path)
        new = place.with_name(f"{place.name}.new")
        with suppress(FileNotFoundError):
            new.unlink()
        new.symlink_to(target)
        new.replace(place)
        sync_folder(place.parent)

    def target(self, path: str) -> str:
        try:
            return str(Path(path).readlink())
        except OSError:
            return ""

    def rename(self, path: str, to: str) -> None:
        Path(path).replace(to)
        sync_folder(Path(to).parent)

    def folder(self, path: str, *, mode: int = 0o755) -> None:
        make_folder(Path(path))
        Path(path).chmod(mode)

    def remove(self, path: str) -> None:
        place = Path(path)
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
            return
        with suppress(FileNotFoundError):
            place.unlink()

    def names(self, path: str) -> list[str]:
        try:
            return sorted(each.name for each in Path(path).iterdir())
        except OSError:
            return []

    def entry(self, path: str) -> Entry | None:
        try:
            found = Path(path).lstat()
        except OSError:
            return None
        return _entry(found)

    def tree(self, path: str, depth: int = MOST_DEPTH) -> Iterator[tuple[str, Entry]]:
        inner: list[str] = []
        for name in self.names(path):
            there = self.entry(f"{path}/{name}")
            if there:
                yield f"{path}/{name}", there
                inner += [f"{path}/{name}"] if there.kind == "folder" else []
        for each in inner if depth > 1 else ():
            yield from self.tree(each, depth - 1)

    def same_file(self, path: str, other: str) -> bool:
        try:
            return Path(path).samefile(other)
        except OSError:
            return False

    def resolved(self, path: str) -> str:
        return os.path.realpath(path)

    def free(self, path: str) -> int | None:
        try:
            found = os.statvfs(path)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    def digest(self, paths: Sequence[str]) -> str:
        found = hashlib.sha256()
        for path in paths:
            with suppress(OSError):
                for piece in pieces(path):
                    found.update(piece)
        return found.hexdigest()

    def hash(self, path: str, read: Callable[[int], None]) -> str:
        found, done = hashlib.sha256(), 0
        for piece in pieces(path):
            found.update(piece)
            done += len(piece)
            read(done)
        return found.hexdigest()

    def is_heard(self) -> bool:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return not poll.poll(0)

    def random(self) -> bytes:
        return os.urandom(SECRET_BYTES)

    @contextmanager
    def lock(self, name: str, seconds: float, purpose: str) -> Iterator[bool]:
        """Hold a lock. Shell scripts hold the same locks, by flock(1)."""
        path = _locks_folder() / name
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+", encoding="utf-8", errors="replace") as file:
            waited = self._wait_for_lock(file.fileno(), path, seconds)
            os.set_inheritable(file.fileno(), True)
            file.seek(0)
            file.truncate()
            file.write(f"process {os.getpid()} since {time.strftime('%H:%M:%S')}: {purpose}\n")
            file.flush()
            yield waited

    @contextmanager
    def lock_file(self, name: str) -> Iterator[LockFile]:
        path = _locks_folder() / name
        opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            handle = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, SHELLS_DESCRIPTOR)
        finally:
            os.close(opened)
        with os.fdopen(handle, "r+", encoding="utf-8", errors="replace") as file:
            lock = HostLockFile(str(path), file)
            try:
                yield lock
            finally:
                lock.clear()

    @contextmanager
    def partial_file(self, path: str) -> Iterator[PartialFile]:
        with Path(path).open("ab", buffering=0) as file:
            yield HostPartialFile(Path(path), file)

    def kill(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def send(self, value: object) -> None:
        if self._send:
            self._send(value)

    def next_line(self, seconds: float) -> str | None:
        poll = select.poll()
        poll.register(sys.stdin.fileno(), select.POLLIN)
        until = self.now() + seconds
        while b"\n" not in self._received and len(self._received) < MOST_LINE:
            if not poll.poll(1000 * max(0.0, until - self.now())):
                return None
            piece = os.read(sys.stdin.fileno(), MOST_LINE)
            if not piece:
                return ""
            self._received += piece
        line, end, self._received = self._received.partition(b"\n")
        return (line + end).decode(errors="replace")

    def _wait_for_lock(self, lock: int, path: Path, seconds: float) -> bool:
        until = self.now() + seconds
        waited = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = (self.read(str(path)) or "").strip() or "it did not write its name"
                if self.now() > until:
                    raise HeldError(
                        f"after {seconds:.0f} s another run still holds {path}: {holder}",
                        "check with `ps` whether it works or hangs, wait or end it, and run again",
                    ) from None
                if not waited:
                    self.report(f"waiting for another run, for up to {seconds:.0f} s: {holder}")
                waited = True
                self.sleep(POLL_SECONDS)
            else:
                return waited

    @property
    def program(self) -> str:
        # On a disk without room, the program is in memory: its link leads to no path.
        return str(Path(sys.argv[0]).absolute())

    def computed(self, pid: int) -> float:
        return processor_seconds(pid)

    def waited(self, pid: int) -> float:
        return waiting_seconds(pid)

    def now(self) -> float:
        return time.monotonic()

    def clock(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def report(self, line: str) -> None:
        self._report(line)

    def warn(self, line: str) -> None:
        self._warn(line)


@contextmanager
def _replacing(place: Path, user: int, group: int, mode: int, source: str = "") -> Iterator[BinaryIO]:
    """Yield a new file, and rename it into place once the disk has its content. Raise OSError.

    The error names the place, unless `source` cannot be read.
    """
    new = place.with_name(f"{place.name}.llamaherd-new")
    with suppress(FileNotFoundError):
        new.unlink()
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fchown(file.fileno(), user, group)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        new.replace(place)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        if not source or error.filename != source:
            error.filename = str(place)
        raise
    sync_folder(place.parent)


def _entry(found: os.stat_result) -> Entry:
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link"))
    try:
        owner = _account(found.st_uid)
    except KeyError:
        owner = str(found.st_uid)
    return Entry(
        kind=next((name for matches, name in kinds if matches(found.st_mode)), "other"),
        mode=stat.S_IMODE(found.st_mode),
        owner=owner,
        size=found.st_size,
        number=found.st_uid,
        modified=found.st_mtime_ns,
        changed=found.st_ctime_ns,
        links=found.st_nlink,
        device=found.st_dev,
        inode=found.st_ino,
        blocks=found.st_blocks,
    )


@cache
def _account(uid: int) -> str:
    """Return the name of an account: a tree has thousands of files of few. Raise KeyError."""
    return pwd.getpwuid(uid).pw_name


def _locks_folder() -> Path:
    """Return the folder of locks. Raise FailedError if other users can write to it: they could hold a lock there."""
    folder = Path(LOCKS)
    make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o700:
        raise FailedError(
            f"{folder} must be a folder of root with mode 0700, for locks",
            "find out which program made it, remove it, and run again",
        )
    return folder


def _wait(process: subprocess.Popen[bytes], seconds: float, log: int, at: int, heard: Callable[[str], None]) -> int:
    """Return the exit code of a program. Pass what it appends to its log to `heard`. Raise TimeoutExpired."""
    until = time.monotonic() + seconds
    while True:
        try:
            return process.wait(max(0.0, min(_HEARD_SECONDS, until - time.monotonic())))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= until:
                raise
        piece = os.pread(log, MOST_OUTPUT, at)  # the program moves the position of the file that both have open
        at += len(piece)
        heard(piece.decode(errors="replace"))


def _environment() -> dict[str, str]:
    """Return the variables of a program: its output is in English, and PATH contains WSL's folder."""
    path = os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    return {**os.environ, "LC_ALL": "C", "PATH": f"{path}:{WSL_PROGRAMS}"}
