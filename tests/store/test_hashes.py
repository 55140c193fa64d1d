"""The script that hashes models, run on this machine on files that are whole, damaged and gone."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from llamaherd.host.protocol import heard
from llamaherd.plan import ModelFile, ModelPlan
from llamaherd.store.hashes import HashProgress, Hearing, files_once, hash_script
from tests.support.store_host import OLD, StoreHost

HASH = "01" * 8
SHA, OTHER_SHA = "12" * 32, "34" * 32


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
    assert checks[2].detail == "it has 1 bytes, the lock says 7"
    manifest = host.store / folder / ".manifest"
    assert [line.split("\t")[3] for line in manifest.read_text().splitlines()] == [names[0], names[3]]
    assert manifest.stat().st_mode & 0o777 == 0o644


def test_a_folder_in_a_files_place_is_missing(host: StoreHost) -> None:
    host.put(f"org/name/{OLD}/a.gguf").unlink()
    (host.store / f"org/name/{OLD}/a.gguf").mkdir()
    assert host.hash(host.model(f"org/name/{OLD}", "a.gguf"))[0].status == "missing"


def test_a_file_that_cannot_be_read_is_damaged(host: StoreHost) -> None:
    """The kernel has files that open and that no one can read, as those of a disk that fails."""
    folder = f"org/name/{OLD}"
    host.put(f"{folder}/a.gguf").unlink()
    (host.store / folder / "a.gguf").symlink_to("/proc/self/clear_refs")
    model = host.model(folder, "a.gguf", content=b"")
    (check,) = host.hash(model)
    assert check.status == "damaged"
    assert check.detail == "it cannot be read: Invalid argument; is the disk failing?"


def test_a_file_that_was_brought_again_meanwhile_stays_vouched_for(host: StoreHost) -> None:
    folder = f"org/name/{OLD}"
    host.put(f"{folder}/a.gguf").write_bytes(b"weighty")
    plan = host.plan(host.model(folder, "a.gguf"))
    # While it is hashed, somebody puts the right one in its place.
    late = hash_script(plan).replace(
        "    if wait $hasher; then", f"    sleep 0.1; touch '{host.store}/{folder}/a.gguf'\n    if wait $hasher; then"
    )
    hearing = Hearing(files_once(plan))
    for line in host.asked(late):
        hearing.hear(line)
    (check,) = hearing.checks()
    assert (check.status, check.dropped) == ("damaged", False)
    assert "a.gguf" in (host.store / folder / ".manifest").read_text()


def test_how_far_it_is_is_told_and_nobody_hashes_once_nobody_listens(host: StoreHost) -> None:
    folder = f"org/name/{OLD}"
    host.put(f"{folder}/a.gguf", b"")
    size = 200 << 30
    os.truncate(host.store / folder / "a.gguf", size)  # a hole, which takes minutes to hash and nothing of the disk
    model = ModelPlan(
        name="m", folder=f"{host.store}/{folder}", files=(ModelFile(name="a.gguf", sha256=SHA, size=size),)
    )
    plan = host.plan(model)
    hearing = Hearing(files_once(plan))
    process = subprocess.Popen(["sh", "-s"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    assert process.stdout
    process.stdin.write(host.moved(hash_script(plan)).replace("ticks % 20", "ticks % 2"))
    process.stdin.close()
    told: list[HashProgress] = []
    lines = heard(line.rstrip("\n") for line in process.stdout)
    while len(told) < 3:
        hearing.hear(next(lines))
        told += [hearing.progress] if hearing.progress else []
    assert told[0].done == 0 < told[-1].done < told[-1].total == size
    process.stdout.close()
    process.wait(timeout=300)
    until = time.monotonic() + 300
    while reading(host.store) and time.monotonic() < until:
        time.sleep(0.05)
    assert reading(host.store) == []


def reading(store: Path) -> list[str]:
    """The processes that read from the store."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "fd/0").readlink().is_relative_to(store):
                found.append(process.name)
    return found


def test_scratch_is_gone(host: StoreHost, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = host.root / "tmp"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    host.put(f"org/name/{OLD}/a.gguf")
    assert host.hash(host.model(f"org/name/{OLD}", "a.gguf"))[0].status == "ok"
    assert list(scratch.iterdir()) == []
    shutil.rmtree(scratch)
