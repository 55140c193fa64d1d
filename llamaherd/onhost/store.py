"""The store of models on a host: its manifests, uploads, hashes, content and users, and the removal of unused files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal

from llamaherd.layout import FETCH_RUN, FETCH_UNIT, IN_REACH, INCOMING
from llamaherd.onhost.clients import unit_properties
from llamaherd.onhost.files import as_seconds, cannot_write
from llamaherd.onhost.removal import Outcome, Removals, Use, empty_trash, find_uses, is_within, real_path
from llamaherd.onhost.system import Entry, FailedError, HeldError, PartialFile, System
from llamaherd.onhost.verbs import Verb

MANIFEST = ".manifest"
MOST_MANIFEST_BYTES = 8 << 20
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
    text = system.read(f"{folder}/{MANIFEST}", MOST_MANIFEST_BYTES)
    return None if text is None else text.split("\n")[: None if text and not text.endswith("\n") else -1]


def is_vouched(system: System, folder: str, name: str, sha256: str) -> bool:
    """Return whether a file is there as its manifest lists it."""
    line = manifest_line(system, folder, name, sha256)
    return bool(line) and line in (manifest_lines(system, folder) or ())


def write_manifest(system: System, folder: str, lines: Iterable[str], *, keep_time: bool) -> None:
    """Replace a folder's manifest. With `keep_time`, its time stays. Raise OSError.

    Its time is when a server may have begun to run something else.
    """
    manifest, new = f"{folder}/{MANIFEST}", f"{folder}/{MANIFEST}.part"
    system.write(new, "".join(f"{line}\n" for line in lines), mode=0o644)
    if keep_time:
        system.run(["touch", "-r", manifest, new])
    system.rename(new, manifest)


def lines_without(lines: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return lines of a manifest without those of some files."""
    gone = set(names)
    return [line for line in lines if _name(line) not in gone]


def _name(line: str) -> str:
    return line.split("\t")[3] if line.count("\t") > 2 else ""


def is_writable_by_root_only(entry: Entry | None) -> bool:
    """Return whether a path is a file that only root can write to."""
    return entry is not None and entry.kind == "file" and entry.owner == "root" and not entry.mode & _OTHERS_WRITE


BLOCK = 512
"""Bytes."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SIZE = re.compile(r"[0-9]{1,18}")
_RUNS = ("active", "activating", "deactivating", "reloading")
_STORE_SECONDS, _REMOVE_SECONDS = 30, 600


@dataclass(frozen=True)
class StoreInput:
    """A store, and how many good releases count as its users."""

    store: str
    keep: int = IN_REACH


@dataclass(frozen=True)
class StoredFile:
    """One file; `path` is relative to its folder. `inode` is the same for two links to one file, of `links` in all."""

    path: str
    inode: str
    links: int
    size: int
    allocated: int

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class StoreState:
    """The store of a host as it is now; all paths but those of uses are relative to it."""

    there: bool = False
    free: int | None = None
    files: tuple[StoredFile, ...] = ()
    empty: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()
    """Folders in which something has a line break, or the like, in its name."""
    manifests: tuple[str, ...] = ()
    vouched: Mapping[str, int] = field(default_factory=dict)
    """The sizes of the files that manifests list."""
    uses: tuple[Use, ...] = ()
    fetch: str | None = None
    """The progress of a fetch that runs now; None where none does."""
    sent: tuple[StoredFile, ...] = ()
    """Files from the controller that are not adopted yet; paths are relative to the upload folder."""


@dataclass(frozen=True)
class Item:
    """A folder to remove, or `files` in it, of which others, `keep`, may be in use."""

    folder: str
    files: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()


@dataclass(frozen=True)
class PruneInput:
    """The items to remove if they are still unused. Paths are relative to the store, but for `uploads`."""

    store: str
    items: tuple[Item, ...] = ()
    parts: tuple[str, ...] = ()
    """Files in transfer, by their sha256."""
    uploads: tuple[str, ...] = ()
    """Files from the controller."""
    keep: int = IN_REACH


def inspect(given: StoreInput, system: System) -> StoreState:
    """Return the files in the store and their users. Raise FailedError if they are unknown."""
    sent = tuple(
        _stored(path.removeprefix(f"{INCOMING}/"), found)
        for path, found in system.tree(str(INCOMING), 1)
        if found.kind == "file" and not _CONTROL.search(path)
    )
    fetch = fetch_progress(system)
    real = real_path(system, given.store)
    if not real:
        return StoreState(fetch=fetch, sent=sent)
    found = [(path.removeprefix(f"{real}/"), entry) for path, entry in system.tree(real)]
    plain = [(path, entry) for path, entry in found if not _CONTROL.search(path)]
    manifests = [path.rpartition("/")[0] for path, entry in plain if _is_manifest(path, entry)]
    vouched: dict[str, int] = {}
    for folder in manifests:
        vouched |= _vouched(folder, manifest_lines(system, f"{real}/{folder}".rstrip("/")) or ())
    return StoreState(
        there=True,
        free=system.free(real),
        files=tuple(_stored(path, entry) for path, entry in plain if entry.kind == "file"),
        empty=tuple(path for path, entry in plain if entry.kind == "folder" and not system.names(f"{real}/{path}")),
        links=tuple(path for path, entry in plain if entry.kind == "link"),
        odd=tuple(sorted({_odd_in(path) for path, _ in found if _CONTROL.search(path)})),
        manifests=tuple(folder or "." for folder in manifests),
        vouched=vouched,
        uses=tuple(find_uses(system, given.store, given.keep)),
        fetch=fetch,
        sent=sent,
    )


def _stored(path: str, found: Entry) -> StoredFile:
    return StoredFile(path, f"{found.device}:{found.inode}", found.links, found.size, found.blocks * BLOCK)


def _is_manifest(path: str, found: Entry) -> bool:
    return found.kind == "file" and path.rpartition("/")[2] == MANIFEST


def _vouched(folder: str, lines: Iterable[str]) -> dict[str, int]:
    fields = [line.split("\t") for line in lines]
    inside = f"{folder}/" if folder else ""
    return {inside + each[3]: int(each[0]) for each in fields if len(each) == 4 and _SIZE.fullmatch(each[0])}


def _odd_in(path: str) -> str:
    """Return the folder of the first name in a path that has a control character."""
    names = path.split("/")
    at = next(at for at, name in enumerate(names) if _CONTROL.search(name))
    return "/".join(names[:at])


def fetch_progress(system: System) -> str | None:
    """Return the progress of a fetch: the files of the store are about to change. None if none runs."""
    if unit_properties(system, FETCH_UNIT, "ActiveState").get("ActiveState") not in _RUNS:
        return None
    return _progress(system)


def _progress(system: System) -> str:
    """Return the first line of a fetch's progress. Its folder is the fetching user's: no link is followed."""
    path = f"{FETCH_RUN}/progress"
    found = system.entry(path)
    text = system.read(path) if found and found.kind == "file" else None
    return (text or "").split("\n")[0]


def prune(given: PruneInput, system: System) -> Outcome:
    """Remove unused items. Nothing is removed while models are fetched or adopted."""
    real = real_path(system, given.store)
    removals = Removals(system)
    with ExitStack() as locks:
        try:
            # The first is held while a fetch is begun, the second while arrived files are adopted.
            locks.enter_context(system.lock("fetch", 0, "removing models"))
            if (progress := fetch_progress(system)) is not None:
                return Outcome(busy=progress)
            locks.enter_context(system.lock("store", _STORE_SECONDS, "removing models"))
        except HeldError:
            return Outcome(busy=_progress(system))
        if real:
            empty_trash(system, real)
        for item in given.items:
            _remove_item(item, given, real, removals, system)
        for sha256 in given.parts if real else ():
            _remove_part(sha256, real, removals, system)
        for path in given.uploads:
            _remove_upload(path, removals, system)
    return removals.outcome


def _remove_item(item: Item, given: PruneInput, real: str, removals: Removals, system: System) -> None:
    """Remove a folder, or files in it, if nothing uses it."""
    if not real or not _is_there(item.folder, real, system):
        removals.record(item.folder, "it no longer exists")
        return
    if user := _user(item, given, system):
        removals.record(item.folder, f"{user} uses it")
        return
    gone = [f"{item.folder}/{name}" for name in item.files] or [item.folder]
    # First out of the list, so that none is missed.
    listed = not item.files or _unlist(f"{real}/{item.folder}", item.files, system)
    if listed and all(removals.discard(f"{real}/{path}", real) for path in gone):
        removals.record(item.folder)
    else:
        removals.record(item.folder, "it cannot be removed")
    for path in gone:
        _remove_empty_above(path, real, system)


def _is_there(folder: str, real: str, system: System) -> bool:
    """Return whether a folder is in the store itself: no link leads to it."""
    names = folder.split("/")
    paths = ["/".join((real, *names[: at + 1])) for at in range(len(names))]
    entries = [system.entry(path) for path in paths]
    plain = all(name not in ("", ".", "..") for name in names)
    return plain and all(found is not None and found.kind == "folder" for found in entries)


def _user(item: Item, given: PruneInput, system: System) -> str:
    """Return the user of a folder, or of a file in it that is not kept; empty if the folder is unused."""
    folder = f"{given.store}/{item.folder}"
    for use in find_uses(system, given.store, given.keep):
        if any(is_within(use.path, f"{folder}/{name}") for name in item.keep):
            continue
        if is_within(use.path, folder) or use.path == given.store:
            return use.name
    return ""


def _unlist(folder: str, names: Iterable[str], system: System) -> bool:
    """Take files out of a manifest. Its time stays: nothing else has changed for servers that use the others."""
    lines = manifest_lines(system, folder)
    if lines is None:
        return False
    try:
        write_manifest(system, folder, lines_without(lines, names), keep_time=True)
    except OSError:
        return False
    return True


def _remove_empty_above(path: str, real: str, system: System) -> None:
    """Remove the folders above a path that are empty now."""
    above = path.rpartition("/")[0]
    while above and system.run(["rmdir", "--", f"{real}/{above}"]).ok:
        above = above.rpartition("/")[0]


def _remove_part(sha256: str, real: str, removals: Removals, system: System) -> None:
    incoming = f"{real}/.incoming"
    try:
        for name in system.names(incoming):
            if name == sha256 or name.startswith(f"{sha256}."):
                system.remove(f"{incoming}/{name}")
    except OSError:
        removals.record(f".incoming/{sha256}", "it cannot be removed")
    else:
        removals.record(f".incoming/{sha256}")


def _remove_upload(path: str, removals: Removals, system: System) -> None:
    """Remove a file from the controller, unless it is being sent: the sender holds it. Root makes nothing here."""
    part = f"{path}.part"
    found = system.entry(part)
    holding = ["flock", "-n", part] if found and found.kind == "file" else []
    if system.run([*holding, "rm", "-f", "--", path, part], seconds=_REMOVE_SECONDS).ok:
        removals.record(path)
    else:
        removals.record(path, "it is being sent just now")


EVERY = 2.0
"""Seconds between reports of progress."""
_HASH_LOCK_SECONDS = 30


@dataclass(frozen=True)
class HashedFile:
    """A file, and its size if it is known."""

    folder: str
    name: str
    sha256: str
    size: int | None


@dataclass(frozen=True)
class HashInput:
    """The files to hash."""

    files: tuple[HashedFile, ...]


@dataclass(frozen=True)
class FileHash:
    """The state of a file: `found` is its sha256, its size, or why it cannot be read."""

    what: Literal["missing", "hashed", "sized", "unreadable"]
    found: str = ""
    dropped: bool = False
    """Whether its manifest no longer lists it."""


@dataclass(frozen=True)
class Hashes:
    """The states of the files, in the order of the input."""

    files: tuple[FileHash, ...]


def hash_files(given: HashInput, system: System) -> Hashes:
    """Hash files. Report progress as `at NUMBER BYTES OF`: the file, the bytes read, and the bytes of all files.

    Raise FailedError once the controller has closed the connection.
    """
    pid = str(os.getpid())
    system.run(["renice", "-n", "19", "-p", pid])
    system.run(["ionice", "-c", "3", "-p", pid])
    sizes = [_size(system, each) for each in given.files]
    found = []
    for number, file in enumerate(given.files):
        reading = Reading(system, number, sum(sizes[:number]), sum(sizes))
        found.append(_hash(system, file, reading))
    return Hashes(tuple(found))


def _size(system: System, file: HashedFile) -> int:
    found = system.entry(f"{file.folder}/{file.name}")
    return found.size if found else 0


class Reading:
    """Reports the progress of one file."""

    def __init__(self, system: System, number: int, before: int, total: int) -> None:
        self._system, self._number, self._before, self._total = system, number, before, total
        self._reported = -EVERY

    def read(self, done: int) -> None:
        """Report that so many bytes were read, every two seconds. Raise FailedError where the connection is closed."""
        now = self._system.now()
        if now - self._reported >= EVERY:
            self._reported = now
            self._system.report(f"at {self._number} {self._before + done} {self._total}")
            if not self._system.is_heard():
                raise FailedError("the connection ended while models were hashed")


def _hash(system: System, file: HashedFile, reading: Reading) -> FileHash:
    """Return the state of a file, and take it out of its manifest if it is damaged."""
    path = f"{file.folder}/{file.name}"
    before = system.entry(path)
    if before is None or before.kind != "file":
        return FileHash("missing")
    if file.size is not None and file.size != before.size:
        return FileHash("sized", str(before.size), dropped=_drop(system, file, before))
    reading.read(0)
    try:
        sha256 = system.hash(path, reading.read)
    except OSError as error:
        return FileHash("unreadable", error.strerror or str(error), dropped=_drop(system, file, before))
    return FileHash("hashed", sha256, dropped=sha256 != file.sha256 and _drop(system, file, before))


def _drop(system: System, file: HashedFile, before: Entry) -> bool:
    """Take a file out of its manifest, so that it is fetched again, unless it was replaced while it was read."""
    try:
        with system.lock("store", _HASH_LOCK_SECONDS, "checking models"):
            now = system.entry(f"{file.folder}/{file.name}")
            if now is None or (now.size, now.modified, now.inode) != (before.size, before.modified, before.inode):
                return False
            lines = manifest_lines(system, file.folder)
            if lines is not None:
                write_manifest(system, file.folder, lines_without(lines, [file.name]), keep_time=False)
    except (HeldError, OSError):
        return False
    return True


ADMIT_SECONDS = 10
"""Seconds that the run that has sent a file has to admit it to the store, before this run sends the file again."""
REPORT_SECONDS = 10
"""Seconds between two lines of progress. The controller gives up a host that is silent for as long as a login."""
_POLL_SECONDS = 1
_MB = 1_000_000
_FIX = "end the other run, and run the command again: the upload resumes"


@dataclass(frozen=True)
class ReceiveInput:
    """A file: where it arrives, and its bytes. Its name is its sha256."""

    path: str
    size: int
    admitted: tuple[str, ...]
    """The paths in the store where another run may have admitted the file."""
    standing: int
    """Seconds that another run may send no byte."""
    total: int
    """Seconds that another run may take in all."""


def receive(given: ReceiveInput, system: System) -> None:
    """Send the number of the first missing byte, and receive the file from this byte on. Raise FailedError.

    Send no number if the host has the file.
    """
    part = f"{given.path}.part"
    until = system.now() + given.total
    try:
        while True:
            with system.partial_file(part) as file:
                if _is_taken(file, given, until, system):
                    if _is_here(given, system):
                        system.remove(part)
                    else:
                        _resume(file, given, system)
                    return
            if _is_admitted_soon(given, until, system):
                return
    except OSError as error:
        raise cannot_write(error) from error


def _is_taken(file: PartialFile, given: ReceiveInput, until: float, system: System) -> bool:
    """Hold the lock of a partial file, and wait for another run as long as the file grows. Raise FailedError.

    Return False once another run has renamed or removed the file: then it must not be written to.
    """
    had, grew = -1, system.now()
    reported = grew - REPORT_SECONDS
    while file.is_in_place():
        if file.take():
            # The other run may have renamed it just before it released the lock.
            return file.is_in_place()
        now, size = system.now(), file.size()
        if size != had:
            had, grew = size, now
        if now - grew >= given.standing:
            message = f"another run sends this file to this host, and has sent nothing for {given.standing} s"
            raise FailedError(f"{message}: {size} of {given.size} bytes have arrived", _FIX)
        if now - reported >= REPORT_SECONDS:
            reported = now
            arrived = f"{size // _MB} of {given.size // _MB} MB have arrived"
            system.report(f"waiting for another run that sends this file: {arrived}")
        _pause(given, until, system)
    return False


def _is_admitted_soon(given: ReceiveInput, until: float, system: System) -> bool:
    """Return whether the run that has sent the file admits it. Raise FailedError."""
    for _ in range(ADMIT_SECONDS):
        if _is_here(given, system):
            return True
        _pause(given, until, system)
    return _is_here(given, system)


def _pause(given: ReceiveInput, until: float, system: System) -> None:
    """Wait a second. Raise FailedError at the end of the total, and if the controller has ended."""
    if system.now() >= until:
        limit = f"{given.total // 3600} h" if given.total >= 7200 else f"{given.total} s"
        raise FailedError(f"another run has not sent this file to this host within {limit}", _FIX)
    if system.next_line(_POLL_SECONDS) == "":
        raise FailedError("the connection ended while another run sent this file", "run the command again")


def _is_here(given: ReceiveInput, system: System) -> bool:
    """Return whether the whole file has arrived, or is in the store."""
    found = system.entry(given.path)
    arrived = found is not None and found.kind == "file" and found.size == given.size
    return arrived or any(_is_admitted(path, given, system) for path in given.admitted)


def _is_admitted(path: str, given: ReceiveInput, system: System) -> bool:
    """Return whether a path is a file of the store, as an inspection judges it."""
    folder, _, name = path.rpartition("/")
    found = system.entry(path)
    if found is None or not is_writable_by_root_only(found):
        return False
    if system.entry(f"{folder}/{MANIFEST}") is None:
        # The other run writes the manifest after it has moved the file.
        return found.size == given.size
    return is_vouched(system, folder, name, given.path.rpartition("/")[2])


def _resume(file: PartialFile, given: ReceiveInput, system: System) -> None:
    """Receive what is missing of a partial file, and give the file its name. Raise FailedError and OSError."""
    if file.size() > given.size:
        file.clear()
    system.send(file.size())
    file.receive()
    size = file.size()
    if size != given.size:
        message = f"only {size} of {given.size} bytes of {given.path} arrived"
        raise FailedError(message, "run the command again: the upload resumes")
    file.rename(given.path)


VERBS = {
    "inspect": Verb(StoreInput, inspect),
    "prune": Verb(PruneInput, prune),
    "hash": Verb(HashInput, hash_files),
    "receive": Verb(ReceiveInput, receive),
}
