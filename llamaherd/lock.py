"""The lock: every moving name of the inventory, resolved once and written down for review."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from llamaherd import yamlfile
from llamaherd.findings import InventoryError, Place

HEADER = """\
# Written by `herd lock`; commit it, and review it like code.
# Same inventory and same lock: same rig. To move a model to a newer commit, delete its entry and run `herd lock`.
"""
_WAY_OUT = "run `herd lock` to write it anew, or take the last good one back from version control"


class LockError(Exception):
    """The lock file cannot be used: where, one sentence, and a way out."""

    def __init__(self, place: Place, message: str, way_out: str = _WAY_OUT) -> None:
        self.place = place
        self.message = message
        self.help = way_out
        super().__init__(f"{place}: {message}\n  help: {way_out}")


def _shaped(pattern: str, sentence: str) -> AfterValidator:
    """Accept only strings that match all of `pattern`; otherwise say `sentence`."""
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(sentence)
        return text

    return AfterValidator(check)


def _inside(path: str) -> str:
    # The hub names these paths and a host creates them: none may lead out of the model's own folder.
    if "\\" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError("must be a path inside the repository, such as `UD-Q4_K_XL/model.gguf`")
    return path


Text = Annotated[str, _shaped(r"[^\x00-\x1f\x7f-\x9f]+", "must be a text on one line")]
FilePath = Annotated[Text, AfterValidator(_inside)]
Commit = Annotated[str, _shaped(r"[0-9a-f]{40}", "must be a full commit: 40 hex digits")]
Sha256 = Annotated[str, _shaped(r"[0-9a-f]{64}", "must be a sha256: 64 hex digits")]
Repo = Annotated[
    str,
    _shaped(
        r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)?",
        "must be a repository, such as `owner/name`",
    ),
]
# `@`, `?` and `#` are refused: what stands beside them may be a secret, and locks are committed.
Endpoint = Annotated[
    str,
    _shaped(r"https?://[^\s/@?#]+(/[^\s@?#]*[^\s/@?#])?", "must be a plain URL, such as `https://hub.lan`"),
]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LockedFile(_Frozen):
    """One file of a model: its path in the repository, its size in bytes, its sha256."""

    path: FilePath
    size: Annotated[int, Field(ge=0, strict=True)]
    sha256: Sha256


class LockedModel(_Frozen):
    """A model as declared (repo, revision, files) and what that stands for (commit, endpoint, shards)."""

    repo: Repo
    revision: Text
    files: Text
    commit: Commit
    endpoint: Endpoint
    shards: Annotated[tuple[LockedFile, ...], Field(min_length=1)]

    @field_validator("shards")
    @classmethod
    def _ordered(cls, shards: tuple[LockedFile, ...]) -> tuple[LockedFile, ...]:
        _refuse_twice(shard.path for shard in shards)
        return tuple(sorted(shards, key=lambda shard: shard.path))

    @property
    def size(self) -> int:
        """All shards together, in bytes."""
        return sum(shard.size for shard in self.shards)

    def url(self, shard: LockedFile) -> str:
        """Where `shard` is fetched from, at the locked commit."""
        return f"{self.endpoint}/{self.repo}/resolve/{self.commit}/{quote(shard.path)}"


class Lock(_Frozen):
    """All that was resolved; models stand in the order of repo, revision and files."""

    version: Literal[1] = 1
    models: tuple[LockedModel, ...] = ()

    @field_validator("models")
    @classmethod
    def _ordered(cls, models: tuple[LockedModel, ...]) -> tuple[LockedModel, ...]:
        _refuse_twice(f"{model.repo} {model.revision} {model.files}" for model in models)
        return tuple(sorted(models, key=lambda model: (model.repo, model.revision, model.files)))

    def find(self, repo: str, revision: str, files: str) -> LockedModel | None:
        """The model declared with exactly these three, if it is locked."""
        for model in self.models:
            if (model.repo, model.revision, model.files) == (repo, revision, files):
                return model
        return None


def read(path: Path) -> Lock:
    """The lock in the file at `path`; an empty one where there is no file. Raises LockError."""
    if not path.exists():
        return Lock()
    try:
        document = yamlfile.read(path)
    except InventoryError as error:
        finding = error.findings[0]
        message = "this file holds no lock" if finding.code == "LH002" else finding.message
        raise LockError(finding.place, message) from None
    version = document.data.get("version")
    if isinstance(version, int) and version > 1:
        raise LockError(
            document.value(("version",)),
            f"this lock has version {version}; this llamaherd reads version 1",
            "use the llamaherd that wrote it, or a newer one",
        )
    if "version" not in document.data:
        raise LockError(Place(path), "`version` is missing")
    try:
        return Lock.model_validate(document.data)
    except ValidationError as error:
        # A misspelt key is both unknown and missing; the unknown one has a place to show.
        details = min(error.errors(include_url=False), key=lambda each: each["type"] == "missing")
        raise LockError(document.value(details["loc"]), _sentence(details)) from None


def dumps(lock: Lock) -> str:
    """The lock as YAML text: same lock, same bytes."""
    body = yaml.safe_dump(
        lock.model_dump(mode="json"),
        sort_keys=False,
        allow_unicode=True,
        # One value a line, however long, so that a diff shows what changed and nothing else.
        width=2**31,
    )
    return HEADER + body


def write(path: Path, lock: Lock) -> bool:
    """Put the lock at `path` in one atomic step; True if that changed the file. Raises LockError."""
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


def _refuse_twice(names: Iterable[str]) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise ValueError(f"`{name}` is locked twice")
        seen.add(name)


def _sentence(details: ErrorDetails) -> str:
    field = ".".join(str(part) for part in details["loc"])
    if details["type"] == "missing":
        return f"`{field}` is missing"
    if details["type"] == "extra_forbidden":
        return f"`{field}` is no key of a lock"
    problem = details["msg"].removeprefix("Value error, ")
    return f"`{field}`: {problem[0].lower()}{problem[1:]}"
