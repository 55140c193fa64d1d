"""The verb that removes what nobody uses, run on this machine: what goes, what stays, and what a kill leaves."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from llamaherd.layout import LOCKS
from llamaherd.onhost.outcome import Outcome
from llamaherd.store.holdings import Removal
from tests.support.store_host import NEW, OLD, StoreHost, folders

HASH = "01" * 8
SHA, OTHER_SHA = "12" * 32, "34" * 32
pytestmark = pytest.mark.usefixtures("starts_processes")


@pytest.fixture
def host(tmp_path: Path) -> StoreHost:
    """A host whose store is empty."""
    return StoreHost.made(tmp_path)


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that a test starts; they are gone afterwards."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize("folder", [f"org/name/{OLD}", 'it\'s "a" $(touch run) `name`', "-rf", f"a b/c  d/{OLD}"])
def test_a_folder_goes_with_empty_ones_above_it(host: StoreHost, folder: str) -> None:
    host.put(f"{folder}/a b.gguf")
    host.put(f"org/other/{NEW}/a.gguf")
    assert host.prune(Removal(folder)) == Outcome((folder,), {})
    assert host.left() == ["org", "org/other", *(f"org/other/{NEW}{end}" for end in ("", "/.manifest", "/a.gguf"))]


def test_what_has_come_into_use_since_stays(host: StoreHost, started: list[subprocess.Popen[bytes]]) -> None:
    file = host.put(f"org/name/{OLD}/a.gguf")
    host.put(f"org/name/{NEW}/a.gguf")
    removals = host.holdings().removals
    assert len(removals) == 2
    started.append(subprocess.Popen(["sh", "-c", "sleep 60; :", str(file)]))
    told = host.prune(*removals)
    assert told.removed == (f"org/name/{NEW}",)
    assert list(told.kept) == [f"org/name/{OLD}"]
    assert not told.ok
    assert file.read_bytes() == b"weights"
    assert folders(host.holdings()) == {f"org/name/{OLD}": "whole"}


def test_files_that_no_model_has_go_and_the_others_stay_vouched_for(host: StoreHost) -> None:
    kept = host.put(f"org/name/{OLD}/it's $(touch Q4).gguf")
    host.put(f'org/name/{OLD}/`touch Q8` "8".gguf')
    host.put(f"org/name/{OLD}/notes.txt", vouched=False)
    manifest = kept.parent / ".manifest"
    os.utime(manifest, (1_700_000_000, 1_700_000_000))
    line = manifest.read_text().splitlines()[0]
    (removal,) = host.holdings(host.model(f"org/name/{OLD}", kept.name)).removals
    assert (removal.files, removal.keep) == (('`touch Q8` "8".gguf',), (kept.name,))
    assert host.prune(removal).ok
    assert manifest.read_text() == f"{line}\n"
    assert manifest.stat().st_mtime == 1_700_000_000
    assert sorted(path.name for path in kept.parent.iterdir()) == [".manifest", kept.name, "notes.txt"]


def test_files_that_a_running_server_has_beside_the_wanted_ones_stay(
    host: StoreHost, started: list[subprocess.Popen[bytes]]
) -> None:
    host.put(f"org/name/{OLD}/Q4.gguf")
    for shard in (1, 2):
        host.put(f"org/name/{OLD}/Q8-{shard}.gguf")
    model = host.model(f"org/name/{OLD}", "Q4.gguf")
    (removal,) = host.holdings(model).removals
    started.append(subprocess.Popen(["sh", "-c", "sleep 60; :", f"{host.store}/org/name/{OLD}/Q4.gguf"]))
    assert host.holdings(model).removals == (removal,)
    started.append(subprocess.Popen(["sh", "-c", "sleep 60; :", f"{host.store}/org/name/{OLD}/Q8-1.gguf"]))
    assert host.holdings(model).removals == ()
    assert list(host.prune(removal).kept) == [f"org/name/{OLD}"]
    assert (host.store / f"org/name/{OLD}/Q8-2.gguf").exists()


def test_unwanted_parts_go_with_their_state(host: StoreHost) -> None:
    incoming = host.store / ".incoming"
    incoming.mkdir()
    for name in (SHA, f"{SHA}.part", f"{SHA}.state", f"{OTHER_SHA}.part"):
        (incoming / name).write_bytes(b"x")
    assert host.prune(Removal(f".incoming/{SHA}")).ok
    assert host.left() == [".incoming", f".incoming/{OTHER_SHA}.part"]


def test_nothing_goes_while_a_fetch_begins(host: StoreHost) -> None:
    host.put(f"org/name/{OLD}/a.gguf")
    locks = Path(f"{host.root}{LOCKS}")
    locks.mkdir(mode=0o700)
    command = ["flock", str(locks / "fetch"), "sh", "-c", "echo held; exec sleep 60"]
    held = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert held.stdout
    held.stdout.readline()
    try:
        assert host.prune(Removal(f"org/name/{OLD}")) == Outcome((), {}, "")
    finally:
        os.killpg(held.pid, signal.SIGKILL)
        held.wait()
    assert folders(host.holdings()) == {f"org/name/{OLD}": "whole"}
