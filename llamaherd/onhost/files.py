"""Files that verbs write: their texts, modes and owners."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from llamaherd.onhost.disk import cannot_write
from llamaherd.onhost.document import Secret
from llamaherd.onhost.system import Entry, System


@dataclass(frozen=True)
class WrittenFile:
    """A file to write. `text` may contain a key."""

    path: str
    text: Secret
    mode: int
    owner: str


@dataclass(frozen=True)
class PutFilesInput:
    """Files that are written while the lock of the host is held."""

    purpose: str
    """What another run reads that waits for the lock."""
    files: tuple[WrittenFile, ...]
    remove: tuple[str, ...] = ()
    """Files and folders that are removed first."""


def resolve(path: str, system: System) -> Entry | None:
    """Return what is at a path after following links; None where nothing is."""
    return system.entry(system.resolved(path))


def is_file(path: str, system: System) -> bool:
    """Return whether a file is at a path, after following links."""
    found = resolve(path, system)
    return found is not None and found.kind == "file"


def as_text(path: str) -> str:
    """Return the path of a file as text: bytes of its name that are no UTF-8 are replaced, as where text is read."""
    return path.encode(errors="surrogateescape").decode(errors="replace")


def as_seconds(nanoseconds: int) -> str:
    """Return a time in seconds, with all of its digits: as a float it would lose some."""
    return f"{nanoseconds // 10**9}.{nanoseconds % 10**9:09d}"


def write_files(system: System, files: Iterable[WrittenFile]) -> None:
    """Write files, each at once. Raise FailedError with a help."""
    for each in files:
        try:
            system.write(each.path, each.text.text, mode=each.mode, owner=each.owner)
        except OSError as error:
            raise cannot_write(OSError(error.errno, error.strerror, each.path)) from error
