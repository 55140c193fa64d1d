"""Read the manifests of the store: the size, time and sha256 of each verified file."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

NAME = ".manifest"
# size, time of the last change in seconds with 9 decimals, sha256, name within the folder
_LINE = re.compile(r"(\d+)\t(\d+\.\d{9})\t([0-9a-f]{64})\t(.+)")


class Vouched(NamedTuple):
    """A file of the store, and its entry in the manifest."""

    path: Path
    size: int
    modified: str
    sha256: str

    def unchanged(self, found: os.stat_result) -> bool:
        """Return whether a file is unchanged since it was verified."""
        return (found.st_size, _seconds(found.st_mtime_ns)) == (self.size, self.modified)


def is_writable_by_us_only(found: os.stat_result) -> bool:
    """Return whether only root, or the user of this program, can write to a file.

    An access list shows in the group's bits.
    """
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds // 10**9}.{nanoseconds % 10**9:09}"


def find_manifests(store: Path) -> Iterator[Path]:
    """Yield every manifest of a store; files in its hidden folders are not in the store yet, or no longer."""
    for folder, folders, files in os.walk(store):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if NAME in files:
            yield Path(folder, NAME)


def read_manifest(manifest: Path) -> list[Vouched]:
    """Return the entries of a manifest; none if it does not exist or cannot be read."""
    try:
        text = manifest.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    lines = (_LINE.fullmatch(line) for line in text.split("\n"))
    return [
        Vouched(manifest.parent / line[4], int(line[1]), line[2], line[3])
        for line in lines
        if line and not Path(line[4]).is_absolute() and ".." not in Path(line[4]).parts
    ]
