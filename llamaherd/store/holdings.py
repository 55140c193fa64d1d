"""What is known of a host's store: revisions, files on their way in, and what of all that can go."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["whole", "unfinished", "missing", "foreign"]

LEFT = ".trash"
"""What an interrupted removal has left, among what can go: all of it goes first."""


@dataclass(frozen=True)
class User:
    """Who uses a revision: an instance of the plan, or what the host has: a unit, a container, a file, a process.

    Or a release that can be gone back to, or a server that is kept to be put back.
    """

    kind: Literal["instance", "unit", "container", "file", "process", "release", "kept"]
    name: str


@dataclass(frozen=True)
class Revision:
    """A folder of the store. `missing` is declared and not there; `foreign` is not ours, and is left alone."""

    folder: str
    state: State
    files: int
    size: int
    linked: int
    """Bytes of it that have another name as well: removing it frees them only if the other one goes too."""
    users: tuple[User, ...]


@dataclass(frozen=True)
class Unfinished:
    """A file on its way in, of which `have` bytes are there; `wanted` is the file of the plan that it becomes."""

    sha256: str
    have: int
    size: int | None
    wanted: str | None


@dataclass(frozen=True)
class Removal:
    """What can go: a whole folder, `files` in one of which `keep` stays, or a part. `frees` is in bytes."""

    what: str
    files: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    frees: int = 0


@dataclass(frozen=True)
class Holdings:
    """A rig's store: what is there, and what of it can go."""

    rig: str
    store: str
    free: int | None
    fetch: str | None
    revisions: tuple[Revision, ...]
    parts: tuple[Unfinished, ...]
    removals: tuple[Removal, ...]
    notes: tuple[str, ...]

    @property
    def frees(self) -> int:
        """Bytes that come free if all goes that can."""
        return sum(removal.frees for removal in self.removals)

    def as_json(self) -> dict[str, Any]:
        """The holdings as plain JSON values."""
        return asdict(self) | {"frees": self.frees}
