"""Folders, lock files and processes of the operating system, as `system.Host` uses them."""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path
from threading import Thread
from typing import TextIO

_PIECE = 1 << 20
MOST_STREAMED = 1 << 14
"""Bytes of a line of a program that is streamed."""


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


SHELLS_DESCRIPTOR = 9
"""The number of the open file, if it is free: `herd unlock` of the last version finds the holder by it."""
_MOST_CHARACTERS = 1 << 10


class HostLockFile:
    """An open lock. It is free again once the file is closed, also by the end of this process."""

    def __init__(self, path: str, file: TextIO) -> None:
        self.path, self._file, self._held = path, file, False

    def take(self) -> bool:
        self._held = _lock(self._file.fileno())
        return self._held

    def holder(self) -> str:
        self._file.seek(0)
        return " ".join(self._file.read(_MOST_CHARACTERS).split())

    def sign(self, author: str) -> None:
        self._write(f"{author} since {time.strftime('%Y-%m-%d %H:%M:%S')}, process {os.getpid()}\n")

    def clear(self) -> None:
        """Remove the written text, if the lock is held."""
        if self._held:
            self._write("")

    def _write(self, text: str) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._file.write(text)
        self._file.flush()


class HostPartialFile:
    """An open file that the controller sends. Its lock is free again once the file is closed, also by a kill."""

    def __init__(self, path: Path, file: FileIO) -> None:
        self._path, self._file = path, file

    def take(self) -> bool:
        return _lock(self._file.fileno())

    def is_in_place(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False

    def size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def clear(self) -> None:
        self._file.truncate(0)

    def receive(self) -> None:
        buffer = memoryview(bytearray(_PIECE))
        while count := os.readv(sys.stdin.fileno(), [buffer]):
            rest = buffer[:count]
            try:
                while rest:
                    rest = rest[self._file.write(rest) :]
            except OSError as error:
                error.filename = str(self._path)
                raise

    def rename(self, to: str) -> None:
        """Rename it. Its content is read and hashed before it is used: a wait for the disk would gain nothing."""
        self._path.replace(to)


def _lock(handle: int) -> bool:
    """Hold the lock of an open file if no other program does. Return whether this program holds it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


MOST_OUTPUT = 1 << 20
"""Bytes of a program's output that are kept: its last ones."""
PIPE_SECONDS = 5


def ended_by_force(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    """Kill a program and all its children, and return their output."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        out, err = process.communicate(timeout=PIPE_SECONDS)
    except subprocess.TimeoutExpired as late:
        # A program in a session of its own may still hold the pipes, or a program may hang in a driver, where no signal
        # ends it. Such a program is left behind.
        out, err = late.stdout or b"", late.stderr or b""
        Thread(target=process.wait, daemon=True).start()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                pipe.close()
    return text_of(out), text_of(err)


def lines_of(output: int, controller: int, seconds: float | None) -> Iterator[str]:
    """Yield the lines that arrive in a pipe, for so many seconds, and until the pipe or the controller's has ended.

    What exceeds MOST_STREAMED bytes of a line is left out.
    """
    poll = select.poll()
    poll.register(output, select.POLLIN)
    poll.register(controller, select.POLLIN)
    until = None if seconds is None else time.monotonic() + seconds
    begun = b""
    while until is None or time.monotonic() < until:
        ready = dict(poll.poll(None if until is None else 1000 * max(0.0, until - time.monotonic())))
        if controller in ready and not os.read(controller, _PIECE):
            return
        if output not in ready:
            continue
        piece = os.read(output, 1 << 16)
        *whole, begun = (begun + piece).split(b"\n")
        yield from (line[:MOST_STREAMED].decode(errors="replace") for line in whole)
        begun = begun[:MOST_STREAMED]
        if not piece:
            if begun:
                yield begun.decode(errors="replace")
            return


def text_of(data: bytes | None) -> str:
    """Return the last output of a program as text."""
    return (data or b"")[-MOST_OUTPUT:].decode(errors="replace")


def processor_seconds(pid: int) -> float:
    """Return the seconds of processor time of all processes in the control group of a process."""
    used = 0
    for process in _control_group(pid):
        with suppress(OSError, ValueError, IndexError):
            words = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            used += int(words[11]) + int(words[12])
    return used / os.sysconf("SC_CLK_TCK")


def waiting_seconds(pid: int) -> float:
    """Return the seconds that threads have waited for a processor, of all processes in the control group of a process.

    Of a kernel without `schedstat`, it is 0.
    """
    waited = 0
    for process in _control_group(pid):
        for thread in process.glob("task/[0-9]*/schedstat"):
            with suppress(OSError, ValueError, IndexError):
                waited += int(thread.read_text(encoding="utf-8").split()[1])
    return waited / 1e9


def _control_group(pid: int) -> Iterator[Path]:
    """Yield the folders in /proc of all processes in the control group of a process."""
    with suppress(OSError):
        group = Path("/proc", str(pid), "cgroup").read_text(encoding="utf-8")
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "cgroup").read_text(encoding="utf-8") == group:
                    yield process
