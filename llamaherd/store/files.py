"""The files of planned models in a host's store: which are missing, and which have another hash."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from llamaherd.host.protocol import UnexpectedLineError, query_verb
from llamaherd.host.remote import Patience, Remote
from llamaherd.host.state import HostState
from llamaherd.host.time_limits import hash_seconds
from llamaherd.onhost.store import FileHash, HashedFile, Hashes, HashInput
from llamaherd.plan import ModelFile, ModelPlan, Plan


def missing_files(model: ModelPlan, state: HostState) -> list[ModelFile]:
    """Return the files of a model that are not in the store, or have changed since they were verified."""
    verified, stored = state.models.verified.get(model.folder, {}), state.models.stored.get(model.folder, {})

    def whole(file: ModelFile) -> bool:
        size, written, sha256 = verified.get(file.name, (-1, 0.0, ""))
        size_now, written_now = stored.get(file.name, (-2, 0.0))
        return sha256 == file.sha256 and size == size_now and abs(written - written_now) < 1e-3

    return [file for file in model.files if not whole(file)]


FileStatus = Literal["ok", "damaged", "missing"]

SILENCE_SECONDS = 120
"""It reports its progress every two seconds, unless the host hangs."""
_PROGRESS = re.compile(r"at ([0-9]{1,9}) ([0-9]{1,18}) ([0-9]{1,18})")


@dataclass(frozen=True)
class FileCheck:
    """One file and its problem, if it has one. `dropped`: its manifest no longer lists its hash."""

    name: str
    status: FileStatus
    detail: str = ""
    dropped: bool = False


@dataclass(frozen=True)
class ModelCheck:
    """One model's files."""

    name: str
    folder: str
    files: tuple[FileCheck, ...]

    @property
    def ok(self) -> bool:
        """Return whether every file is intact."""
        return all(file.status == "ok" for file in self.files)

    def as_json(self) -> dict[str, Any]:
        """Return the model as plain JSON values."""
        return asdict(self) | {"ok": self.ok}


@dataclass(frozen=True)
class HashProgress:
    """The progress of hashing: bytes of all existing files, and the file that is being read."""

    done: int
    total: int
    name: str


FileKey = tuple[str, str]
"""A file of the store: its model's folder and its name."""


def check_hashes(plan: Plan, remote: Remote, tell: Callable[[HashProgress], None]) -> tuple[ModelCheck, ...]:
    """Hash every file of the plan's models on the rig's host. Raise RemoteError if that fails."""
    wanted = files_once(plan)
    names = [name for _, name in wanted]

    def report(line: str) -> None:
        progress = progress_of(line, names)
        if progress:
            tell(progress)

    # A disk that hangs ends it by silence: the host reports its progress every two seconds.
    patience = Patience(SILENCE_SECONDS, hash_seconds(file.size for file in wanted.values()), "hashing its models")
    hashes = query_verb(remote, "llamaherd.store.hash", hash_input(wanted), Hashes, patience, report)
    checks = checks_of(wanted, hashes)
    return tuple(
        ModelCheck(model.name, model.folder, tuple(checks[model.folder, file.name] for file in model.files))
        for model in plan.models
    )


def files_once(plan: Plan) -> dict[FileKey, ModelFile]:
    """Return every file of the plan's models, each once: two models may have one."""
    return {(model.folder, file.name): file for model in plan.models for file in model.files}


def hash_input(wanted: Mapping[FileKey, ModelFile]) -> HashInput:
    """Return the input that hashes files."""
    return HashInput(tuple(HashedFile(folder, name, file.sha256, file.size) for (folder, name), file in wanted.items()))


def progress_of(line: str, names: Sequence[str]) -> HashProgress | None:
    """Return the progress that a host reports in a line; None if the line reports something else."""
    found = _PROGRESS.fullmatch(line)
    if not found or int(found[1]) >= len(names):
        return None
    return HashProgress(int(found[2]), int(found[3]), names[int(found[1])])


def checks_of(wanted: Mapping[FileKey, ModelFile], hashes: Hashes) -> dict[FileKey, FileCheck]:
    """Return the problems of files. Raise UnexpectedLineError if the host returns more or fewer of them."""
    if len(hashes.files) != len(wanted):
        raise UnexpectedLineError(f"{len(hashes.files)} hashes of {len(wanted)} files")
    return {
        (folder, name): FileCheck(name, *_compare_file(file, each), dropped=each.dropped)
        for ((folder, name), file), each in zip(wanted.items(), hashes.files, strict=True)
    }


def _compare_file(file: ModelFile, found: FileHash) -> tuple[FileStatus, str]:
    """Return the status of a file, and how it differs from its declaration."""
    match found.what:
        case "hashed" if found.found == file.sha256:
            return "ok", ""
        case "hashed":
            return "damaged", f"its sha256 is {found.found}, declared is {file.sha256}"
        case "sized":
            return "damaged", f"it has {found.found} bytes, the lock has {file.size}"
        case "unreadable":
            return "damaged", f"it cannot be read: {found.found}; is the disk failing?"
        case "missing":
            return "missing", "it does not exist"
