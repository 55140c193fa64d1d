"""The verb that lets files into the store: over folders of the test's own, and killed anywhere on a played host."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from llamaherd.host.state import HostState
from llamaherd.layout import INCOMING
from llamaherd.onhost import system
from llamaherd.onhost.document import decode, dump, parse_document
from llamaherd.onhost.store import is_vouched, manifest_lines
from llamaherd.onhost.system import Ended, FailedError, Host
from llamaherd.plan import ModelFile, ModelPlan, Plan, StorePlan
from llamaherd.store.files import missing_files
from roles.models import inspection_input, model_changes, state_parts
from roles.models.onhost import store as verb
from roles.models.onhost.store import WARNINGS, AdmitInput, AdmittedFile, AdmittedModel, admit, inspect
from tests.support.models_host import ModelsHost
from tests.support.played_host import File
from tests.support.recording import input_of
from tests.support.service_host import killed_everywhere
from tests.support.stores import manifest_line, needs_root

A, B, C = b"weights", b"projector", b"other"
HOSTILE = "a $(id) `id` \"b\" 'c' ; d"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Store:
    """A store on this machine, what has arrived for it, and the models that are declared."""

    root: Path
    models: list[ModelPlan] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.root / "store"

    def declare(self, folder: str, **files: bytes) -> ModelPlan:
        """A model of a hub, of files with such content."""
        wanted = tuple(
            ModelFile(name=f"{name}.gguf", sha256=sha256(body), size=len(body)) for name, body in files.items()
        )
        model = ModelPlan(name=folder, folder=f"{self.path}/{folder}", files=wanted, repo="a/b", url="https://hub.lan")
        self.models.append(model)
        return model

    def arrive(self, *contents: bytes, owner: str = "root") -> None:
        """Files that the fetch has brought."""
        for content in contents:
            path = self.path / ".incoming" / sha256(content)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            subprocess.run(["chown", owner, str(path)], check=True)

    @property
    def plan(self) -> Plan:
        """The models, and nothing else."""
        return Plan(
            rig="duo",
            os="debian-13",
            packages=(),
            files=(),
            builds=(),
            store=StorePlan(path=str(self.path)),
            models=tuple(self.models),
            images=(),
            instances=(),
        )

    def missing(self) -> list[str]:
        """The files that an inspection of this machine reports as missing."""
        seen = HostState.of(*state_parts(inspect(inspection_input(self.plan), Host(print, print))))
        return [file.name for model in self.models for file in missing_files(model, seen)]

    def admit(self) -> None:
        """Let in what has arrived."""
        *_, change = model_changes(self.plan, HostState(), lambda *_: [], "0" * 16)
        given = input_of(change, AdmitInput)
        assert decode(AdmitInput, parse_document(dump(given).encode())) == given
        admit(given, Host(self.log.append, self.log.append))

    def content(self, name: str) -> bytes:
        """Of a file of the store, which its manifest lists."""
        path = self.path / name
        line = manifest_line(path, sha256(path.read_bytes()))
        assert line in (path.parent / ".manifest").read_text()
        return path.read_bytes()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store in a folder of the test. In place of the user that fetches: one that every machine has."""
    monkeypatch.setattr(verb, "INCOMING", tmp_path / "sent")
    monkeypatch.setattr(verb, "WARNINGS", f"{tmp_path}/run/warnings")
    monkeypatch.setattr(verb, "FETCH_USER", "nobody")
    monkeypatch.setattr(system, "LOCKS", tmp_path / "locks")
    return Store(tmp_path)


@needs_root
def test_two_names_of_one_content(store: Store) -> None:
    """In one model, and in another repository: as two quants share a projector."""
    store.declare("one", a=A, mmproj=B, again=B)
    store.declare("two", c=C, mmproj=B)
    store.arrive(A, B, C, owner="nobody")
    store.admit()
    for name, content in (("one/mmproj", B), ("one/again", B), ("two/mmproj", B), ("one/a", A), ("two/c", C)):
        assert store.content(f"{name}.gguf") == content
        there = (store.path / f"{name}.gguf").stat()
        assert (there.st_uid, there.st_mode & 0o777) == (0, 0o644)
    assert list((store.path / ".incoming").iterdir()) == []
    assert (store.path / "two/mmproj.gguf").stat().st_nlink == 3
    assert [path.stat().st_mode & 0o777 for path in (store.path, store.path / "one")] == [0o755] * 2
    assert (store.path / "one/.manifest").stat().st_mode & 0o777 == 0o644
    assert store.missing() == []


@needs_root
def test_one_that_lacks_a_file_keeps_its_twin_from_nobody(store: Store) -> None:
    """What lies under its name is of an earlier day, and is not taken for the content that both have."""
    store.declare("one", a=A, mmproj=B)
    store.declare("two", mmproj=B)
    (store.path / "one").mkdir(parents=True)
    (store.path / "one/mmproj.gguf").write_bytes(C)
    store.arrive(B)
    with pytest.raises(FailedError, match=r"a\.gguf is neither in .*/store/one nor among what has arrived"):
        store.admit()
    assert store.content("two/mmproj.gguf") == B
    assert (store.path / "one/mmproj.gguf").read_bytes() == C


@needs_root
def test_where_files_have_one_name_only_a_copy_is_made(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on exFAT: `ln` fails there."""
    programs = store.root / "bin"
    programs.mkdir()
    (programs / "ln").write_text("#!/bin/sh\nexit 1\n")
    (programs / "ln").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    store.declare("one", a=A, b=A)
    store.arrive(A)
    store.admit()
    assert store.content("one/b.gguf") == store.content("one/a.gguf") == A
    assert (store.path / "one/b.gguf").stat().st_nlink == 1


@needs_root
def test_two_models_that_have_the_very_same_file(store: Store) -> None:
    store.declare("one", a=A)
    store.declare("one", a=A, b=B)
    store.arrive(A, B)
    store.admit()
    assert (store.content("one/a.gguf"), store.content("one/b.gguf")) == (A, B)


@needs_root
def test_what_the_fetch_warned_of_is_reported_once(store: Store) -> None:
    store.declare("one", a=A)
    store.arrive(A)
    (store.root / "run").mkdir()
    (store.root / "run/warnings").write_text("it arrived wrong from six\n")
    store.admit()
    store.admit()
    assert store.log == ["it arrived wrong from six"]


@needs_root
@pytest.mark.parametrize("killed_after", ["the first name", "all names"])
def test_killed_in_between_it_resumes(store: Store, killed_after: str) -> None:
    store.declare("one", a=A)
    store.declare("two", b=A)
    (store.path / "one").mkdir(parents=True)
    (store.path / "one/a.gguf").write_bytes(A)
    if killed_after == "the first name":
        (store.path / ".incoming").mkdir()
        os.link(store.path / "one/a.gguf", store.path / ".incoming" / sha256(A))
    else:
        (store.path / "two").mkdir()
        os.link(store.path / "one/a.gguf", store.path / "two/b.gguf")
    store.admit()
    assert store.content("one/a.gguf") == store.content("two/b.gguf") == A


@needs_root
@pytest.mark.parametrize(("owner", "mode"), [(1234, 0o644), (0, 0o664), (0, 0o646)])
def test_what_another_user_can_write_to_is_not_vouched_for(store: Store, owner: int, mode: int) -> None:
    """A hard link to a user's file, which an earlier version took in: it gives way to a file of our own."""
    store.declare("one", a=A)
    theirs = store.root / "theirs.gguf"
    theirs.write_bytes(A)
    theirs.chmod(mode)
    os.chown(theirs, owner, owner)
    (store.path / "one").mkdir(parents=True)
    ours = store.path / "one/a.gguf"
    os.link(theirs, ours)
    (store.path / "one/.manifest").write_text(manifest_line(ours, sha256(A)))
    assert store.missing() == ["a.gguf"]
    with pytest.raises(FailedError, match="is neither in"):
        store.admit()  # until a copy of it has arrived
    store.arrive(A)
    store.admit()
    assert store.content("one/a.gguf") == A
    assert store.missing() == []
    assert not ours.samefile(theirs)
    assert (theirs.stat().st_uid, theirs.stat().st_mode & 0o777) == (owner, mode)


@needs_root
def test_what_root_has_elsewhere_too_keeps_its_permissions(store: Store) -> None:
    store.declare("one", a=A)
    store.arrive(A)
    arrived = store.path / ".incoming" / sha256(A)
    arrived.chmod(0o600)
    os.link(arrived, store.root / "elsewhere")
    store.admit()
    assert (store.root / "elsewhere").stat().st_mode & 0o777 == 0o600


@needs_root
def test_hostile_names_are_names(store: Store) -> None:
    store.declare(f"one {HOSTILE}", **{HOSTILE: A})
    store.arrive(A)
    store.admit()
    assert store.content(f"one {HOSTILE}/{HOSTILE}.gguf") == A


@needs_root
def test_a_manifest_keeps_its_time_where_files_were_only_added(store: Store) -> None:
    """Servers whose files are as they were need no restart."""
    store.declare("one", a=A)
    store.arrive(A)
    store.admit()
    manifest = store.path / "one/.manifest"
    os.utime(manifest, (10**9, 10**9))
    store.declare("one", b=B)
    store.arrive(B)
    store.admit()
    assert manifest.stat().st_mtime == 10**9
    (store.path / "one/a.gguf").unlink()
    store.arrive(A)
    store.admit()
    assert manifest.stat().st_mtime > 10**9


# On a played host

STORE = "/srv/models"
ONE = AdmittedModel(f"{STORE}/one", (AdmittedFile("a.gguf", sha256(A)), AdmittedFile("b.gguf", sha256(B), keep=True)))
TWO = AdmittedModel(f"{STORE}/two", (AdmittedFile("UD/c.gguf", sha256(C)), AdmittedFile("b.gguf", sha256(B))))
BOTH = AdmitInput(STORE, (ONE, TWO))


def arrived(*, one_name_only: bool = False) -> ModelsHost:
    """Return a host where two files were fetched, and one was sent."""
    files = {f"{STORE}/.incoming/{sha256(each)}": File(each.decode(), owner="llama-fetch") for each in (A, B)}
    files[f"{INCOMING}/{sha256(C)}"] = File(C.decode(), owner="owner")
    return ModelsHost({}, files=files, accounts={"llama-fetch", "owner"}, one_name_only=one_name_only)


@pytest.mark.parametrize("one_name_only", [False, True])
def test_killed_anywhere_the_next_run_lets_all_in(one_name_only: bool) -> None:
    hosts = killed_everywhere(lambda: arrived(one_name_only=one_name_only), lambda host: admit(BOTH, host))
    assert len(hosts) >= 8
    for host in hosts:
        for model in (ONE, TWO):
            assert all(is_vouched(host, model.folder, each.name, each.sha256) for each in model.files)
            assert all(host.files[f"{model.folder}/{each.name}"].owner == "root" for each in model.files)
        assert f"{INCOMING}/{sha256(C)}" not in host.files
        assert host.names(f"{STORE}/.incoming") == []


def test_a_file_from_the_controller_that_arrived_wrong_is_removed() -> None:
    host = arrived()
    host.files[f"{INCOMING}/{sha256(C)}"].text = "damaged"
    with pytest.raises(FailedError, match=rf"UD/c\.gguf arrived with sha256 .*, but {sha256(C)} was expected"):
        admit(BOTH, host)
    assert f"{INCOMING}/{sha256(C)}" not in host.files
    assert is_vouched(host, ONE.folder, "a.gguf", sha256(A))
    assert manifest_lines(host, TWO.folder) is None


def test_lines_of_files_of_other_models_stay() -> None:
    host = arrived()
    host.files[f"{ONE.folder}/.manifest"] = File("9\t1.000000000\tff\told.gguf\nno line of ours\n1\t2\t3\ta.gguf\n")
    admit(BOTH, host)
    lines = manifest_lines(host, ONE.folder) or []
    assert lines[:2] == ["9\t1.000000000\tff\told.gguf", "no line of ours"]
    assert [line.split("\t")[3] for line in lines[2:]] == ["a.gguf", "b.gguf"]
    assert not host.has_done("touch")


def test_a_link_is_no_file_that_has_arrived() -> None:
    """The folder belongs to the user that fetches: root gives nobody what a link of that user leads to."""
    host = arrived()
    del host.files[f"{STORE}/.incoming/{sha256(A)}"]
    host.links[f"{STORE}/.incoming/{sha256(A)}"] = "/etc/shadow"
    host.files["/etc/shadow"] = File("root:hash")
    host.links[WARNINGS] = "/etc/shadow"
    with pytest.raises(FailedError, match=r"a\.gguf is neither"):
        admit(BOTH, host)
    assert host.log == []
    assert not any("/etc/shadow" in word for words in host.done for word in words)


def test_all_that_fails_is_reported() -> None:
    host = ModelsHost({})
    with pytest.raises(FailedError) as raised:
        admit(BOTH, host)
    assert "/one nor" in raised.value.log[0]
    assert "/two nor" in raised.value.message
    assert raised.value.fix == "run `herd up` again"


@pytest.mark.parametrize("program", ["mv", "chown", "chmod"])
def test_what_a_program_refuses_is_a_failure_with_its_words(program: str) -> None:
    host = arrived()
    host.ends = {program: Ended(1, "", f"{program}: No space left on device")}
    with pytest.raises(FailedError) as raised:
        admit(AdmitInput(STORE, (ONE,)), host)
    assert raised.value.log == (f"{program}: No space left on device",)
    assert not raised.value.fix


def test_a_full_disk() -> None:
    host = arrived()
    host.full = f"{STORE}/one/.manifest"
    with pytest.raises(FailedError, match=r"cannot write .*: No space left on device"):
        admit(BOTH, host)
    assert is_vouched(host, TWO.folder, "b.gguf", sha256(B))


def test_a_full_disk_before_anything_is_let_in() -> None:
    class Full(ModelsHost):
        def folder(self, path: str, *, mode: int = 0o755) -> None:
            del mode
            raise OSError(errno.ENOSPC, "No space left on device", path)

    with pytest.raises(FailedError, match=f"cannot write {STORE}"):
        admit(BOTH, Full({}))
