"""What a host said of its store to `templates/store-look.sh.j2`, taken apart. Pure, and judges nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

UseKind = Literal["unit", "container", "file", "process"]
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
class Use:
    """Who names, has open or has mapped a path of the store. Something else may follow the path."""

    kind: UseKind
    name: str
    path: str


@dataclass(frozen=True)
class StoreState:
    """The store of a host as it is now; all paths but those of uses are relative to it."""

    there: bool
    free: int | None
    files: tuple[StoredFile, ...]
    empty: tuple[str, ...]
    links: tuple[str, ...]
    odd: tuple[str, ...]
    """Folders in which something has a line break, or the like, in its name."""
    manifests: frozenset[str]
    vouched: dict[str, int]
    """The sizes of the files that manifests vouch for."""
    uses: tuple[Use, ...]
    fetch: str | None
    """How far a fetch is that runs now; None where none does."""
    sent: tuple[StoredFile, ...] = ()
    """What has come from the controller and is not let in; paths are relative to where that arrives."""


def parse(text: str) -> StoreState | None:
    """What the script printed, taken apart; None if it did not come to its end."""
    lines = [line.split("\t") for line in text.split("\n")]
    if ["end"] not in lines:
        return None

    def of(kind: str, *numbers: int, fields: int) -> Iterator[list[str]]:
        """What lines of this kind hold that have so many fields, with numbers in these."""
        for first, *rest in lines:
            if first == kind and len(rest) == fields and all(_is_number(rest[number]) for number in numbers):
                yield rest

    def files(kind: str) -> tuple[StoredFile, ...]:
        return tuple(
            StoredFile(path, inode, int(links), int(size), int(blocks) * BLOCK)
            for inode, links, size, blocks, path in of(kind, 1, 2, 3, fields=5)
        )

    return StoreState(
        there=any(of("free", fields=1)),
        free=next((int(free) for (free,) in of("free", 0, fields=1)), None),
        files=files("file"),
        sent=files("sent"),
        empty=tuple(path for (path,) in of("empty", fields=1) if path),
        links=tuple(path for (path,) in of("link", fields=1)),
        odd=tuple(sorted({_relative(path) for (path,) in of("odd", fields=1)})),
        manifests=frozenset(_relative(path) for (path,) in of("manifest", fields=1)),
        vouched={_relative(path): int(size) for size, path in of("vouched", 0, fields=2)},
        uses=tuple(sorted({_use(kind, *rest) for _, kind, *rest in filter(_is_use, lines)})),
        fetch=next((" ".join(rest) for first, *rest in lines if first == "fetch"), None),
    )


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 19


def _is_use(fields: list[str]) -> bool:
    return fields[0] == "use" and len(fields) >= 4


def _relative(path: str) -> str:
    return path.removeprefix("./")


def _use(kind: str, name: str, *path: str) -> Use:
    known: dict[str, UseKind] = {"unit": "unit", "container": "container", "file": "file"}
    return Use(known.get(kind, "process"), name, "\t".join(path))
