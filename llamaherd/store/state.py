"""What a host said of its store to `templates/store/look.sh.j2`, taken apart. Pure, and judges nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

from llamaherd.host.protocol import take_facts
from llamaherd.text.numbers import parse_whole, whole

UseKind = Literal["unit", "container", "file", "process", "release", "kept"]
"""`release` and `kept` need it to be gone back to."""
_KINDS: dict[str, UseKind] = {kind: kind for kind in get_args(UseKind)}
BLOCK = 512
"""Bytes, as `find` counts what a file takes of the disk."""


@dataclass(frozen=True)
class StoredFile:
    """One file; `path` is relative to the store. `inode` is the same for two links to one file, of `links` in all."""

    path: str
    inode: str
    links: int
    size: int
    allocated: int

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, order=True)
class PathUse:
    """Who names, has open or has mapped a path of the store. Something else may follow the path."""

    kind: UseKind
    name: str
    path: str


@dataclass
class StoreState:
    """The store of a host as it is now; all paths but those of uses are relative to it."""

    there: bool = False
    free: int | None = None
    files: list[StoredFile] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    odd: set[str] = field(default_factory=set)
    """Folders in which something has a line break, or the like, in its name."""
    manifests: set[str] = field(default_factory=set)
    vouched: dict[str, int] = field(default_factory=dict)
    """The sizes of the files that manifests vouch for."""
    uses: list[PathUse] = field(default_factory=list)
    fetch: str | None = None
    """How far a fetch is that runs now; None where none does."""
    sent: list[StoredFile] = field(default_factory=list)
    """What has come from the controller and is not let in; paths are relative to where that arrives."""

    def take(self, kind: str, fields: list[str]) -> bool:
        """Take in one fact; whether it is one. Raises ValueError where it is none."""
        match kind, fields:
            case "free", [free]:
                self.there = True
                self.free = whole(free)
            case "file", [_, _, _, _, _]:
                self.files.append(_file(*fields))
            case "sent", [_, _, _, _, _]:
                self.sent.append(_file(*fields))
            case "empty", [path]:
                self.empty += [path] if path else []
            case "link", [path]:
                self.links.append(path)
            case "odd", [path]:
                self.odd.add(_relative(path))
            case "manifest", [path]:
                self.manifests.add(_relative(path))
            case "vouched", [size, path]:
                self.vouched[_relative(path)] = parse_whole(size)
            case "use", [use, name, *path] if path:
                self.uses.append(_use(use, name, *path))
            case "fetch", progress:
                self.fetch = " ".join(progress)
            case _:
                return False
        return True


def parse_store(lines: Iterable[str]) -> StoreState:
    """What the script said. Raises UnaskedError for what it cannot have said."""
    state = StoreState()
    take_facts(lines, state.take)
    state.uses = sorted({*state.uses})
    return state


def _file(inode: str, links: str, size: str, blocks: str, path: str) -> StoredFile:
    return StoredFile(path, inode, parse_whole(links), parse_whole(size), parse_whole(blocks) * BLOCK)


def _relative(path: str) -> str:
    return path.removeprefix("./")


def _use(kind: str, name: str, *path: str) -> PathUse:
    return PathUse(_KINDS.get(kind, "process"), name, "\t".join(path))
