"""The lock: its entries, each a moving name with its resolved value, and its file."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from llamaherd.diagnostics.findings import Finding, InventoryError, Place, Rule
from llamaherd.gguf.folder import CONFIG, FolderShape
from llamaherd.gguf.header import Header, spread, tensor_bytes
from llamaherd.inventory import yaml_file
from llamaherd.inventory.schema import Model
from llamaherd.inventory.yaml_file import NO_RIG, Document
from llamaherd.text.quoting import harmful
from llamaherd.text.terminal import MOST_HELP, one_line


def _shaped(pattern: str, sentence: str) -> AfterValidator:
    """Accept only strings that match all of `pattern`; otherwise fail with `sentence`."""
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text) or harmful(text):
            raise ValueError(sentence)
        return text

    return AfterValidator(check)


def _inside(path: str) -> str:
    # The hub names these paths and a host creates them: none may lead out of the model's own folder.
    if "\\" in path or any(part in ("", ".", "..") or part[0] == "-" for part in path.split("/")):
        raise ValueError("must be a path inside the repository, such as `UD-Q4_K_XL/model.gguf`")
    return path


OneLineText = Annotated[str, _shaped(r".+", "must be a text on one line")]
FilePath = Annotated[OneLineText, AfterValidator(_inside)]
Commit = Annotated[str, _shaped(r"[0-9a-f]{40}", "must be a full commit: 40 hex digits")]
Sha256 = Annotated[str, _shaped(r"[0-9a-f]{64}", "must be a sha256: 64 hex digits")]
Digest = Annotated[str, _shaped(r"sha256:[0-9a-f]{64}", "must be a digest: `sha256:` and 64 hex digits")]
Bytes = Annotated[int, Field(ge=0, strict=True)]
Repo = Annotated[
    str,
    _shaped(
        r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)?",
        "must be a repository, such as `owner/name`",
    ),
]
# `@`, `?` and `#` are refused: the text around them may be a secret, and locks are committed.
HubUrl = Annotated[
    str,
    _shaped(
        r"https?://[^\s/@?#'\"`\\{}]+(/[^\s@?#'\"`\\{}]*[^\s/@?#'\"`\\{}])?",
        "must be a plain URL, such as `https://hub.lan`",
    ),
]
# For the same reason: no password, and over http not even a user, who is often a token.
GitUrl = Annotated[
    str,
    _shaped(
        r"(?!-)(?!(?i:https?)://[^/]*@)(?![a-z+]+://[^/@]*:[^/]*@)[^\x00-\x20\x7f-\x9f]+",
        "must be a git URL without a password or token in it, such as `https://git.lan/llama.cpp`",
    ),
]
Image = Annotated[str, _shaped(r"[^\x00-\x20\x7f-\x9f@]+", "must be an image by its tag, such as `ghcr.io/a/b:v1`")]


ModelKey = tuple[str, str, str, str | None]
"""The declaration of a model of a hub: repository, revision, files, projector."""
ReleaseKey = tuple[str, str, str]
"""The git repository of an engine, the tag of a release, and the system of its archives."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)


class LockEntry(_Frozen):
    """One entry of a lock. In its section, no other entry has the same key."""

    @property
    @abstractmethod
    def key(self) -> tuple[str | None, ...]:
        """The declaration that it was resolved from."""

    @property
    def order(self) -> tuple[str, ...]:
        """The key by which the section is sorted."""
        return tuple(part or "" for part in self.key)


class LockedPage(_Frozen):
    """The archive of the web page that an engine is built with: its URL and sha256."""

    url: HubUrl
    sha256: Sha256


class LockedRef(LockEntry):
    """An engine's source as declared (git, ref), the commit of the ref, and the archive of the engine's page."""

    git: GitUrl
    ref: OneLineText
    commit: Commit
    page: LockedPage | None = None

    @property
    def key(self) -> tuple[str, str]:
        """The repository and the ref that it was resolved from."""
        return self.git, self.ref


class LockedReleaseFile(_Frozen):
    """An archive of a release: its URL, its sha256, its size in bytes."""

    url: HubUrl
    sha256: Sha256
    size: Bytes


class LockedRelease(LockEntry):
    """An engine's release as declared (git, release), the system that its archives are for, and the archives.

    `attested`: `gh` has verified that the authors' own workflow on GitHub built all of them.
    """

    git: GitUrl
    release: OneLineText
    system: OneLineText
    archives: Annotated[tuple[LockedReleaseFile, ...], Field(min_length=1, max_length=4)]
    attested: bool = False

    @property
    def key(self) -> ReleaseKey:
        """The repository, the release and the system that it was resolved from."""
        return self.git, self.release, self.system

    @property
    def size(self) -> int:
        """The size of all archives together, in bytes."""
        return sum(each.size for each in self.archives)


class LockedImage(LockEntry):
    """An image as declared, and the digest of its tag."""

    image: Image
    digest: Digest

    @property
    def key(self) -> tuple[str]:
        """The image as declared."""
        return (self.image,)


class LockedFile(_Frozen):
    """One file of a model: its path in the repository, its size, its sha256, where its tensors begin. In bytes."""

    path: FilePath
    size: Bytes
    sha256: Sha256
    data_offset: Bytes | None = None


class LockedModel(LockEntry):
    """A model as declared (repo, revision, files, mmproj), its resolved values (commit, endpoint, files), its header.

    `projector` is the file that `mmproj` names. A folder for vLLM has a `shape` in place of a header.
    """

    repo: Repo
    revision: OneLineText
    files: OneLineText
    mmproj: OneLineText | None = None
    commit: Commit
    endpoint: HubUrl
    shards: Annotated[tuple[LockedFile, ...], Field(min_length=1)]
    projector: LockedFile | None = None
    header: Header | None = None
    shape: FolderShape | None = None

    @field_validator("shards")
    @classmethod
    def _ordered(cls, shards: tuple[LockedFile, ...]) -> tuple[LockedFile, ...]:
        _refuse_twice(shard.path for shard in shards)
        return tuple(sorted(shards, key=lambda shard: shard.path))

    @model_validator(mode="after")
    def _with_its_projector(self) -> LockedModel:
        if (self.mmproj is None) != (self.projector is None):
            raise ValueError("`mmproj` and `projector` go together")
        if self.projector and self.projector.path in {shard.path for shard in self.shards}:
            raise ValueError(f"`{self.projector.path}` is both a shard and the projector")
        return self

    @property
    def size(self) -> int:
        """The size of all shards together, in bytes."""
        return sum(shard.size for shard in self.shards)

    @property
    def key(self) -> ModelKey:
        """The declaration that it was resolved from."""
        return self.repo, self.revision, self.files, self.mmproj

    @property
    def lacks_shape(self) -> bool:
        """Return whether it was locked before shapes were."""
        return self.shape is None and any(shard.path == CONFIG for shard in self.shards)

    @property
    def is_gguf(self) -> bool:
        """Return whether its files have a header that sizing can use."""
        return all(shard.path.endswith(".gguf") for shard in self.shards)

    def url(self, shard: LockedFile) -> str:
        """Return the URL of `shard`, at the locked commit."""
        return f"{self.endpoint}/{self.repo}/resolve/{self.commit}/{quote(shard.path)}"


class LockedLocal(LockEntry):
    """A model in a file of the controller: its sha256, its size and where its tensors begin in bytes, its header.

    `file` is its path, from the folder of the lock or as `~/…` if possible. Entries of older versions have none.
    """

    file: OneLineText | None = None
    sha256: Sha256
    size: Bytes
    data_offset: Bytes
    header: Header

    @property
    def key(self) -> tuple[str]:
        """The file, or the hash of an unnamed one."""
        return (self.file or self.sha256,)

    @property
    def order(self) -> tuple[str, ...]:
        """The key by which the section is sorted: entries without a file come first."""
        return self.file or "", self.sha256


class LockedArchive(LockEntry):
    """The archive of an engine's source, by its URL or its path as in LockedLocal: its sha256, its size in bytes."""

    archive: OneLineText
    sha256: Sha256
    size: Bytes

    @property
    def key(self) -> tuple[str]:
        """The archive as declared."""
        return (self.archive,)


class Lock(_Frozen):
    """Everything that is resolved. Every section has the order of the declarations."""

    version: Literal[2] = 2
    engines: tuple[LockedRef, ...] = ()
    images: tuple[LockedImage, ...] = ()
    models: tuple[LockedModel, ...] = ()
    files: tuple[LockedLocal, ...] = ()
    archives: tuple[LockedArchive, ...] = ()
    releases: tuple[LockedRelease, ...] = ()

    @field_validator("engines", "images", "models", "files", "archives", "releases")
    @classmethod
    def _ordered(cls, entries: tuple[LockEntry, ...]) -> tuple[LockEntry, ...]:
        _refuse_twice(" ".join(filter(None, each.key)) for each in entries)
        return tuple(sorted(entries, key=lambda each: each.order))

    def find(self, repo: str, revision: str, files: str, mmproj: str | None = None) -> LockedModel | None:
        """Return the model with exactly this declaration, if it is locked."""
        return next((model for model in self.models if model.key == (repo, revision, files, mmproj)), None)

    def model(self, declared: Model) -> LockedModel | None:
        """Return a model of a hub as declared, if it is locked."""
        return self.find(declared.hf, declared.revision, declared.files, declared.mmproj) if declared.hf else None

    def ref(self, git: str, ref: str) -> LockedRef | None:
        """Return the entry of a ref of a git repository."""
        return next((each for each in self.engines if each.key == (git, ref)), None)

    def commit(self, git: str, ref: str) -> str | None:
        """Return the commit that a ref of a git repository is locked at."""
        locked = self.ref(git, ref)
        return locked.commit if locked else None

    def digest(self, image: str) -> str | None:
        """Return the digest that an image, named as declared, is locked at: `sha256:…`."""
        return next((each.digest for each in self.images if each.image == image), None)

    def release(self, key: ReleaseKey) -> LockedRelease | None:
        """Return the entry of an engine's release for a system."""
        return next((each for each in self.releases if each.key == key), None)

    def local(self, sha256: str) -> LockedLocal | None:
        """Return the entry of a file of the controller with this hash."""
        return next((each for each in self.files if each.sha256 == sha256), None)

    def local_file(self, name: str) -> LockedLocal | None:
        """Return the entry of the controller's file with this name."""
        return next((each for each in self.files if each.file == name), None)

    def file_hash(self, name: str) -> str | None:
        """Return the locked sha256 of the controller's file with this name."""
        found = self.local_file(name)
        return found.sha256 if found else None

    def archive_hash(self, name: str) -> str | None:
        """Return the locked sha256 of the archive with this name."""
        return next((each.sha256 for each in self.archives if each.archive == name), None)

    def header(self, model: Model) -> Header | None:
        """Return the header of a model as declared, if it is locked with one."""
        if model.hf is None:
            local = self.local(str(model.sha256))
            return local.header if local else None
        locked = self.model(model)
        return locked.header if locked else None

    def shape(self, model: Model) -> FolderShape | None:
        """Return the shape of a model of safetensors as declared, if it is locked with one."""
        locked = self.model(model)
        return locked.shape if locked else None

    def projector_size(self, model: Model) -> int | None:
        """Return the bytes of a model's vision projector, if it has one and that is locked."""
        locked = self.model(model)
        return locked.projector.size if locked and locked.projector else None


def _refuse_twice(names: Iterable[str]) -> None:
    earlier = set()
    for name in names:
        if name in earlier:
            raise ValueError(f"`{name}` is locked twice")
        earlier.add(name)


# Each tensor begins at a multiple of the file's alignment: 32 by default, and no writer goes beyond a page.
_MOST_PADDING = 4096


def contradiction(files: Sequence[LockedFile | LockedLocal], header: Header) -> str | None:
    """Describe what is wrong with the sizes of a model's files, in one sentence; None if they are possible."""
    tensors = weights = 0
    for group in header.tensors:
        layers = len(spread(group.layers)) if group.layers else 1
        weights += tensor_bytes(group.type, group.shape) * layers
        tensors += layers
    size = sum(file.size for file in files)
    if any(file.data_offset is None for file in files):
        least, most = weights, None
    else:
        least = weights + sum(file.data_offset or 0 for file in files)
        most = least + tensors * _MOST_PADDING
    if size < least:
        return f"its files have {size} bytes in all, and its header and tensors alone take {least}"
    if most is not None and size > most:
        return f"its files have {size} bytes in all, and its header and tensors take no more than {most}"
    return None


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
def lock_held(path: Path, report: Callable[[str], None], patience: float = HOLD_SECONDS) -> Iterator[None]:
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
        _wait_for_lock(handle, folder, path, report, patience)
        yield
    finally:
        # Closing it lets other runs in, as does the end of this process, however it comes.
        os.close(handle)


def _wait_for_lock(handle: int, folder: Path, path: Path, report: Callable[[str], None], patience: float) -> None:
    reported, until = False, time.monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                # Network filesystems lock files that are open for writing, or nothing at all.
                report(f"{folder} is on a filesystem without locks: run no other `herd lock` there at the same time")
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
            report(f"another `herd lock` is running in {folder}: waiting for it")
            reported = True
        time.sleep(_RETRY_SECONDS)
