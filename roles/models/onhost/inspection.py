"""Inspect the store: its disk, the files of planned models, files that arrive, and all stored revisions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from llamaherd.layout import FETCH_UNIT
from llamaherd.onhost.disk import Disk, disk_of
from llamaherd.onhost.files import as_seconds, as_text, is_file
from llamaherd.onhost.manifest import NAME, is_roots, manifest_lines
from llamaherd.onhost.system import Entry, System
from llamaherd.onhost.units import show_units
from llamaherd.onhost.verbs import Verb
from roles.models.onhost.fetch import ID

_BLOCK = 512
_RUNS = ("active", "activating", "deactivating", "reloading")
_LINE = re.compile(r"([0-9]{1,18})\t(-?[0-9]{1,18}(?:\.[0-9]{1,9})?)\t([0-9a-f]{64})\t([^\t]+)")


@dataclass(frozen=True)
class Question:
    """The store, and the folders of planned models."""

    store: str
    folders: tuple[str, ...]


@dataclass(frozen=True)
class VerifiedFile:
    """A file that a manifest lists, with its size, the time when it was written, and its hash."""

    name: str
    size: int
    written: float
    sha256: str


@dataclass(frozen=True)
class StoredFile:
    """A file of a model, by its path in the model's folder."""

    name: str
    size: int
    written: float


@dataclass(frozen=True)
class Found:
    """The store. Folders without files have no entry."""

    store: Disk
    verified: Mapping[str, tuple[VerifiedFile, ...]] = field(default_factory=dict)
    """Files that a manifest lists, by the folder of a planned model."""
    stored: Mapping[str, tuple[StoredFile, ...]] = field(default_factory=dict)
    """By the folder of a planned model. Files that other users can write to are left out."""
    incoming: Mapping[str, int] = field(default_factory=dict)
    """Bytes on disk of files that arrive, by name."""
    kept: Mapping[str, int] = field(default_factory=dict)
    """Bytes that the removal of a revision would free, by its folder."""
    fetch: str | None = None
    """The id of the fetch that runs."""


def inspect(given: Question, system: System) -> Found:
    """Inspect the store. Raise UnknownStateError where systemd does not respond."""
    verified = {folder: tuple(_verified(folder, system)) for folder in given.folders}
    stored = {folder: tuple(_stored(folder, system)) for folder in given.folders}
    arriving = system.tree(f"{given.store}/.incoming", 1)
    return Found(
        store=disk_of(given.store, system),
        verified={folder: files for folder, files in verified.items() if files},
        stored={folder: files for folder, files in stored.items() if files},
        incoming={_name(path): _arrived(found) for path, found in arriving if found.kind == "file"},
        kept=_kept(given.store, system.tree(given.store)),
        fetch=_fetch(system),
    )


def _verified(folder: str, system: System) -> Iterator[VerifiedFile]:
    """Yield the files that a manifest lists. An invalid line is left out."""
    for line in manifest_lines(system, folder) or ():
        if found := _LINE.fullmatch(line):
            yield VerifiedFile(as_text(found[4]), int(found[1]), float(found[2]), found[3])


def _stored(folder: str, system: System) -> Iterator[StoredFile]:
    there = system.entry(folder)
    if there is None or there.kind != "folder":
        return
    for path, found in system.tree(folder):
        if is_roots(found) and not path.endswith(f"/{NAME}"):
            name = as_text(path.removeprefix(f"{folder}/"))
            yield StoredFile(name, found.size, float(as_seconds(found.modified)))


def _name(path: str) -> str:
    return as_text(path.rpartition("/")[2])


def _arrived(found: Entry) -> int:
    """Return the bytes of a file that have arrived. A partial file has holes, so its blocks are counted."""
    return min(found.size, found.blocks * _BLOCK)


def _kept(store: str, tree: Iterable[tuple[str, Entry]]) -> dict[str, int]:
    """Return the bytes that the removal of each revision would free. A file with a second hard link frees none."""
    entries = [*tree]
    kept = {path.rpartition("/")[0]: 0 for path, _ in entries if path.endswith(f"/{NAME}")}
    for path, found in entries:
        if found.kind == "file" and found.links == 1:
            folder = path.rpartition("/")[0]
            while len(folder) >= len(store):
                if folder in kept:
                    kept[folder] += found.size
                folder = folder.rpartition("/")[0]
    return {as_text(folder): size for folder, size in kept.items()}


def _fetch(system: System) -> str | None:
    """Return the id of the fetch that runs: the fetch writes its id before it begins."""
    if not is_file(ID, system):
        return None
    shown = show_units([FETCH_UNIT], ("ActiveState",), system)
    runs = shown.get(FETCH_UNIT, {}).get("ActiveState") in _RUNS
    return (system.read(ID) or "").strip() if runs else None


VERBS = {"inspect": Verb(Question, inspect)}
