"""The entries of a lock: every moving name as declared, and its resolved value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, Protocol
from urllib.parse import quote

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from llamaherd.gguf.folder import CONFIG, FolderShape
from llamaherd.gguf.header import Header, spread, tensor_bytes
from llamaherd.inventory.schema import Model
from llamaherd.text.characters import harmful


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


class LockedPage(_Frozen):
    """The archive of the web page that an engine is built with: its URL and sha256."""

    url: HubUrl
    sha256: Sha256


class LockedRef(_Frozen):
    """An engine's source as declared (git, ref), the commit of the ref, and the archive of the engine's page."""

    git: GitUrl
    ref: OneLineText
    commit: Commit
    page: LockedPage | None = None


class LockedReleaseFile(_Frozen):
    """An archive of a release: its URL, its sha256, its size in bytes."""

    url: HubUrl
    sha256: Sha256
    size: Bytes


class LockedRelease(_Frozen):
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


class LockedImage(_Frozen):
    """An image as declared, and the digest of its tag."""

    image: Image
    digest: Digest


class LockedFile(_Frozen):
    """One file of a model: its path in the repository, its size, its sha256, where its tensors begin. In bytes."""

    path: FilePath
    size: Bytes
    sha256: Sha256
    data_offset: Bytes | None = None


class LockedModel(_Frozen):
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


class LockedLocal(_Frozen):
    """A model in a file of the controller: its sha256, its size and where its tensors begin in bytes, its header.

    `file` is its path, from the folder of the lock or as `~/…` if possible. Entries of older versions have none.
    """

    file: OneLineText | None = None
    sha256: Sha256
    size: Bytes
    data_offset: Bytes
    header: Header


class LockedArchive(_Frozen):
    """The archive of an engine's source, by its URL or its path as in LockedLocal: its sha256, its size in bytes."""

    archive: OneLineText
    sha256: Sha256
    size: Bytes


class Lock(_Frozen):
    """Everything that is resolved. Every section has the order of the declarations."""

    version: Literal[2] = 2
    engines: tuple[LockedRef, ...] = ()
    images: tuple[LockedImage, ...] = ()
    models: tuple[LockedModel, ...] = ()
    files: tuple[LockedLocal, ...] = ()
    archives: tuple[LockedArchive, ...] = ()
    releases: tuple[LockedRelease, ...] = ()

    @field_validator("engines")
    @classmethod
    def _engines_ordered(cls, engines: tuple[LockedRef, ...]) -> tuple[LockedRef, ...]:
        _refuse_twice(f"{engine.git} {engine.ref}" for engine in engines)
        return tuple(sorted(engines, key=lambda engine: (engine.git, engine.ref)))

    @field_validator("images")
    @classmethod
    def _images_ordered(cls, images: tuple[LockedImage, ...]) -> tuple[LockedImage, ...]:
        _refuse_twice(image.image for image in images)
        return tuple(sorted(images, key=lambda image: image.image))

    @field_validator("models")
    @classmethod
    def _models_ordered(cls, models: tuple[LockedModel, ...]) -> tuple[LockedModel, ...]:
        _refuse_twice(" ".join(filter(None, model.key)) for model in models)
        return tuple(sorted(models, key=lambda model: tuple(part or "" for part in model.key)))

    @field_validator("files")
    @classmethod
    def _files_ordered(cls, files: tuple[LockedLocal, ...]) -> tuple[LockedLocal, ...]:
        _refuse_twice(file.file or file.sha256 for file in files)
        return tuple(sorted(files, key=lambda file: (file.file or "", file.sha256)))

    @field_validator("archives")
    @classmethod
    def _archives_ordered(cls, archives: tuple[LockedArchive, ...]) -> tuple[LockedArchive, ...]:
        _refuse_twice(each.archive for each in archives)
        return tuple(sorted(archives, key=lambda each: each.archive))

    @field_validator("releases")
    @classmethod
    def _releases_ordered(cls, releases: tuple[LockedRelease, ...]) -> tuple[LockedRelease, ...]:
        _refuse_twice(" ".join(each.key) for each in releases)
        return tuple(sorted(releases, key=lambda each: each.key))

    def find(self, repo: str, revision: str, files: str, mmproj: str | None = None) -> LockedModel | None:
        """Return the model with exactly this declaration, if it is locked."""
        return next((model for model in self.models if model.key == (repo, revision, files, mmproj)), None)

    def model(self, declared: Model) -> LockedModel | None:
        """Return a model of a hub as declared, if it is locked."""
        return self.find(declared.hf, declared.revision, declared.files, declared.mmproj) if declared.hf else None

    def ref(self, git: str, ref: str) -> LockedRef | None:
        """Return the entry of a ref of a git repository."""
        return next((each for each in self.engines if (each.git, each.ref) == (git, ref)), None)

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


class SizedFile(Protocol):
    """A file of a model; both in bytes."""

    @property
    def size(self) -> int: ...

    @property
    def data_offset(self) -> int | None: ...


def contradiction(files: Sequence[SizedFile], header: Header) -> str | None:
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
