"""A short notation of a host's state for tests: a line per fact, its kind and its fields, with tabs between them."""

from __future__ import annotations

from collections.abc import Iterable

from llamaherd.host.protocol import BEGIN, END
from llamaherd.onhost.inspection import FileFound, Inspected


def inspected(lines: Iterable[str]) -> Inspected:
    """Return what an inspection of a host in this state returns."""
    stats: dict[str, list[str]] = {}
    files: dict[str, FileFound] = {}
    rest: list[str] = []
    for line in lines:
        match line.split("\t"):
            case "file", path, stat:
                stats[path] = stat.split()
            case "sum", sha256, path:
                mode, number, owner, written = stats[path]
                files[path] = FileFound(int(mode, 8), int(number), owner, float(written), sha256)
            case _:
                rest.append(line)
    return Inspected(files, lines=(BEGIN, *rest, END))
