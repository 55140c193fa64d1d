"""The software of a rig: engines, and the models that they serve."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, StringConstraints, ValidationInfo, field_validator, model_validator

from llamaherd.inventory.schema.base import Commit, Declared, LocalPath, Sha256, beside_inventory, wrong
from llamaherd.text.quoting import Line, Plain, TextLines, one_line

EngineKind = Literal["llama.cpp", "ik_llama.cpp", "vllm"]

UPSTREAM: dict[str, str] = {
    "llama.cpp": "https://github.com/ggml-org/llama.cpp",
    "ik_llama.cpp": "https://github.com/ikawrakow/ik_llama.cpp",
}
"""The repository of each engine's authors."""
RELEASED = frozenset({"llama.cpp"})
"""The engines whose authors publish programs for Linux, built with and without CUDA, as releases on GitHub."""
PUBLISHED: dict[str, str] = {"vllm": "vllm/vllm-openai:v0.33.0"}
"""The image of each engine that is not built on hosts."""


OptionName = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")]
Given = Annotated[Line, StringConstraints(min_length=1)]
# An argument of git's and of docker's must not begin as an option does.
GitUrl = Annotated[Line, StringConstraints(pattern=r"^[^\s-]\S*$")]
Image = Annotated[Line, StringConstraints(pattern=r"^[A-Za-z0-9\[][A-Za-z0-9._/:@\[\]-]*$")]
Repo = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*$")]


def by_digest(image: str) -> bool:
    """Return whether an image is given by digest, which never changes."""
    return re.search(r"@sha256:[0-9a-f]{64}$", image) is not None


class Version(Declared):
    """The version of an archive: llama.cpp reads it from git otherwise."""

    number: Annotated[int, Field(ge=0, le=10**9)]
    """llama.cpp's build number."""
    commit: Annotated[str, StringConstraints(pattern=r"^[0-9a-zA-Z._-]+$")] = "unknown"
    """The commit in the version."""


class Source(Declared):
    """The source of an engine: a git URL at a commit or a ref that the lock pins, or an archive."""

    git: GitUrl | None = None
    """The git repository from which the host fetches."""
    commit: Commit | None = None
    """The commit, with all 40 digits."""
    ref: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")] | None = None
    """Or a tag or branch, which `herd lock` resolves to a commit."""
    archive: Line | None = None
    """Or a tar archive: a URL, or a file of this machine."""
    sha256: Sha256 | None = None
    """The archive's hash. Without it, the lock has the hash."""
    folder: Line = ""
    """The folder of `CMakeLists.txt` in the source."""
    overlay: dict[Line, TextLines] = Field(default_factory=dict)
    """Files to write into `folder` before the build: path and text."""
    version: Version | None = None
    """The version that the build reports."""

    @field_validator("archive", mode="before")
    @classmethod
    def _archive_is_url_or_local(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str) and not re.match(r"https?://", value):
            return beside_inventory(value, info)
        if isinstance(value, str) and re.search(r"\s", one_line(value)):
            raise wrong(f"`{value}` is not a URL: it contains a space", "write `%20` for a space")
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> Source:
        if self.git is None and self.archive is None:
            raise wrong("the source has no URL", f"add `git: {UPSTREAM['llama.cpp']}`")
        if self.git is not None and self.archive is not None:
            raise wrong("the source is a repository or an archive, and not both", "leave out `git` or `archive`")
        if self.git is not None and self.commit is None and self.ref is None:
            raise wrong("the repository has no commit", "add `ref: b11434`, or another tag or branch")
        if self.commit is not None and self.ref is not None:
            message = "`commit` and `ref` both set the commit of the repository"
            raise wrong(message, "leave out `ref`, or `commit` to let `herd lock` resolve the other", at="ref")
        for path in (self.folder, *self.overlay):
            if path.startswith("/") or ".." in Path(path).parts:
                raise wrong(f"`{path}` leads out of the source", "write a path from the source's own folder on")
        return self

    @property
    def local_archive(self) -> Path | None:
        """Return the archive if it is a file of the controller."""
        return Path(self.archive) if self.archive and not self.archive.startswith("http") else None

    @property
    def build_number(self) -> int | None:
        """Return llama.cpp's build number, if it follows from the version or a ref such as `b11434`."""
        if self.version:
            return self.version.number
        tag = re.fullmatch(r"b(\d{3,6})", self.ref or "")
        return int(tag[1]) if tag else None


@dataclass(frozen=True)
class PageArchive:
    """The archive of the web page that an engine is built with."""

    url: str
    sha256: str


@dataclass(frozen=True)
class ReleaseArchive:
    """An archive of programs that an engine's authors have built: its URL, its sha256, and its size in bytes."""

    url: str
    sha256: str
    size: int

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.url.rpartition("/")[2]


BuiltFlags = tuple[tuple[tuple[str, ...], int], ...]
"""The flags of a built engine: all spellings of each, and the number of its values."""


class Engine(Declared):
    """An engine: built on the host from a pinned source, programs that its authors built, or an image by digest."""

    kind: EngineKind
    """The kind of engine, which sets its build options and flags."""
    ref: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")] | None = None
    """Short for a `source` in the authors' own repository at this tag, branch or commit."""
    release: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] | None = None
    """Or fetch the programs that the authors have built for this release, instead of building them on the host."""
    source: Source | None = None
    """Build it on the host from this."""
    image: Image | None = None
    """Or run this image: by digest, or by a tag that `herd lock` resolves to one."""
    options: dict[OptionName, Plain] = Field(default_factory=dict)
    """CMake options that add to those of the rig, or replace them."""
    flags: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]+$")] | None = None
    """The version of its flags, if it does not follow from `ref` or `source`: b11434, a commit, a date."""
    _built: BuiltFlags = PrivateAttr(default=())
    _page: PageArchive | None = PrivateAttr(default=None)
    _archives: tuple[ReleaseArchive, ...] = PrivateAttr(default=())

    @property
    def built(self) -> BuiltFlags:
        """Return the flags that its build lists on this rig's host; none if unknown."""
        return self._built

    def with_built(self, flags: BuiltFlags) -> Engine:
        """Return the same engine, whose build lists these flags."""
        engine = self.model_copy()
        engine._built = flags
        return engine

    @property
    def page(self) -> PageArchive | None:
        """Return the archive of the page that the lock has for it."""
        return self._page

    def with_page(self, page: PageArchive) -> Engine:
        """Return the same engine, which is built with this page."""
        engine = self.model_copy()
        engine._page = page
        return engine

    @property
    def archives(self) -> tuple[ReleaseArchive, ...]:
        """Return the archives of its release that the lock has for this rig."""
        return self._archives

    def with_archives(self, archives: tuple[ReleaseArchive, ...]) -> Engine:
        """Return the same engine, whose programs are in these archives."""
        engine = self.model_copy()
        engine._archives = archives
        return engine

    @model_validator(mode="before")
    @classmethod
    def _ref_is_short_for_a_source(cls, value: Any) -> Any:
        if not isinstance(value, dict) or value.get("source") is not None:
            return value
        # A release is built from the commit of its tag: its source names the version, as for a build.
        ref = value.get("release") if value.get("ref") is None else value["ref"]
        upstream = UPSTREAM.get(str(value.get("kind")))
        if not isinstance(ref, str) or upstream is None or value.get("image") is not None:
            return value
        pin = {"commit": ref} if re.fullmatch(r"[0-9a-f]{40}", ref) else {"ref": ref}
        return value | {"source": {"git": upstream, **pin}}

    @model_validator(mode="after")
    def _one_kind(self) -> Engine:
        if self.image is None and (published := PUBLISHED.get(self.kind)):
            raise wrong(f"{self.kind} is run from an image; it is not built here", f"add `image: {published}`")
        if self.release is not None:
            self._refuse_beside_release(self.release)
            return self
        given = [key for key in ("ref", "source", "image") if getattr(self, key) is not None]
        if not given:
            ref = "main" if self.kind == "ik_llama.cpp" else "b11434"
            raise wrong("the engine has no version", f"add `ref: {ref}`, or an `image`")
        if self.image is not None and len(given) > 1:
            raise wrong("the engine is built or an image, and not both", f"leave out `{given[0]}` or `image`")
        if self.source and self.ref not in (None, self.source.ref, self.source.commit):
            raise wrong("`ref` and `source` both set the version", "leave out `ref`", at="ref")
        return self

    def _refuse_beside_release(self, release: str) -> None:
        """Refuse keys that are for builds and images, where the authors have built the programs."""
        if self.kind not in RELEASED:
            message = f"the authors of {self.kind} publish no programs for Linux, so it has no `release`"
            raise wrong(message, f"write `ref: {release}`, which builds it on the host", at="release")
        if re.fullmatch(r"[0-9a-f]{40}", release):
            raise wrong(
                "a commit is not a release", f"write `ref: {release}`, which builds it on the host", at="release"
            )
        own = Source(git=UPSTREAM[self.kind], ref=release)
        beside = {"ref": self.ref, "source": self.source if self.source != own else None, "image": self.image}
        for key, value in beside.items():
            if value is not None:
                raise wrong(f"the engine is a `release` or has `{key}`, and not both", "leave out one of them", at=key)
        if self.options:
            message = "`options` are for CMake, and the programs of a `release` are built already"
            help_ = f"leave out `options`, or write `ref: {release}`, which builds it on the host"
            raise wrong(message, help_, at="options")

    @property
    def is_built(self) -> bool:
        """Return whether a host builds it from its source."""
        return self.source is not None and self.release is None

    @property
    def version_key(self) -> tuple[str, ...]:
        """Return the path of the key that names the version of its source."""
        return ("release",) if self.release else ("ref",) if self.ref else ("source", "ref")

    @property
    def digest(self) -> bool:
        """Return whether the image is given by digest, which never changes."""
        return self.image is not None and by_digest(self.image)


def cmake_value(value: str | int | bool) -> str:
    """Return an option's value for CMake: `true` is ON."""
    return ("ON" if value else "OFF") if isinstance(value, bool) else str(value)


class Model(Declared):
    """A model: from a hub (`hf`, `revision`, `quant` or `files`), or a GGUF file of the controller."""

    hf: Repo | None = None
    """Repository of a model hub."""
    revision: Given = "main"
    """A branch, tag or commit of the repository."""
    quant: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]+$")] | None = None
    """Short for `files`: the GGUF files with this quant in their name, such as `UD-Q4_K_XL`."""
    files: Given = "*.gguf"
    """Its files: exactly one, or all shards of one model."""
    mmproj: Given | None = None
    """Its vision projector: a file of the same repository, such as `mmproj-F16.gguf`."""
    file: LocalPath | None = None
    """Or a GGUF file of this machine, which is sent to the host."""
    sha256: Sha256 | None = None
    """Hash of `file`. Without it, the lock has the hash."""

    @model_validator(mode="before")
    @classmethod
    def _quant_is_short_for_files(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("quant"), str) and "files" not in value:
            return value | {"files": f"*{value['quant']}*.gguf"}
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> Model:
        if self.hf is None and self.file is None:
            example = "`hf: unsloth/Qwen3.6-35B-A3B-MTP-GGUF`"
            raise wrong("the model has no source", f"add its repository, as in {example}, or `file`")
        if self.hf is not None and self.file is not None:
            message = "`file` is a file of this machine, and `hf` a repository: the model is in one of them"
            raise wrong(message, f"write `files: {self.file.name}` for a file of the repository", at="file")
        if self.file is not None and self.file.name.startswith("-"):
            raise wrong(f"`{self.file.name}` begins as an option does", "give the file another name", at="file")
        if self.file is not None and self.mmproj is not None:
            message = "`mmproj` is a file of the repository in `hf`; `file` has no repository"
            raise wrong(message, "leave it out", at="mmproj")
        return self
