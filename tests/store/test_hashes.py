"""The verb that hashes models, run on this machine on files that are whole, damaged and gone."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from llamaherd.host.program import request
from llamaherd.onhost.store import FileHash, HashedFile, Hashes, HashInput, hash_files
from llamaherd.onhost.system import FailedError, HeldError
from llamaherd.plan import ModelFile
from llamaherd.store.files import HashProgress, checks_of, progress_of
from tests.support.models_host import ModelsHost
from tests.support.played_host import File
from tests.support.store_host import OLD, StoreHost
from tests.support.stores import REPOSITORY

SHA = "12" * 32


@pytest.fixture
def host(tmp_path: Path) -> StoreHost:
    """A host whose store is empty."""
    return StoreHost.made(tmp_path)


def test_damage_is_found_and_no_longer_vouched_for(host: StoreHost) -> None:
    folder = f"org/name/{OLD}"
    names = ["good one.gguf", "it's bad.gguf", "short.gguf", "gone.gguf"]
    for name in names:
        host.put(f"{folder}/{name}")
    (host.store / folder / names[1]).write_bytes(b"weighty")
    (host.store / folder / names[2]).write_bytes(b"w")
    (host.store / folder / names[3]).unlink()
    checks = host.hash(host.model(folder, *names))
    assert [(check.status, check.dropped) for check in checks] == [
        ("ok", False),
        ("damaged", True),
        ("damaged", True),
        ("missing", False),
    ]
    assert "its sha256 is" in checks[1].detail
    assert checks[2].detail == "it has 1 bytes, the lock has 7"
    manifest = host.store / folder / ".manifest"
    assert [line.split("\t")[3] for line in manifest.read_text().splitlines()] == [names[0], names[3]]
    assert manifest.stat().st_mode & 0o777 == 0o644


def test_a_folder_in_a_files_place_is_missing(host: StoreHost) -> None:
    host.put(f"org/name/{OLD}/a.gguf").unlink()
    (host.store / f"org/name/{OLD}/a.gguf").mkdir()
    assert host.hash(host.model(f"org/name/{OLD}", "a.gguf"))[0].status == "missing"


@dataclass
class Disk(ModelsHost):
    """A played host whose disk fails, or where a file is replaced while it is read."""

    fails: bool = False
    replaced: bool = False
    heard: bool = True

    def hash(self, path: str, read: Callable[[int], None]) -> str:
        """Hash a file."""
        if self.fails:
            raise OSError(errno.EIO, "Input/output error", path)
        read(1)
        self.time += 3
        read(2)
        if self.replaced:
            self.files[path] = File(self.files[path].text)
        return super().hash(path, read)

    def is_heard(self) -> bool:
        """Return whether the controller is there."""
        return self.heard


FILE = HashedFile("/srv/m", "a.gguf", SHA, 7)


def played(**more: bool) -> Disk:
    """Return a host with a file that its manifest lists, and that is not what it should be."""
    files = {"/srv/m/a.gguf": File("weighty"), "/srv/m/.manifest": File(f"7\t0.000000000\t{SHA}\ta.gguf\n")}
    return Disk({}, files=files, fails=more.get("fails", False), replaced=more.get("replaced", False))


def test_a_file_that_cannot_be_read_is_damaged() -> None:
    """As of a disk that fails."""
    host = played(fails=True)
    (found,) = hash_files(HashInput((FILE,)), host).files
    assert found == FileHash("unreadable", "Input/output error", dropped=True)
    wanted = {("/srv/m", "a.gguf"): ModelFile(name="a.gguf", sha256=SHA, size=7)}
    (check,) = checks_of(wanted, Hashes((found,))).values()
    assert (check.status, check.detail) == ("damaged", "it cannot be read: Input/output error; is the disk failing?")
    assert host.read("/srv/m/.manifest") == ""


def test_a_file_that_was_brought_again_meanwhile_stays_vouched_for() -> None:
    host = played(replaced=True)
    (found,) = hash_files(HashInput((FILE,)), host).files
    assert (found.what, found.dropped) == ("hashed", False)
    assert "a.gguf" in (host.read("/srv/m/.manifest") or "")


def test_a_file_stays_vouched_for_where_the_store_is_held_or_full() -> None:
    class Held(Disk):
        @contextmanager
        def lock(self, name: str, seconds: float, purpose: str) -> Iterator[bool]:
            del self, seconds, purpose
            raise HeldError(f"another run holds {name}")
            yield False

    host = Held({}, files=played().files)
    assert not hash_files(HashInput((FILE,)), host).files[0].dropped
    full = played()
    full.full = ".manifest"
    assert not hash_files(HashInput((FILE,)), full).files[0].dropped
    assert "a.gguf" in (full.read("/srv/m/.manifest") or "")


def test_progress_is_reported_while_somebody_reads_it() -> None:
    host = played()
    two = HashInput((FILE, HashedFile("/srv/m", "gone.gguf", SHA, None)))
    hash_files(two, host)
    assert host.log == ["at 0 0 7", "at 0 2 7"]
    names = ["a.gguf", "gone.gguf"]
    assert progress_of("at 0 2 7", names) == HashProgress(2, 7, "a.gguf")
    assert [progress_of(line, names) for line in ("at 2 0 7", "waiting for another run", "at x 0 7")] == [None] * 3
    host = played()
    host.heard = False
    with pytest.raises(FailedError, match="the connection ended"):
        hash_files(HashInput((FILE,)), host)


def test_it_takes_what_the_host_can_spare() -> None:
    host = played()
    hash_files(HashInput((FILE,)), host)
    assert [words[:4] for words in host.done[:2]] == [["renice", "-n", "19", "-p"], ["ionice", "-c", "3", "-p"]]


def test_nobody_hashes_once_nobody_listens(tmp_path: Path) -> None:
    """The program itself, whose reader goes."""
    (tmp_path / "a.gguf").write_bytes(b"")
    os.truncate(tmp_path / "a.gguf", 200 << 30)  # a hole, which takes minutes to hash and nothing of the disk
    given = HashInput((HashedFile(str(tmp_path), "a.gguf", SHA, 200 << 30),))
    command = [sys.executable, "-c", "import sys; from llamaherd.onhost.verbs import main; sys.exit(main([]))"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY)
    assert process.stdin
    assert process.stdout
    process.stdin.write(request("llamaherd.store.hash", given))
    process.stdin.close()
    assert json.loads(process.stdout.readline()) == {"event": "progress", "text": f"at 0 0 {200 << 30}"}
    process.stdout.close()
    try:
        assert process.wait(timeout=120) == 1
    finally:
        process.kill()
