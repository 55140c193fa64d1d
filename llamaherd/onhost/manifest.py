"""The store's manifests: a line for each file that is whole, with its size, time, sha256 and name."""

from __future__ import annotations

from collections.abc import Iterable

from llamaherd.onhost.files import as_seconds
from llamaherd.onhost.system import Entry, System

NAME = ".manifest"
MOST_BYTES = 8 << 20
"""Bytes of a manifest: a folder has some hundred files at most."""
_OTHERS_WRITE = 0o022


def manifest_line(system: System, folder: str, name: str, sha256: str) -> str:
    """Return the line of a manifest by which a file is whole as it is now; empty where there is no file."""
    found = system.entry(f"{folder}/{name}")
    if found is None:
        return ""
    return f"{found.size}\t{as_seconds(found.modified)}\t{sha256}\t{name}"


def manifest_lines(system: System, folder: str) -> list[str] | None:
    """Return the lines of a folder's manifest; None where it has none."""
    text = system.read(f"{folder}/{NAME}", MOST_BYTES)
    return None if text is None else text.split("\n")[: None if text and not text.endswith("\n") else -1]


def is_vouched(system: System, folder: str, name: str, sha256: str) -> bool:
    """Return whether a file is there as its manifest lists it."""
    line = manifest_line(system, folder, name, sha256)
    return bool(line) and line in (manifest_lines(system, folder) or ())


def write_manifest(system: System, folder: str, lines: Iterable[str], *, keep_time: bool) -> None:
    """Replace a folder's manifest. With `keep_time`, its time stays. Raise OSError.

    Its time is when a server may have begun to run something else.
    """
    manifest, new = f"{folder}/{NAME}", f"{folder}/{NAME}.part"
    system.write(new, "".join(f"{line}\n" for line in lines), mode=0o644)
    if keep_time:
        system.run(["touch", "-r", manifest, new])
    system.rename(new, manifest)


def without(lines: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return lines of a manifest without those of some files."""
    gone = set(names)
    return [line for line in lines if _name(line) not in gone]


def _name(line: str) -> str:
    return line.split("\t")[3] if line.count("\t") > 2 else ""


def is_roots(entry: Entry | None) -> bool:
    """Return whether a path is a file that only root can write to."""
    return entry is not None and entry.kind == "file" and entry.owner == "root" and not entry.mode & _OTHERS_WRITE
