"""Files of a host: write them with mode and owner, explain why a write failed, and read texts and names of keys."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from llamaherd.layout import DRIFT_FILE, EXPORTER_UNIT, FIGURES_DATA, KEYS, UNITS
from llamaherd.onhost.document import Secret
from llamaherd.onhost.system import Entry, FailedError, System
from llamaherd.onhost.verbs import Verb


def cannot_write(error: OSError, instead: str = "") -> FailedError:
    """Return the failure of a write. `instead` is the sentence about what is unchanged."""
    if not error.filename:  # not a file, such as a group that cannot be set: no advice is better than wrong advice
        return FailedError(f"{error.strerror or error}{instead}")
    path = Path(str(error.filename))
    near = next(each for each in (path, *path.parents) if each.is_dir() or each == Path("/"))
    mount = next(each for each in (near, *near.parents) if each.is_mount() or each == Path("/"))
    helps = {
        errno.ENOSPC: f"make room on {mount} (`df -h {mount}`; `df -i {mount}` if no more files fit), then run again",
        errno.EDQUOT: f"raise the quota on {mount} or make room there, then run again",
        errno.EROFS: f"make {mount} writable (`findmnt {mount}` shows how it is mounted; a disk with errors is mounted "
        "read-only, see `dmesg`), then run again",
        errno.EPERM: f"`lsattr -d {near} {path}` shows whether it is immutable (`chattr -i`), then run again",
    }
    fix = helps.get(error.errno or 0, f"check {near} with `ls -la`, then run again")
    return FailedError(f"cannot write {path}: {error.strerror}{instead}", fix)


@dataclass(frozen=True)
class Disk:
    """The filesystem of a folder: the folder, bytes free, its device and kind, whether it is writable, its mount."""

    folder: str
    free: int
    device: str
    kind: str
    writable: bool
    mount: str = ""


def disk_of(path: str, system: System) -> Disk:
    """Return the filesystem of a folder, or of the nearest folder above it that exists."""
    near = PurePosixPath(path)
    while (free := system.free(str(near))) is None and near != near.parent:
        near = near.parent
    real = PurePosixPath(system.resolved(str(near)))
    device, kind, options, where = "", "", "", ""
    longest = -1
    for line in (system.read("/proc/self/mountinfo") or "").splitlines():
        before, dash, after = line.partition(" - ")
        words, more = before.split(" "), after.split(" ")
        if not dash or len(words) < 6 or len(more) < 2:
            continue
        mount = PurePosixPath(_unescaped(words[4]))
        # Of mounts over each other, the last counts.
        if real.is_relative_to(mount) and len(mount.parts) >= longest:
            longest = len(mount.parts)
            kind, device, options, where = more[0], _unescaped(more[1]), words[5], str(mount)
    return Disk(str(near), free or 0, device, kind, "ro" not in options.split(","), where)


def _unescaped(field: str) -> str:
    """Return a field of mountinfo as it is: blanks are written there as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


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


MOST_TEXT = 256 << 10
"""Bytes of a file that are read; the largest of llamaherd's has some 30 kB."""


@dataclass(frozen=True)
class KeysInput:
    """Names of servers."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class KeysFound:
    """The servers that have a key on the host. The keys stay there."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class TextsInput:
    """Paths of files."""

    paths: tuple[str, ...]


@dataclass(frozen=True)
class TextsFound:
    """The beginnings of the files that are there, by their paths. Bytes that are no UTF-8 are replaced."""

    texts: Mapping[str, str]


def find_keys(given: KeysInput, system: System) -> KeysFound:
    """Return which servers have a key."""
    return KeysFound(tuple(name for name in given.names if system.entry(f"{KEYS}/{name}")))


def read_texts(given: TextsInput, system: System) -> TextsFound:
    """Return the texts of files. A path that is not a file is left out: opening a pipe may block for ever."""
    found = {}
    for path in given.paths:
        there = resolve(path, system)
        text = system.read(path, MOST_TEXT) if there and there.kind == "file" else None
        if text is not None:
            found[path] = text
    return TextsFound(found)


_MOST_UNIT = 1 << 20


@dataclass(frozen=True)
class DriftInput:
    """Figures, in the exporter's format."""

    text: str


@dataclass(frozen=True)
class Delivery:
    """Whether the exporter reads the figures. Without an exporter, nothing was written."""

    read: bool


def write_drift(given: DriftInput, system: System) -> Delivery:
    """Write figures where the exporter reads them. Raise FailedError if they cannot be written."""
    unit = system.read(str(UNITS / EXPORTER_UNIT), _MOST_UNIT) or ""
    if f"--collector.textfile.directory={FIGURES_DATA}" not in unit:
        return Delivery(read=False)
    try:
        system.write(str(DRIFT_FILE), given.text, mode=0o644)
    except OSError as error:
        reason = f"{DRIFT_FILE} could not be written: {error.strerror}"
        raise FailedError(reason, "check whether the disk is full or read-only") from error
    return Delivery(read=True)


VERBS = {
    "keys": Verb(KeysInput, find_keys),
    "texts": Verb(TextsInput, read_texts),
    "write_drift": Verb(DriftInput, write_drift),
}
