"""`Planned`, the base of all parts of a plan, and the planned files, builds, images and models."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from llamaherd.inventory.schema import Connect, Source
from llamaherd.inventory.schema.software import PageArchive, ReleaseArchive
from llamaherd.layout import BUILDS, DEFAULT_STORE, STATE


def digest(*parts: object) -> str:
    """Return a short hash of JSON-able values, for ids and specs: 12 hexadecimal digits."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Planned(BaseModel):
    """The base of all parts of a plan: plain, frozen, comparable."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)


class TextFile(Planned):
    """A file with its whole text; `owner` is a user's name, or a number that no user has."""

    path: str
    text: str
    mode: Annotated[str, StringConstraints(pattern=r"^[0-7]{3,4}$")] = "0644"
    owner: str = "root"

    @property
    def name(self) -> str:
        """Return its name, without its folder."""
        return self.path.rpartition("/")[2]


class ReleasePlan(Planned):
    """A release to be fetched: its tag, its archives, and the architectures of the GPUs that it must have code for."""

    tag: str
    archives: tuple[ReleaseArchive, ...]
    architectures: tuple[str, ...] = ()


class BuildPlan(Planned):
    """An engine to be built, or to be fetched as a release; `id` names its folder and hashes all that decides what
    comes out.
    """

    id: str
    engine: str
    kind: str
    source: Source
    options: dict[str, str]
    targets: tuple[str, ...]
    cuda: str | None
    disk: int
    page: PageArchive | None = None
    release: ReleasePlan | None = None

    @property
    def settings(self) -> dict[str, str]:
        """The CMake options, as `-D` has them; of a release, its tag, as others have compiled it."""
        return {"release": self.release.tag} if self.release else dict(self.options)

    @model_validator(mode="before")
    @classmethod
    def _without_script(cls, value: Any) -> Any:
        """Read a plan of an earlier version, which contains the script of each build."""
        return {name: each for name, each in value.items() if name != "script"} if isinstance(value, dict) else value

    @property
    def folder(self) -> str:
        """The folder of the finished build."""
        return str(BUILDS / self.id)


class ImagePlan(Planned):
    """An image made on the host from a build, on a base made from the distribution's mirror."""

    tag: str
    build: str
    base: str
    base_packages: tuple[str, ...]
    dockerfile: str

    @property
    def record(self) -> str:
        """The file in which the host keeps the id of this image: any image can be given its name."""
        return str(STATE / "images" / self.tag.replace("/", "_").replace(":", "_"))


class FromHub(Planned):
    """The hub that a model was locked at."""

    kind: Literal["hub"] = "hub"


class FromFolder(Planned):
    """A folder of the host that holds files already."""

    kind: Literal["folder"] = "folder"
    path: str


class FromPeer(Planned):
    """Another rig: how the controller connects to it, its address for the host, and the path of its store."""

    kind: Literal["neighbour"] = "neighbour"
    name: str
    connect: Connect
    address: str
    port: int
    store: str


ModelOrigin = Annotated[FromHub | FromFolder | FromPeer, Field(discriminator="kind")]


class BandwidthRule(NamedTuple):
    """The most bytes per second between two times of day, `HH:MM`; at any time if both are the same."""

    begin: str
    end: str
    bytes_per_second: int


class StorePlan(Planned):
    """The folder of the models, and their sources: a file comes from the first source that has it."""

    path: str = str(DEFAULT_STORE)
    sources: tuple[ModelOrigin, ...] = (FromHub(),)
    bandwidth: tuple[BandwidthRule, ...] = ()
    connections: int = 8


class ModelFile(Planned):
    """One file of a model. `size` (bytes) is known from the lock, and for a local file only on the controller."""

    name: str
    sha256: str
    size: int | None = None


class ModelPlan(Planned):
    """A model in the store: a folder per revision. Its files are fetched from `url`, or else sent from `local`.

    `repo` and `revision` are as declared: messages name the page to open. `mmproj` is the vision projector of `files`.
    """

    name: str
    folder: str
    files: tuple[ModelFile, ...]
    url: str | None = None
    local: Path | None = None
    repo: str | None = None
    revision: str | None = None
    mmproj: str | None = None

    @property
    def path(self) -> str:
        """The path that a server loads: the first shard of a GGUF, which finds the others, or the folder."""
        first = self.files[0].name
        return str(PurePosixPath(self.folder, first)) if first.endswith(".gguf") else self.folder

    @property
    def mmproj_path(self) -> str | None:
        """The path of the vision projector, if there is one."""
        return str(PurePosixPath(self.folder, self.mmproj)) if self.mmproj else None
