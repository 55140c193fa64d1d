"""The lock as a file: read with places for errors, written in one atomic step, locked against other runs."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from llamaherd.diagnostics.findings import Finding, InventoryError, Place, Rule
from llamaherd.inventory import yaml_file
from llamaherd.inventory.yaml_file import NO_RIG, Document
from llamaherd.lock.entries import Lock, contradiction
from llamaherd.text.terminal import MOST_HELP, one_line

VERSION = 2
HEADER = """\
# Written by `herd lock`; commit it, and review it like code.
# Same inventory and same lock: same rig. To move one thing to what is newest now: `herd lock --upgrade NAME`.
"""
_MOST_BYTES, _MOST_NODES = 3 << 20, 200_000
"""The most of a lock: a model of a hundred layers takes some 10 kB and 500 values."""
_FIX = "restore the last good one from version control, or delete it and run `herd lock`"


BAD_LOCK = Rule(
    "LH030",
    "The lock cannot be used.",
    why="`herd.lock` is damaged, was edited, or was written by a newer llamaherd.",
    example="""
    $ herd plan
    /home/tom/fleet/herd.lock:9:3: error LH030: `models.0.commit`: must be a full commit: 40 hex digits
    """,
    language="console",
    fix="""
    restore the last good one from version control. Or delete it and run `herd lock`: it resolves everything anew, to
    newer revisions where there are some.
    """,
)


class LockError(Exception):
    """The lock file cannot be used: its rule, the place, one sentence, and a fix."""

    def __init__(self, place: Place, message: str, fix: str = _FIX, rule: Rule = BAD_LOCK) -> None:
        self.place = place
        self.message = one_line(message)
        self.help = one_line(fix, MOST_HELP)
        self.rule = rule
        super().__init__(f"{place}: {self.message}\n  help: {self.help}")

    @property
    def finding(self) -> Finding:
        """The same as a finding."""
        return self.rule.at(self.place, self.message, self.help)


def read_lock_file(path: Path) -> Lock:
    """Return the lock in the file at `path`; an empty one if there is no file. Raise LockError (LH030, LH032).

    A lock of version 1 is read as well: it has models without headers, and nothing else.
    """
    if not path.exists():
        return Lock()
    try:
        document = yaml_file.read_yaml(path, _MOST_BYTES, _MOST_NODES)
    except InventoryError as error:
        finding = error.findings[0]
        message = "this file holds no lock" if finding.code == NO_RIG.code else finding.message
        raise LockError(finding.place, message) from None
    version = document.data.get("version")
    if isinstance(version, int) and version > VERSION:
        raise LockError(
            document.value(("version",)),
            f"this lock has version {version}; this llamaherd reads version {VERSION}",
            "use the llamaherd that wrote it, or a newer one",
        )
    if "version" not in document.data:
        raise LockError(Place(path), "`version` is missing")
    known = document.data | {"version": VERSION} if version == 1 else document.data
    try:
        lock = Lock.model_validate(known)
    except ValidationError as error:
        # A misspelt key is both unknown and missing; the unknown one has a place to show.
        details = min(error.errors(include_url=False), key=lambda each: each["type"] == "missing")
        raise LockError(document.value(details["loc"]), _sentence(details)) from None
    _refuse_contradictions(lock, document)
    return lock


def dumps(lock: Lock) -> str:
    """Return the lock as YAML text: same lock, same bytes."""
    data = {key: value for key, value in lock.model_dump(mode="json", exclude_none=True).items() if value}
    for entry in (*data.get("models", ()), *data.get("files", ())):
        if header := entry.get("header"):
            header["tensors"] = [_OneLine(group) for group in header["tensors"]]
    body = yaml.dump(
        data,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        # One value a line, however long, so that a diff shows only the changes.
        width=2**31,
    )
    return HEADER + body


def write_lock(path: Path, lock: Lock) -> bool:
    """Write the lock to `path` in one atomic step; return whether that changed the file. Raise LockError."""
    data = dumps(lock).encode()
    # Through a link, the file that it leads to is replaced rather than the link.
    target = path.resolve()
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        if target.exists() and target.read_bytes() == data:
            return False
        try:
            with part.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise LockError(Place(path), f"cannot write the lock: {reason}", "check the folder and its mode") from None
    return True


class _OneLine(dict[str, Any]):
    """A mapping that is written on one line."""


class _Dumper(yaml_file.Dumper):
    """Block style, but for arrays of numbers and tensors: one line each."""


def _mapping(dumper: _Dumper, value: _OneLine) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", value, flow_style=True)


def _list(dumper: _Dumper, value: list[Any]) -> yaml.Node:
    plain = not any(isinstance(entry, dict) for entry in value)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=plain)


_Dumper.add_representer(_OneLine, _mapping)
_Dumper.add_representer(list, _list)


def _refuse_contradictions(lock: Lock, document: Document) -> None:
    """Refuse impossible sizes, which may have been edited: memory and downloads are calculated from them."""
    # The file's own order may be another than the lock's.
    models: list[dict[str, str]] = document.data.get("models") or []
    for index, each in enumerate(models):
        model = lock.find(each["repo"], each["revision"], each["files"], each.get("mmproj"))
        if model and model.header and (problem := contradiction(model.shards, model.header)):
            raise _contradicted(document.value(("models", index, "shards")), f"{model.repo}, {model.files}", problem)
    files: list[dict[str, str]] = document.data.get("files") or []
    for index, each in enumerate(files):
        local = lock.local_file(each["file"]) if each.get("file") else lock.local(each["sha256"])
        if local and (problem := contradiction((local,), local.header)):
            name = local.file or f"file {local.sha256[:12]}…"
            raise _contradicted(document.value(("files", index, "size")), name, problem)


CONTRADICTED = Rule(
    "LH032",
    "The lock contradicts itself.",
    why="""
    A model's files are smaller than its header and tensors, or larger than those can be. Sizes come from the hub, and
    tensors from the files' own headers. So one of them was edited, or parts of two locks were combined. Downloads and
    memory are calculated from both.
    """,
    example="""
    $ herd plan
    fleet/herd.lock:14:3: error LH032: …: its files have 172 MB in all, and its header and tensors alone take 17 GB
      help: restore the entry from version control, or delete it and run `herd lock`
    """,
    language="console",
    fix="restore the entry from version control. Or delete it and run `herd lock`.",
)


def _contradicted(place: Place, what: str, problem: str) -> LockError:
    fix = "restore the entry from version control, or delete it and run `herd lock`"
    return LockError(place, f"{what}: {problem}", fix, CONTRADICTED)


def _sentence(details: ErrorDetails) -> str:
    field = ".".join(str(part) for part in details["loc"])
    if details["type"] == "missing":
        return f"`{field}` is missing"
    if details["type"] == "extra_forbidden":
        return f"`{field}` is not a key of a lock"
    problem = details["msg"].removeprefix("Value error, ")
    return f"`{field}`: {problem[0].lower()}{problem[1:]}"


HOLD_SECONDS = 600.0
"""Seconds; to lock a large fleet over a slow line takes minutes."""
_RETRY_SECONDS = 0.1  # seconds between two tries


@contextmanager
def lock_held(path: Path, say: Callable[[str], None], patience: float = HOLD_SECONDS) -> Iterator[None]:
    """Keep other runs out of the folder of a lock; wait for a running one, and print that. Raise LockError (LH030).

    The folder itself is locked, which leaves no file behind and works in a read-only folder.
    """
    folder = path.resolve().parent
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise LockError(
            Place(path), f"{folder} cannot be opened: {error.strerror}", "check the folder and its mode"
        ) from None
    try:
        _wait_for_lock(handle, folder, path, say, patience)
        yield
    finally:
        # Closing it lets other runs in, as does the end of this process, however it comes.
        os.close(handle)


def _wait_for_lock(handle: int, folder: Path, path: Path, say: Callable[[str], None], patience: float) -> None:
    reported, until = False, time.monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                # Network filesystems lock files that are open for writing, or nothing at all.
                say(f"{folder} is on a filesystem without locks: run no other `herd lock` there at the same time")
                return
        else:
            return
        if time.monotonic() > until:
            raise LockError(
                Place(path),
                f"another `herd lock` has been running in {folder} for {patience:.0f} s",
                f"check why it waits, or end it: `fuser -v {folder}` lists it",
            )
        if not reported:
            say(f"another `herd lock` is running in {folder}: waiting for it")
            reported = True
        time.sleep(_RETRY_SECONDS)
