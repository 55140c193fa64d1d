"""A hub's repositories and their files: of bytes, of this machine, or as large as a model and on no disk."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class Hollow(NamedTuple):
    """A file of `size` bytes that begins with `head` and has zeros behind it, as large as a model and on no disk.

    The sha256 that the hub names for it is the head's: nobody hashes gigabytes of zeros.
    """

    head: bytes
    size: int


Content = bytes | Path | Hollow
_CHUNK = 64 * 1024


class HubFile:
    """A file of a repository; hashed once, when first asked for."""

    def __init__(self, path: str, content: Content) -> None:
        self.path = path
        self._content = content
        self._sha256: str | None = None
        self._hashing = threading.Lock()

    @property
    def file(self) -> Path | None:
        """The file of this machine that it is."""
        return self._content if isinstance(self._content, Path) else None

    @property
    def size(self) -> int:
        match self._content:
            case bytes() as body:
                return len(body)
            case Hollow(size=size):
                return size
            case Path() as path:
                return path.stat().st_size

    @property
    def sha256(self) -> str:
        with self._hashing:
            if self._sha256 is None:
                hashed = len(self._content.head) if isinstance(self._content, Hollow) else self.size
                digest = hashlib.sha256()
                for start in range(0, hashed, _CHUNK):
                    digest.update(self.read(start, min(_CHUNK, hashed - start)))
                self._sha256 = digest.hexdigest()
            return self._sha256

    def read(self, start: int, count: int) -> bytes:
        match self._content:
            case bytes() as body:
                return body[start : start + count]
            case Hollow(head, size):
                return head[start : start + count].ljust(min(count, size - start), b"\0")
            case Path() as path:
                with path.open("rb") as stream:
                    stream.seek(start)
                    return stream.read(count)


@dataclass
class HubRepo:
    """A repository: its trees by commit, and the commits of its branches."""

    commits: dict[str, dict[str, HubFile]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
