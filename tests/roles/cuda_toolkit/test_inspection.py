"""What is inspected of the CUDA toolkit: on a played host, and on this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from llamaherd.onhost.document import decode, dump, parse_document
from llamaherd.onhost.system import TIMED_OUT, Ended, Host
from llamaherd.onhost.verbs import find_verb
from roles.cuda_toolkit.onhost import Found, InspectInput, RoomState, inspect
from tests.support.inspected_host import RootedHost
from tests.support.played_host import File
from tests.support.recording import InspectedHost

NVCC = "/usr/local/cuda-13.0/bin/nvcc"
GIVEN = InspectInput("13.0", NVCC)
PRINTED = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0\n"


@pytest.mark.parametrize(
    ("ended", "version"),
    [
        (Ended(0, PRINTED), "13.0"),
        (Ended(0, "release $(id), x"), ""),
        (Ended(126, "", "release 1,"), ""),
        (Ended(TIMED_OUT), ""),
    ],
)
def test_the_compiler_prints_its_version(ended: Ended, version: str) -> None:
    played = InspectedHost({}, ends={NVCC: ended})
    played.files[NVCC] = File("", 0o755)
    assert inspect(GIVEN, played) == Found(version=version)
    assert played.done == [[NVCC, "--version"]]


def test_where_there_is_no_compiler_there_is_room_for_one() -> None:
    played = InspectedHost({})
    played.folders |= {"/", "/usr/local"}
    played.files[NVCC] = File("", 0o644)
    found = decode(Found, parse_document(dump(inspect(GIVEN, played)).encode()))
    assert found == Found(room=RoomState("/usr/local", 1 << 40, "", 0))
    assert played.done == []
    assert find_verb("cuda_toolkit.inspect").input is InspectInput


@pytest.mark.usefixtures("starts_processes")
def test_what_is_here_of_an_unfinished_toolkit(tmp_path: Path) -> None:
    host = RootedHost(tmp_path)
    files = ("usr/local/cuda-13.0/lib/a", "usr/local/cuda-13.0/b")
    archives = "var/cache/apt/archives"
    debs = (f"{archives}/cuda-nvcc-13-0_13.0.88-1_amd64.deb", f"{archives}/cuda-x-13-0_1_all.deb")
    others = (f"{archives}/cuda-nvcc-12-8_12.8.1_amd64.deb", f"{archives}/cuda-13-0_x.txt", "usr/local/cuda-12.8/c")
    paths = [host.put(f"/{path}", "x" * 10_000) for path in (*files, *debs, *others)]
    ours = [*paths[:4], tmp_path / "usr/local/cuda-13.0", tmp_path / "usr/local/cuda-13.0/lib"]
    found = inspect(GIVEN, host)
    assert found.room
    assert found.room.begun == sum(path.stat().st_blocks for path in ours) * 512 > 0
    assert host.ran == []


@pytest.mark.usefixtures("starts_processes")
def test_the_room_of_this_machine(tmp_path: Path) -> None:
    """It has no CUDA 99.9."""
    nvcc = tmp_path / "nvcc"
    room = inspect(InspectInput("99.9", str(nvcc)), Host(print, print)).room
    assert room
    assert (room.folder, room.begun, bool(room.device)) == ("/usr/local", 0, True)
    assert abs(room.free - shutil.disk_usage("/usr/local").free) < 10**9
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 99.9, V99.9.1'\n")
    nvcc.chmod(0o755)
    assert inspect(InspectInput("99.9", str(nvcc)), Host(print, print)) == Found(version="99.9")
