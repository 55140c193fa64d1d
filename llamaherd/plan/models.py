"""What a plan holds of models: their files, where they are kept, and where they come from."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from llamaherd.inventory.schema import Connect
from llamaherd.layout import DEFAULT_STORE
from llamaherd.plan.base import Planned


class FromHub(Planned):
    """The hub that a model was locked at."""

    kind: Literal["hub"] = "hub"


class FromFolder(Planned):
    """A folder of the host that holds files already."""

    kind: Literal["folder"] = "folder"
    path: str


class FromNeighbour(Planned):
    """Another rig: how the controller reaches it, where the host does, and where its store lies."""

    kind: Literal["neighbour"] = "neighbour"
    name: str
    connect: Connect
    address: str
    port: int
    store: str


ModelOrigin = Annotated[FromHub | FromFolder | FromNeighbour, Field(discriminator="kind")]


class BandwidthRule(NamedTuple):
    """Most bytes per second between two times of day, `HH:MM`; always where they are the same."""

    begin: str
    end: str
    bytes_per_second: int


class StorePlan(Planned):
    """Where models are kept, and where they come from: the first of `sources` that has a file first."""

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
    """A model in the store: a folder per revision. `url` is where its files are fetched from, else `local`.

    `repo` and `revision` are as declared, so that people can be told which page to open. `mmproj` is that of `files`
    which is the vision projector.
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
        """What a server is given: the first shard of a GGUF, which finds the others; else the folder."""
        first = self.files[0].name
        return str(PurePosixPath(self.folder, first)) if first.endswith(".gguf") else self.folder

    @property
    def mmproj_path(self) -> str | None:
        """Where the vision projector lies, if there is one."""
        return str(PurePosixPath(self.folder, self.mmproj)) if self.mmproj else None
