"""A host that has a store, on this machine: what the scripts look at lies in a folder of the test's own."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

from llamaherd.host.protocol import answer
from llamaherd.host.remote import Result
from llamaherd.layout import FETCH_RUN, INCOMING, LOCKS, PROJECTS, UNITS
from llamaherd.plan import ModelFile, ModelPlan, Plan, StorePlan
from llamaherd.store.ask import look_script, prune_script
from llamaherd.store.hashes import FileCheck, Hearing, files_once, hash_script
from llamaherd.store.holdings import Holdings, Removal
from llamaherd.store.judge import judge_store
from llamaherd.store.outcome import Outcome, outcome
from llamaherd.store.state import StoreState, parse_store
from tests.support.stores import manifest_line

OLD, NEW = "ab" * 20, "cd" * 20
"""Commits."""


@dataclass(frozen=True)
class StoreHost:
    """A folder with what the scripts look at of a host: a store, units, projects and a fetch's progress."""

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

    def moved(self, text: str) -> str:
        """A script that looks here instead of in the places of a host."""
        for place in (UNITS, PROJECTS, FETCH_RUN, LOCKS, INCOMING):
            text = text.replace(str(place), f"{self.root}{place}")
        return text.replace("host_root=''", f"host_root='{self.root}'")

    def run(self, text: str) -> Result:
        """Run a script to its end."""
        ended = subprocess.run(
            ["sh", "-s"], input=self.moved(text), capture_output=True, text=True, check=False, errors="replace"
        )
        return Result(ended.returncode, ended.stdout, ended.stderr)

    def asked(self, text: str, *, quiet: bool = True) -> list[str]:
        """What a question is answered."""
        result = self.run(text)
        assert not (quiet and result.err), result.err
        return answer(result.out.split("\n"), result.err.split("\n"))

    def look(self) -> StoreState:
        """What lies there."""
        return parse_store(self.asked(look_script(str(self.store))))

    def holdings(self, *models: ModelPlan) -> Holdings:
        """What lies there, judged by a plan that wants these models and has no instance."""
        return judge_store(self.plan(*models), self.look())

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
        return outcome(self.asked(prune_script(str(self.store), removals), quiet=False))

    def left(self) -> list[str]:
        """All files and folders, but for the lock."""
        return sorted(str(path.relative_to(self.store)) for path in self.store.rglob("*") if path.name != ".lock")

    def hash(self, *models: ModelPlan) -> list[FileCheck]:
        """What hashing says of these models' files."""
        plan = self.plan(*models)
        hearing = Hearing(files_once(plan))
        for line in self.asked(hash_script(plan)):
            hearing.hear(line)
        return hearing.checks()


def folders(holdings: Holdings) -> dict[str, str]:
    """The revisions, and what they are like."""
    return {revision.folder: revision.state for revision in holdings.revisions}


def used_by(holdings: Holdings) -> dict[str, list[str]]:
    """The revisions, and who uses them."""
    return {revision.folder: [user.name for user in revision.users] for revision in holdings.revisions}
