"""The verb that removes what nobody uses, run on this machine: what goes, what stays, and what a kill leaves."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llamaherd.layout import FETCH_RUN, INCOMING, LOCKS
from llamaherd.onhost.removal import Outcome
from llamaherd.onhost.store import Item, PruneInput, prune
from llamaherd.onhost.system import HeldError
from llamaherd.store.holdings import Removal
from tests.support.played_host import File, PlayedHost
from tests.support.service_host import killed_everywhere
from tests.support.store_host import NEW, OLD, StoreHost, folders
from tests.support.used_host import UsedHost

HASH = "01" * 8
SHA, OTHER_SHA = "12" * 32, "34" * 32
pytestmark = pytest.mark.usefixtures("starts_processes")


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


# On a played host

STORE, FOLDER = "/srv/models", f"org/name/{OLD}"
GIVEN = PruneInput(
    STORE,
    (Item(FOLDER), Item(f"org/name/{NEW}", files=("b.gguf", "c.gguf"), keep=("a.gguf",))),
    parts=(SHA,),
    uploads=(f"{INCOMING}/{SHA}",),
    keep=0,
)


def littered(**more: Any) -> UsedHost:
    """Return a host with two revisions, a part and an upload."""
    lines = "".join(f"7\t0.000000000\tff\t{name}.gguf\n" for name in "abc")
    files = {
        f"{STORE}/{FOLDER}/a.gguf": File("weights"),
        f"{STORE}/{FOLDER}/.manifest": File("7\t0.000000000\tff\ta.gguf\n"),
        **{f"{STORE}/org/name/{NEW}/{name}.gguf": File("weights") for name in "abc"},
        f"{STORE}/org/name/{NEW}/.manifest": File(lines),
        f"{STORE}/.incoming/{SHA}.part": File("x"),
        f"{STORE}/.incoming/{OTHER_SHA}.part": File("x"),
        f"{STORE}/.trash-0123/it/a.gguf": File("left"),
        f"{INCOMING}/{SHA}": File("x"),
    }
    return UsedHost({}, files=files, **more)


def test_killed_anywhere_nothing_looks_whole_that_is_not() -> None:
    """What a manifest lists is there, and the next run removes what is left."""
    for host in killed_everywhere(littered, lambda host: prune(GIVEN, host)):
        left = {path.removeprefix(f"{STORE}/") for path in host.files if path.startswith(STORE)}
        assert left == {f"org/name/{NEW}/a.gguf", f"org/name/{NEW}/.manifest", f".incoming/{OTHER_SHA}.part"}
        assert host.read(f"{STORE}/org/name/{NEW}/.manifest") == "7\t0.000000000\tff\ta.gguf\n"


def test_at_no_moment_is_a_listed_file_gone() -> None:
    def inspect(host: PlayedHost) -> None:
        for path in [each for each in host.files if each.endswith("/.manifest")]:
            folder = path.removesuffix("/.manifest")
            listed = [line.split("\t")[3] for line in (host.read(path) or "").splitlines()]
            assert folder.endswith("/it") or all(f"{folder}/{name}" in host.files for name in listed)

    host = littered(seen=inspect)
    assert prune(GIVEN, host).ok
    assert host.steps > 10


def test_a_store_that_is_gone_has_nothing_to_remove() -> None:
    done = prune(GIVEN, UsedHost({}))
    assert set(done.kept) == {FOLDER, f"org/name/{NEW}"}


@pytest.mark.parametrize("folder", ["..", "org/../..", "", "/etc", "org//name", "."])
def test_what_leads_out_of_the_store_is_not_there(folder: str) -> None:
    host = littered()
    host.files["/etc/passwd"] = File("root")
    before = {path for path in host.files if "trash" not in path}
    assert prune(PruneInput(STORE, (Item(folder),)), host).kept == {folder: "it no longer exists"}
    assert set(host.files) == before


def test_files_of_a_folder_without_a_manifest_stay() -> None:
    host = littered()
    del host.files[f"{STORE}/org/name/{NEW}/.manifest"]
    assert prune(GIVEN, host).kept == {f"org/name/{NEW}": "it cannot be removed"}
    assert f"{STORE}/org/name/{NEW}/b.gguf" in host.files


def test_a_full_disk_keeps_the_list_and_the_files() -> None:
    host = littered(full=".manifest")
    assert prune(GIVEN, host).kept == {f"org/name/{NEW}": "it cannot be removed"}
    assert f"{STORE}/org/name/{NEW}/b.gguf" in host.files


def test_a_disk_that_fails_keeps_parts() -> None:
    class Failing(UsedHost):
        def remove(self, path: str) -> None:
            if path.endswith(".part"):
                raise OSError(5, "Input/output error", path)
            super().remove(path)

    host = Failing({}, files=littered().files)
    assert prune(GIVEN, host).kept == {f".incoming/{SHA}": "it cannot be removed"}


def test_nothing_goes_while_what_arrived_is_let_in() -> None:
    class Held(UsedHost):
        @contextmanager
        def lock(self, name: str, seconds: float, purpose: str) -> Iterator[bool]:
            if name == "store":
                raise HeldError("another run holds it")
            with super().lock(name, seconds, purpose) as waited:
                yield waited

    host = Held({}, files=littered().files)
    host.links[f"{FETCH_RUN}/progress"] = "/etc/shadow"
    host.files["/etc/shadow"] = File("root:hash")
    assert prune(GIVEN, host) == Outcome(busy="")
    assert f"{STORE}/{FOLDER}/a.gguf" in host.files
