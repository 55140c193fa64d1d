"""Hash models on a host, with its spare resources. The manifest drops a damaged file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from llamaherd.onhost.store import lines_without, manifest_lines, write_manifest
from llamaherd.onhost.system import Entry, FailedError, HeldError, System
from llamaherd.onhost.verbs import Verb

EVERY = 2.0
"""Seconds between reports of progress."""
_STORE_SECONDS = 30


@dataclass(frozen=True)
class HashedFile:
    """A file, and its size if it is known."""

    folder: str
    name: str
    sha256: str
    size: int | None


@dataclass(frozen=True)
class HashInput:
    """The files to hash."""

    files: tuple[HashedFile, ...]


@dataclass(frozen=True)
class FileHash:
    """The state of a file: `found` is its sha256, its size, or why it cannot be read."""

    what: Literal["missing", "hashed", "sized", "unreadable"]
    found: str = ""
    dropped: bool = False
    """Whether its manifest no longer lists it."""


@dataclass(frozen=True)
class Hashes:
    """The states of the files, in the order of the input."""

    files: tuple[FileHash, ...]


def hash_files(given: HashInput, system: System) -> Hashes:
    """Hash files. Report progress as `at NUMBER BYTES OF`: the file, the bytes read, and the bytes of all files.

    Raise FailedError once the controller has closed the connection.
    """
    pid = str(os.getpid())
    system.run(["renice", "-n", "19", "-p", pid])
    system.run(["ionice", "-c", "3", "-p", pid])
    sizes = [_size(system, each) for each in given.files]
    found = []
    for number, file in enumerate(given.files):
        reading = Reading(system, number, sum(sizes[:number]), sum(sizes))
        found.append(_hash(system, file, reading))
    return Hashes(tuple(found))


def _size(system: System, file: HashedFile) -> int:
    found = system.entry(f"{file.folder}/{file.name}")
    return found.size if found else 0


class Reading:
    """Reports the progress of one file."""

    def __init__(self, system: System, number: int, before: int, total: int) -> None:
        self._system, self._number, self._before, self._total = system, number, before, total
        self._reported = -EVERY

    def read(self, done: int) -> None:
        """Report that so many bytes were read, every two seconds. Raise FailedError where the connection is closed."""
        now = self._system.now()
        if now - self._reported >= EVERY:
            self._reported = now
            self._system.report(f"at {self._number} {self._before + done} {self._total}")
            if not self._system.is_heard():
                raise FailedError("the connection ended while models were hashed")


def _hash(system: System, file: HashedFile, reading: Reading) -> FileHash:
    """Return the state of a file, and take it out of its manifest if it is damaged."""
    path = f"{file.folder}/{file.name}"
    before = system.entry(path)
    if before is None or before.kind != "file":
        return FileHash("missing")
    if file.size is not None and file.size != before.size:
        return FileHash("sized", str(before.size), dropped=_drop(system, file, before))
    reading.read(0)
    try:
        sha256 = system.hash(path, reading.read)
    except OSError as error:
        return FileHash("unreadable", error.strerror or str(error), dropped=_drop(system, file, before))
    return FileHash("hashed", sha256, dropped=sha256 != file.sha256 and _drop(system, file, before))


def _drop(system: System, file: HashedFile, before: Entry) -> bool:
    """Take a file out of its manifest, so that it is fetched again, unless it was replaced while it was read."""
    try:
        with system.lock("store", _STORE_SECONDS, "checking models"):
            now = system.entry(f"{file.folder}/{file.name}")
            if now is None or (now.size, now.modified, now.inode) != (before.size, before.modified, before.inode):
                return False
            lines = manifest_lines(system, file.folder)
            if lines is not None:
                write_manifest(system, file.folder, lines_without(lines, [file.name]), keep_time=False)
    except (HeldError, OSError):
        return False
    return True


VERBS = {"hash": Verb(HashInput, hash_files)}
