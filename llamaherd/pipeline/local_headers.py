"""Headers of models that lie here as files and are not locked yet: read where they lie, again only when they change."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from llamaherd.engines import served_whole
from llamaherd.gguf.header import Header
from llamaherd.gguf.join import join
from llamaherd.gguf.local import read_headers
from llamaherd.gguf.parsed import GgufError
from llamaherd.inventory.schema import Rig
from llamaherd.lock import Lock


@dataclass(frozen=True)
class Local:
    """Headers by name of model, and why others cannot be read, in a sentence each."""

    headers: dict[str, Header] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)


def local_headers(rig: Rig, lock: Lock | None) -> Local:
    """What the files of this machine say that the rig names and the lock does not know.

    A file that is not there is another matter. No more than a header is read, 128 MiB at most.
    """
    found = Local()
    for name, model in rig.models.items():
        if model.file is None or (lock and lock.header(model)) or name in served_whole(rig):
            continue
        try:
            told = model.file.stat()
            found.headers[name] = _header(model.file, told.st_size, told.st_mtime_ns)
        except GgufError as error:
            found.faults[name] = str(error)
        except OSError:
            continue
    return found


@lru_cache(maxsize=64)
def _header(path: Path, _size: int, _changed: int) -> Header:
    return join(read_headers(path))
