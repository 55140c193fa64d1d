"""The script that lets files into the store, run by a real shell over folders of the test's own."""

from __future__ import annotations

import hashlib
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from llamaherd.host.state import HostState
from llamaherd.layout import FETCH_RUN, FETCH_USER, INCOMING, LOCKS
from llamaherd.plan import ModelFile, ModelPlan, Plan, StorePlan
from llamaherd.role.changes import RunScript
from llamaherd.store.missing import missing_files
from roles.models.changes import model_changes
from tests.support.ours import inspect_script, parse_state
from tests.support.stores import manifest_line, needs_root

pytestmark = needs_root
A, B, C = b"weights", b"projector", b"other"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Host:
    """A store, what has arrived for it, and the models that are declared."""

    root: Path
    models: list[ModelPlan] = field(default_factory=list)

    @property
    def store(self) -> Path:
        return self.root / "store"

    def declare(self, folder: str, **files: bytes) -> ModelPlan:
        """A model of a hub, of files with such content."""
        wanted = tuple(
            ModelFile(name=f"{name}.gguf", sha256=sha256(body), size=len(body)) for name, body in files.items()
        )
        model = ModelPlan(name=folder, folder=f"{self.store}/{folder}", files=wanted, repo="a/b", url="https://hub.lan")
        self.models.append(model)
        return model

    def arrive(self, *contents: bytes) -> None:
        """Files that the fetch has brought."""
        for content in contents:
            path = self.store / ".incoming" / sha256(content)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    @property
    def plan(self) -> Plan:
        """The models, and nothing else."""
        return Plan(
            rig="duo",
            os="debian-13",
            packages=(),
            files=(),
            builds=(),
            store=StorePlan(path=str(self.store)),
            models=tuple(self.models),
            images=(),
            instances=(),
        )

    def missing(self) -> list[str]:
        """The files that a look at the host finds wanting; it looks at all of this machine, and changes nothing."""
        # Read to its end before it starts, as on a host: what it runs reads none of it.
        asked = f"{{\n{inspect_script(self.plan)}\n}} </dev/null\n"
        ended = subprocess.run(["sh", "-s"], input=asked, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        # What else there is to this machine is no matter here.
        seen = parse_state([line for line in ended.stdout.splitlines() if line.startswith(("verified\t", "stored\t"))])
        return [file.name for model in self.models for file in missing_files(model, seen)]

    def admit(self, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
        """Let in what has arrived."""
        *_, step = model_changes(self.plan, HostState(), lambda *_: [], "0" * 16)
        assert isinstance(step.how, RunScript)
        # In place of the user that fetches: one that every machine has.
        text = (
            step.script.replace(str(FETCH_RUN), f"{self.root}/run")
            .replace(str(INCOMING), f"{self.root}/sent")
            .replace(str(LOCKS), f"{self.root}/locks")
            .replace(f"= {FETCH_USER} ]", "= nobody ]")
        )
        return subprocess.run(
            ["sh", "-s"], input=text, capture_output=True, text=True, check=False, env={"PATH": path, "LC_ALL": "C"}
        )

    def content(self, name: str) -> bytes:
        """Of a file of the store, for which its manifest vouches."""
        path = self.store / name
        line = manifest_line(path, sha256(path.read_bytes()))
        assert line in (path.parent / ".manifest").read_text()
        return path.read_bytes()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_two_names_of_one_content(host: Host) -> None:
    """In one model, and in another repository: as two quants share a projector."""
    host.declare("one", a=A, mmproj=B, again=B)
    host.declare("two", c=C, mmproj=B)
    host.arrive(A, B, C)
    ended = host.admit()
    assert (ended.returncode, ended.stderr) == (0, "")
    for name, content in (("one/mmproj", B), ("one/again", B), ("two/mmproj", B), ("one/a", A), ("two/c", C)):
        assert host.content(f"{name}.gguf") == content
    assert list((host.store / ".incoming").iterdir()) == []
    assert (host.store / "two/mmproj.gguf").stat().st_nlink == 3


def test_one_that_lacks_a_file_keeps_its_twin_from_nobody(host: Host) -> None:
    """What lies under its name is of an earlier day, and is not taken for the content that both have."""
    host.declare("one", a=A, mmproj=B)
    host.declare("two", mmproj=B)
    (host.store / "one").mkdir(parents=True)
    (host.store / "one/mmproj.gguf").write_bytes(C)
    host.arrive(B)
    assert host.admit().returncode == 1
    assert host.content("two/mmproj.gguf") == B
    assert (host.store / "one/mmproj.gguf").read_bytes() == C


def test_where_files_have_one_name_only_a_copy_is_made(host: Host) -> None:
    """As on exFAT: `ln` fails there."""
    programs = host.root / "bin"
    programs.mkdir()
    (programs / "ln").write_text("#!/bin/sh\nexit 1\n")
    (programs / "ln").chmod(0o755)
    host.declare("one", a=A, b=A)
    host.arrive(A)
    assert host.admit(f"{programs}:/usr/bin:/bin").returncode == 0
    assert host.content("one/b.gguf") == host.content("one/a.gguf") == A
    assert (host.store / "one/b.gguf").stat().st_nlink == 1


def test_two_models_that_have_the_very_same_file(host: Host) -> None:
    host.declare("one", a=A)
    host.declare("one", a=A, b=B)
    host.arrive(A, B)
    assert host.admit().returncode == 0
    assert (host.content("one/a.gguf"), host.content("one/b.gguf")) == (A, B)


def test_what_the_fetch_warned_of_is_said_once(host: Host) -> None:
    host.declare("one", a=A)
    host.arrive(A)
    (host.root / "run").mkdir()
    (host.root / "run/warnings").write_text("it arrived wrong from six\n")
    assert host.admit().stdout == "it arrived wrong from six\n"
    assert host.admit().stdout == ""


@pytest.mark.parametrize("killed_after", ["the first name", "all names"])
def test_killed_in_between_it_goes_on(host: Host, killed_after: str) -> None:
    host.declare("one", a=A)
    host.declare("two", b=A)
    (host.store / "one").mkdir(parents=True)
    (host.store / "one/a.gguf").write_bytes(A)
    if killed_after == "the first name":
        (host.store / ".incoming").mkdir()
        os.link(host.store / "one/a.gguf", host.store / ".incoming" / sha256(A))
    else:
        (host.store / "two").mkdir()
        os.link(host.store / "one/a.gguf", host.store / "two/b.gguf")
    ended = host.admit()
    assert (ended.returncode, ended.stderr) == (0, "")
    assert host.content("one/a.gguf") == host.content("two/b.gguf") == A


@pytest.mark.parametrize(("owner", "mode"), [(1234, 0o644), (0, 0o664), (0, 0o646)])
def test_what_somebody_else_can_write_to_is_not_vouched_for(host: Host, owner: int, mode: int) -> None:
    """A hard link to a user's file, which an earlier version took in: it gives way to a file of our own."""
    host.declare("one", a=A)
    theirs = host.root / "theirs.gguf"
    theirs.write_bytes(A)
    theirs.chmod(mode)
    os.chown(theirs, owner, owner)
    (host.store / "one").mkdir(parents=True)
    ours = host.store / "one/a.gguf"
    os.link(theirs, ours)
    (host.store / "one/.manifest").write_text(manifest_line(ours, sha256(A)))
    assert host.missing() == ["a.gguf"]
    assert host.admit().returncode == 1  # until a copy of it has arrived
    host.arrive(A)
    assert host.admit().returncode == 0
    assert host.content("one/a.gguf") == A
    assert host.missing() == []
    assert not ours.samefile(theirs)
    assert (theirs.stat().st_uid, theirs.stat().st_mode & 0o777) == (owner, mode)
