"""A release is installed: fetched over real HTTP by the real fetcher, unpacked, started, or refused if it is unfit."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llamaherd.onhost.system import FailedError, Host
from roles.engines.onhost import is_intact, is_whole, stamp_of, write_stamp
from roles.engines.onhost.prebuilt import ArchiveInput, GpuCode, ReleaseInput, gpu_code, install_release, unpack
from tests.support.hub_server import Hub
from tests.support.release_archives import LINKS, TAG, compile_release, entry, fetcher, pack
from tests.support.stores import needs_root

pytestmark = needs_root

REPO = "ggml-org/llama.cpp"
MAIN, LIBRARIES = f"llama-{TAG}-bin-ubuntu-x64.tar.gz", f"cudart-llama-{TAG}-bin-ubuntu-cuda-13.4-x64.tar.gz"
FATBIN = Path(__file__).resolve().parents[2] / "data" / "gpu_code.fatbin"
"""What nvcc of CUDA 13.0 makes of an empty kernel: machine code for 75, and PTX for 90."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return {"LICENSE": b"MIT", **compile_release(tmp_path_factory.mktemp("release"))}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A server that has archives behind a redirect, as GitHub has."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Hub({}, cdn=True) as running:
        yield running


@pytest.fixture
def given(tmp_path: Path, hub: Hub) -> Callable[..., ReleaseInput]:
    def make(*archives: tuple[str, bytes], **changes: Any) -> ReleaseInput:
        commit = hub.push(REPO, dict(archives))
        entries = [(name, entry(f"{hub.url}/{REPO}/resolve/{commit}/{name}", data)) for name, data in archives]
        for folder in ("work", "cache/sources"):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        plain = ReleaseInput(
            id="llama.cpp-1",
            kind="llama.cpp",
            tag=TAG,
            git=f"https://github.com/{REPO}",
            commit="cd" * 20,
            archives=tuple(ArchiveInput(name, each.url, each.sha256, each.size) for name, each in entries),
            targets=("llama-server", "llama-fit-params"),
            architectures=(),
            cuda="",
            lists_flags=True,
            lists_devices=True,
            connections=4,
            bandwidth=(),
            seconds=60,
            work=str(tmp_path / "work"),
            cache=str(tmp_path / "cache"),
            user="root",
            fetcher=fetcher(tmp_path),
        )
        return replace(plain, **changes)

    return make


def failed(given: ReleaseInput) -> FailedError:
    """Return why a release is not installed. Nothing of it may count as finished."""
    with pytest.raises(FailedError) as caught:
        install_release(given, Host(print, print))
    assert not Path(given.work, "out", "manifest.json").exists()
    written = Path(given.work, "failed").read_text()
    assert written == "".join(f"{line}\n" for line in (caught.value.message, caught.value.fix) if line)
    return caught.value


def test_a_release_is_installed_as_a_build_is(files: dict[str, bytes], given: Callable[..., ReleaseInput]) -> None:
    release = given((MAIN, pack(files, LINKS)))
    install_release(release, Host(print, print))
    home = Path(release.work, "out")
    manifest = json.loads((home / "manifest.json").read_text())
    assert manifest["release"] == TAG
    assert manifest["version"] == "version: 11434 (cdcdcdcdc)"
    assert manifest["archives"] == {MAIN: release.archives[0].sha256}
    assert {*manifest["sha256"]} == {*files, *LINKS}
    assert (home / "manifest.json").read_text().count("\n") == 1
    assert (home / "flags").read_text() == "-h,--help\n--port N\n"
    # It runs where it is moved to, and links are further names of one file: inspections see plain files alone.
    moved = home.rename(home.with_name("llama.cpp-1"))
    ran = subprocess.run([moved / "bin/llama-server", "--version"], capture_output=True, text=True, check=True)
    assert "11434" in ran.stderr
    assert (moved / "bin/libllama.so").samefile(moved / "bin/libllama.so.0.0.1")
    assert not any(each.is_symlink() for each in (moved / "bin").iterdir())
    assert {f"{each.stat().st_mode & 0o777:o}" for each in (moved / "bin").iterdir()} == {"755", "644"}
    host = Host(print, print)
    write_stamp(str(moved), host)
    assert is_whole(str(moved), release.targets, host)
    assert is_intact(str(moved), host)
    stamp = stamp_of(str(moved), host)
    (moved / "bin" / "libllama.so.0.0.1").write_bytes(b"another")
    assert stamp_of(str(moved), host) != stamp
    assert not is_intact(str(moved), host)
    # The archives have served their purpose.
    assert [*Path(release.cache, "sources").glob(f"{release.archives[0].sha256}*")] == []


def test_an_interrupted_fetch_resumes(hub: Hub, files: dict[str, bytes], given: Callable[..., ReleaseInput]) -> None:
    noise = os.urandom(24 << 20)
    release = given((MAIN, pack({**files, "noise.bin": noise}, LINKS)))
    # Each response stops in the middle and stays silent.
    hub.stall_after = 6 << 20
    caught = failed(replace(release, seconds=5))
    assert "has not arrived within" in caught.message
    (part,) = Path(release.cache, "sources").glob("*.part")
    kept = part.stat().st_blocks * 512
    assert kept > 0
    hub.stall_after, before = None, hub.sent
    install_release(release, Host(print, print))
    assert hub.sent - before <= release.archives[0].size - kept + (1 << 20)
    assert Path(release.work, "out/bin/noise.bin").read_bytes() == noise


def test_an_archive_with_another_hash_is_not_unpacked(
    hub: Hub, files: dict[str, bytes], given: Callable[..., ReleaseInput]
) -> None:
    release = given((MAIN, pack(files, LINKS)))
    hub.corrupt = {MAIN}
    caught = failed(release)
    assert f"release {TAG}: {MAIN} cannot be fetched" in caught.message
    assert "with sha256" in caught.message
    assert "herd lock --upgrade" in caught.fix
    assert not any(Path(release.work, "out/bin").iterdir())
    assert not Path(release.cache, "sources", release.archives[0].sha256).exists()


def test_a_withdrawn_release_is_named(hub: Hub, files: dict[str, bytes], given: Callable[..., ReleaseInput]) -> None:
    release = given((MAIN, pack(files, LINKS)))
    hub.status = {MAIN: 404}
    assert "(404)" in failed(release).message


def test_a_release_without_a_program_is_refused(files: dict[str, bytes], given: Callable[..., ReleaseInput]) -> None:
    few = {name: data for name, data in files.items() if name != "llama-fit-params"}
    caught = failed(given((MAIN, pack(few, LINKS))))
    assert caught.message == f"release {TAG} has no llama-fit-params"
    assert f"write `ref: {TAG}`" in caught.fix


def test_a_release_that_does_not_run_here_names_the_loaders_reason(
    files: dict[str, bytes], given: Callable[..., ReleaseInput]
) -> None:
    caught = failed(given((MAIN, pack({n: d for n, d in files.items() if "so" not in n}, {}))))
    assert f"release {TAG} does not run on this host: " in caught.message
    assert "libllama.so.0: cannot open shared object file" in caught.message
    assert f"write `ref: {TAG}`" in caught.fix
    caught = failed(given((MAIN, pack({**files, "llama-server": b"\x7fELF for another processor"}, LINKS))))
    assert "does not run on this host: " in caught.message


def test_cudas_libraries_come_from_a_second_archive(
    files: dict[str, bytes], given: Callable[..., ReleaseInput]
) -> None:
    more = pack({"LICENSE": b"NVIDIA's", "libcudart.so.13": b"cudart"}, {}, "cudart")
    main = pack({**files, "libggml-cuda.so": b"x" * 5000 + FATBIN.read_bytes()}, LINKS)
    release = given((MAIN, main), (LIBRARIES, more), cuda="13", architectures=(75, 86, 90))
    # 86 runs machine code for 75 in no case, and PTX for 90 is above it.
    caught = failed(release)
    assert caught.message == f"release {TAG} has no code for GPUs of architecture 86, only for 75, 90"
    install_release(replace(release, architectures=(75, 90, 120)), Host(print, print))
    there = Path(release.work, "out/bin")
    assert (there / "libcudart.so.13").read_bytes() == b"cudart"
    assert (there / "LICENSE").read_bytes() == b"MIT"
    assert json.loads((there.parent / "manifest.json").read_text())["cuda"] == "13"


def test_a_cuda_release_without_a_device_is_refused(
    tmp_path: Path, files: dict[str, bytes], given: Callable[..., ReleaseInput]
) -> None:
    (tmp_path / "blind").write_text('#!/bin/sh\necho "version: 1"\n')
    blind = {**files, "llama-server": (tmp_path / "blind").read_bytes()}
    release = given((MAIN, pack(blind, LINKS)), cuda="13", architectures=(86,))
    assert "its server finds no CUDA device" in failed(release).message


# --- unpacking ----------------------------------------------------------------------------------------------


def member(name: str, data: bytes = b"x", **about: Any) -> tuple[tarfile.TarInfo, bytes]:
    made = tarfile.TarInfo(name)
    made.size = len(data)
    for key, value in about.items():
        setattr(made, key, value)
    return made, data


def archive_of(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as packed:
        for about, data in members:
            packed.addfile(about, io.BytesIO(data))
    return path


SYMLINK, HARD, DEVICE, PIPE = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE
REFUSED = {
    "leads out": ([member("../evil")], "has a name that is refused: '../evil'"),
    "leads out below": ([member("a/../../evil")], "has a name that is refused"),
    "absolute": ([member("/etc/evil")], "has a name that is refused"),
    "odd name": ([member("a/b\nc")], "has a name that is refused"),
    "an option": ([member("a/-rf")], "has a name that is refused"),
    "twice": ([member("a/x"), member("a/x")], "has two files named x"),
    "twice in folders": ([member("a/x"), member("b/x")], "has two files named x"),
    "link out": ([member("a/x", b"", type=SYMLINK, linkname="../../etc/passwd")], "has a name that is refused"),
    "link to a file of the host": ([member("a/x", b"", type=SYMLINK, linkname="/etc/passwd")], "is refused"),
    "link to nothing": ([member("a/x", b"", type=SYMLINK, linkname="y")], "has a link to no file of it: x"),
    "link to itself": ([member("a/x", b"", type=SYMLINK, linkname="x")], "has a link to no file of it: x"),
    "hard link out": ([member("a/x", b"", type=HARD, linkname="../x")], "has a name that is refused"),
    "device": ([member("a/x", b"", type=DEVICE)], "has a member that is no file: x"),
    "pipe": ([member("a/x", b"", type=PIPE)], "has a member that is no file: x"),
    "many": ([member(f"a/{n}") for n in range(1001)], "has more than 1000 files"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_archive_that_may_do_harm_is_refused(tmp_path: Path, case: str) -> None:
    members, why = REFUSED[case]
    (tmp_path / "out" / "bin").mkdir(parents=True)
    with pytest.raises(FailedError) as caught:
        unpack(archive_of(tmp_path / "a.tar.gz", *members), "a.tar.gz", tmp_path / "out" / "bin")
    assert why in caught.value.message
    assert {each.name for each in tmp_path.iterdir()} == {"a.tar.gz", "out"}
    assert {each.name for each in (tmp_path / "out").iterdir()} == {"bin"}


def test_a_small_archive_of_gigabytes_is_refused(tmp_path: Path) -> None:
    about = tarfile.TarInfo("a/x")
    about.size = 17 << 30
    (tmp_path / "a.tar").write_bytes(about.tobuf())
    (tmp_path / "bin").mkdir()
    with pytest.raises(FailedError, match="than 16 GiB"):
        unpack(tmp_path / "a.tar", "a.tar", tmp_path / "bin")


@pytest.mark.parametrize("cut", [0, 5, 500])
def test_a_damaged_archive_is_refused(tmp_path: Path, files: dict[str, bytes], cut: int) -> None:
    (tmp_path / "a.tar.gz").write_bytes(pack(files, LINKS)[:cut])
    (tmp_path / "bin").mkdir()
    with pytest.raises(FailedError, match="is no archive that can be read"):
        unpack(tmp_path / "a.tar.gz", "a.tar.gz", tmp_path / "bin")


# --- code for GPUs ------------------------------------------------------------------------------------------


def test_the_code_of_a_library_is_read_as_nvcc_wrote_it(tmp_path: Path) -> None:
    assert gpu_code(FATBIN) == GpuCode(frozenset({75}), frozenset({90}))
    library = tmp_path / "x.so"
    library.write_bytes(os.urandom(3000) + FATBIN.read_bytes() + b"\x50\xed\x55\xba")
    assert gpu_code(library) == GpuCode(frozenset({75}), frozenset({90}))
    for other in (b"", b"\x7fELF", os.urandom(1 << 16)):
        library.write_bytes(other)
        assert gpu_code(library) == GpuCode(frozenset(), frozenset())


@pytest.mark.parametrize(
    ("machine", "ptx", "card", "runs"),
    [
        ({80}, set(), 86, True),
        ({86}, set(), 80, False),
        ({80}, set(), 90, False),
        (set(), {80}, 90, True),
        (set(), {90}, 86, False),
        ({120}, set(), 121, True),
        ({75, 80}, {90}, 61, False),
    ],
)
def test_code_runs_by_nvidias_rules(machine: set[int], ptx: set[int], card: int, runs: bool) -> None:
    assert GpuCode(frozenset(machine), frozenset(ptx)).runs_on(card) is runs
