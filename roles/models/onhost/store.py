"""Inspect the store, and admit files into it: each gets its name by one rename, and a manifest lists it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from llamaherd.layout import FETCH_RUN, FETCH_UNIT, FETCH_USER, INCOMING, LOCK_WAIT
from llamaherd.onhost.files import Disk, as_seconds, as_text, cannot_write, disk_of, is_file
from llamaherd.onhost.services import require_success, show_units
from llamaherd.onhost.store import (
    MANIFEST,
    is_vouched,
    is_writable_by_root_only,
    lines_without,
    manifest_line,
    manifest_lines,
    write_manifest,
)
from llamaherd.onhost.system import Entry, FailedError, System
from llamaherd.onhost.verbs import Verb
from roles.models.onhost import ID, is_plain_file, make_folder, reported

_BLOCK = 512
_RUNS = ("active", "activating", "deactivating", "reloading")
_LINE = re.compile(r"([0-9]{1,18})\t(-?[0-9]{1,18}(?:\.[0-9]{1,9})?)\t([0-9a-f]{64})\t([^\t]+)")

WARNINGS = str(FETCH_RUN / "warnings")
"""The warnings of a successful fetch, which are reported once."""

MOVE_SECONDS = 86_400
"""A file from the controller may have to be copied to another disk."""

_ABOVE = "the reason is above"
_FIX = "run `herd up` again"


@dataclass(frozen=True)
class InspectInput:
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


def inspect(given: InspectInput, system: System) -> Found:
    """Inspect the store. Raise UnknownStateError where systemd does not respond."""
    verified = {folder: tuple(_verified(folder, system)) for folder in given.folders}
    stored = {folder: tuple(_stored(folder, system)) for folder in given.folders}
    arriving = system.tree(f"{given.store}/.incoming", 1)
    return Found(
        store=disk_of(given.store, system),
        verified={folder: files for folder, files in verified.items() if files},
        stored={folder: files for folder, files in stored.items() if files},
        # A partial file has holes, so its blocks are counted.
        incoming={
            as_text(path.rpartition("/")[2]): min(found.size, found.blocks * _BLOCK)
            for path, found in arriving
            if found.kind == "file"
        },
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
        if is_writable_by_root_only(found) and not path.endswith(f"/{MANIFEST}"):
            name = as_text(path.removeprefix(f"{folder}/"))
            yield StoredFile(name, found.size, float(as_seconds(found.modified)))


def _kept(store: str, tree: Iterable[tuple[str, Entry]]) -> dict[str, int]:
    """Return the bytes that the removal of each revision would free. A file with a second hard link frees none."""
    entries = [*tree]
    kept = {path.rpartition("/")[0]: 0 for path, _ in entries if path.endswith(f"/{MANIFEST}")}
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


@dataclass(frozen=True)
class AdmittedFile:
    """A file of a model. `keep`: another file that is let in later has the same content."""

    name: str
    sha256: str
    keep: bool = False


@dataclass(frozen=True)
class AdmittedModel:
    """A model's folder in the store, and its files."""

    folder: str
    files: tuple[AdmittedFile, ...]


@dataclass(frozen=True)
class AdmitInput:
    """What is let in."""

    store: str
    models: tuple[AdmittedModel, ...]


def admit(given: AdmitInput, system: System) -> None:
    """Let models in. One that cannot be let in keeps no other outside. Raise FailedError with what is missing."""
    with system.lock("store", LOCK_WAIT, "letting models in"):
        failures: list[str] = []
        try:
            make_folder(system, given.store)
            for line in reported(system, WARNINGS):
                system.report(line)
            system.remove(WARNINGS)
        except OSError as error:
            raise cannot_write(error) from error
        failure = None
        for model in given.models:
            try:
                _admit_model(given.store, model, system)
            except OSError as error:
                failure = cannot_write(error)
            except FailedError as error:
                failure = error
            else:
                continue
            failures += [*failure.log, failure.message]
        if failure:
            raise FailedError(failure.message, failure.fix, failures[:-1])


def _admit_model(store: str, model: AdmittedModel, system: System) -> None:
    """Let the files of a model in, and list them."""
    make_folder(system, model.folder)
    replaced = [_admit_file(f"{store}/.incoming", model.folder, each, system) for each in model.files]
    _list_files(model, system, keep_time=not any(replaced))
    for each in model.files:
        if not each.keep:
            system.remove(f"{INCOMING}/{each.sha256}")


def _admit_file(incoming: str, folder: str, file: AdmittedFile, system: System) -> bool:
    """Let a file in. Return whether it replaces another. Raise FailedError where it has not arrived."""
    path = f"{folder}/{file.name}"
    there = system.entry(path)
    if is_writable_by_root_only(there) and is_vouched(system, folder, file.name, file.sha256):
        return False
    source = _arrived_file(incoming, path, file, system)
    if not source:
        return False
    make_folder(system, path.rpartition("/")[0])
    _move_in(source, path, system, keep=file.keep)
    return there is not None


def _arrived_file(incoming: str, path: str, file: AdmittedFile, system: System) -> str:
    """Return where a file has arrived, root's by now; empty where it is in its place. Raise FailedError if neither."""
    fetched, sent = f"{incoming}/{file.sha256}", f"{INCOMING}/{file.sha256}"
    source = next((each for each in (fetched, sent) if is_plain_file(each, system)), "")
    if not source:
        # A run was killed between the rename and the manifest.
        if is_writable_by_root_only(system.entry(path)) and system.digest([path]) == file.sha256:
            return ""
        message = f"{file.name} is neither in {path.removesuffix('/' + file.name)} nor among what has arrived"
        raise FailedError(message, _FIX)
    if source == sent:
        have = system.digest([sent])
        if have != file.sha256:
            system.remove(sent)
            message = f"{file.name} arrived with sha256 {have}, but {file.sha256} was expected; it was removed"
            raise FailedError(message, _FIX)
    _make_roots(source, system, is_sent=source == sent)
    return source


def _make_roots(path: str, system: System, *, is_sent: bool) -> None:
    """Make a file root's that was sent, fetched or copied. What root has elsewhere too, linked in, stays as it is."""
    found = system.entry(path)
    if found and (is_sent or found.owner == FETCH_USER):
        require_success(system.run(["chown", "-h", "root:root", path]), f"cannot make {path} root's; {_ABOVE}")
        found = system.entry(path)
    if found and found.owner == "root" and found.links == 1:
        require_success(system.run(["chmod", "0644", path]), f"cannot set the permissions of {path}; {_ABOVE}")


def _move_in(source: str, path: str, system: System, *, keep: bool) -> None:
    """Give a file its name in the store: by a rename, or as a second name of it where it is needed again."""
    there, new = system.entry(path), system.entry(source)
    same = there is not None and new is not None and (there.device, there.inode) == (new.device, new.inode)
    if keep:
        # A second name of one file; not every file system has that.
        if not same and not system.run(["ln", "-fT", source, path]).ok:
            system.copy(source, path)
    elif same:
        # A rename would leave both names.
        system.remove(source)
    else:
        moved = system.run(["mv", "-fT", source, path], seconds=MOVE_SECONDS)
        require_success(moved, f"cannot move {source} to {path}; {_ABOVE}")


def _list_files(model: AdmittedModel, system: System, *, keep_time: bool) -> None:
    """Write the manifest of a folder. Lines of files of other models stay, and its time if files were only added."""
    before = manifest_lines(system, model.folder)
    others = lines_without(before or (), (each.name for each in model.files))
    lines = [*others, *(manifest_line(system, model.folder, each.name, each.sha256) for each in model.files)]
    keep_time = keep_time and before is not None and set(before) <= set(lines)
    write_manifest(system, model.folder, lines, keep_time=keep_time)


VERBS = {"inspect": Verb(InspectInput, inspect), "admit": Verb(AdmitInput, admit)}
