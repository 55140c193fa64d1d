"""A host that has a store, on this machine: what verbs inspect lies in a folder of the test's own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from llamaherd.host.program import request
from llamaherd.layout import FETCH_RUN, INCOMING, LOCKS
from llamaherd.onhost import system
from llamaherd.onhost.document import decode, dump, parse_document
from llamaherd.onhost.removal import Outcome
from llamaherd.onhost.store import Hashes, StoreInput, StoreState
from llamaherd.onhost.system import Ended, Entry, Host
from llamaherd.onhost.verbs import perform
from llamaherd.plan import ModelFile, ModelPlan, Plan, StorePlan
from llamaherd.store.files import FileCheck, checks_of, files_once, hash_input
from llamaherd.store.holdings import Holdings, Removal, judge_store, prune_input
from tests.support.stores import manifest_line

OLD, NEW = "ab" * 20, "cd" * 20
"""Commits."""


@dataclass(frozen=True)
class StoreHost:
    """A folder with what verbs inspect of a host: a store, units, projects and a fetch's progress."""

    root: Path

    @classmethod
    def made(cls, root: Path) -> StoreHost:
        """A host whose store is empty."""
        host = cls(root)
        host.store.mkdir()
        (root / FETCH_RUN.relative_to("/")).mkdir(parents=True)
        return host

    @property
    def store(self) -> Path:
        """Where models lie."""
        return self.root / "store"

    def put(self, path: str, content: bytes = b"weights", *, vouched: bool = True) -> Path:
        """A file of a revision, whose folder is all of its path but the last part, and its line in the manifest."""
        file = self.store / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        if vouched:
            with (file.parent / ".manifest").open("a") as manifest:
                manifest.write(manifest_line(file, hashlib.sha256(content).hexdigest()))
        return file

    @property
    def system(self) -> MovedHost:
        """This machine, with the folder in the place of its own files."""
        return MovedHost(self.root)

    def snapshot(self) -> StoreState:
        """Return what lies there, as it comes in a document."""
        found = perform(document("llamaherd.store.inspect", StoreInput(str(self.store))), self.system)
        return decode(StoreState, parse_document(dump(found).encode()))

    def holdings(self, *models: ModelPlan) -> Holdings:
        """What lies there, judged by a plan that wants these models and has no instance."""
        return judge_store(self.plan(*models), self.snapshot())

    def plan(self, *models: ModelPlan) -> Plan:
        """A plan with this store."""
        return Plan(
            rig="duo",
            os="debian-13",
            packages=(),
            files=(),
            builds=(),
            store=StorePlan(path=str(self.store)),
            models=models,
            images=(),
            instances=(),
        )

    def model(self, folder: str, *named: str, content: bytes = b"weights") -> ModelPlan:
        """A model of a plan: files that all have this content."""
        sha256 = hashlib.sha256(content).hexdigest()
        wanted = tuple(ModelFile(name=name, sha256=sha256, size=len(content)) for name in named)
        return ModelPlan(name="model", folder=f"{self.store}/{folder}", files=wanted)

    def prune(self, *removals: Removal) -> Outcome:
        """Remove."""
        given = prune_input(str(self.store), removals)
        found = perform(document("llamaherd.store.prune", given), self.system)
        return decode(Outcome, parse_document(dump(found).encode()))

    def left(self) -> list[str]:
        """All files and folders, but for the lock."""
        return sorted(str(path.relative_to(self.store)) for path in self.store.rglob("*") if path.name != ".lock")

    def hash(self, *models: ModelPlan) -> list[FileCheck]:
        """What hashing says of these models' files."""
        wanted = files_once(self.plan(*models))
        found = perform(document("llamaherd.store.hash", hash_input(wanted)), self.system)
        return [*checks_of(wanted, decode(Hashes, parse_document(dump(found).encode()))).values()]


class MovedHost(Host):
    """This machine, with a folder of a test in the place of its files. Processes are its own."""

    def __init__(self, root: Path) -> None:
        self.log: list[str] = []
        super().__init__(self.log.append, self.log.append)
        self._root = str(root)

    def _here(self, path: str) -> str:
        ours = path.startswith((self._root, "/proc/"))
        return path if ours or path == "/proc" else self._root + path

    def run(self, argv: Sequence[str], **more: Any) -> Ended:
        """Run a program: there are no users, and no Docker."""
        if argv[0] in ("getent", "docker", "renice", "ionice"):
            return Ended(1)
        return super().run([self._here(each) if each.startswith(str(INCOMING)) else each for each in argv], **more)

    def read_bytes(self, path: str, most: int = 1 << 20) -> bytes | None:
        """Read a file there."""
        return super().read_bytes(self._here(path), most)

    def names(self, path: str) -> list[str]:
        """List a folder there."""
        return super().names(self._here(path))

    def entry(self, path: str) -> Entry | None:
        """Inspect a path there."""
        return super().entry(self._here(path))

    @contextmanager
    def lock(self, name: str, seconds: float, purpose: str) -> Iterator[bool]:
        """Hold a lock there."""
        with patch.object(system, "LOCKS", Path(f"{self._root}{LOCKS}")), super().lock(name, seconds, purpose) as held:
            yield held


def document(verb: str, given: object) -> object:
    """Return a document as a host parses it."""
    return parse_document(request(verb, given))


def folders(holdings: Holdings) -> dict[str, str]:
    """The revisions, and what they are like."""
    return {revision.folder: revision.state for revision in holdings.revisions}


def used_by(holdings: Holdings) -> dict[str, list[str]]:
    """The revisions, and who uses them."""
    return {revision.folder: [user.name for user in revision.users] for revision in holdings.revisions}
