"""Install an engine whose authors have built it: fetch their archives, unpack them, and start the server once.

It runs as the user llama-build, in a unit of its own. An installed engine has a manifest, which is written last.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import struct
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from llamaherd.layout import BUILD_PATH, BUILD_USER, CACHE, LAUNCHER
from llamaherd.onhost.system import TIMED_OUT, Ended, FailedError, System
from llamaherd.onhost.verbs import Verb
from roles.engines.onhost.compiling import LOGS, last_line, reason_kept, sha256sum, start_server

MOST_FILES, MOST_BYTES = 1000, 16 << 30
"""Files of an archive, and their bytes. llama.cpp b11026 has 61 files; with CUDA's libraries they have some 2 GB."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")
_MOST_LINKS = 8
"""Links that lead from one to the next."""
_BUFFER = 1 << 20
_ANEW = "run `herd up` again: it resumes. If the release has changed, `herd lock --upgrade` and its engine lock it anew"


@dataclass(frozen=True)
class ArchiveInput:
    """An archive of a release: the name of its file, its URL, its sha256, and its size in bytes."""

    name: str
    url: str
    sha256: str
    size: int


@dataclass(frozen=True)
class BandwidthInput:
    """The most bytes per second between two times of day, `HH:MM`."""

    begin: str
    end: str
    bytes_per_second: int


@dataclass(frozen=True)
class ReleaseInput:
    """A release to install."""

    id: str
    kind: str
    tag: str
    git: str
    commit: str
    archives: tuple[ArchiveInput, ...]
    targets: tuple[str, ...]
    """Programs that must be in it."""
    architectures: tuple[int, ...]
    """Architectures of the GPUs that it must have code for."""
    cuda: str
    """The major version of CUDA; empty for a release for the CPU."""
    lists_flags: bool
    lists_devices: bool
    connections: int
    bandwidth: tuple[BandwidthInput, ...]
    seconds: int
    """How long the archives may take to arrive."""
    work: str = str(BUILD_PATH)
    cache: str = str(CACHE)
    user: str = BUILD_USER
    fetcher: str = LAUNCHER


def install_release(given: ReleaseInput, system: System) -> None:
    """Install a release in `out`. Raise FailedError, and write the reason to `failed`."""
    with reason_kept(given.work, given.user, system):
        _install(given, system)


def _install(given: ReleaseInput, system: System) -> None:
    began = int(system.clock())
    for name in ("out", "failed", "fetch", "fetch.log", *LOGS):
        system.remove(f"{given.work}/{name}")
    system.folder(f"{given.work}/out/bin")
    _fetch(given, system)
    names: list[str] = []
    for archive in given.archives:
        names += unpack(Path(_arrived(given, archive)), archive.name, Path(given.work, "out", "bin"))
    if missing := sorted({*given.targets} - {*names}):
        raise FailedError(f"release {given.tag} has no {' and no '.join(missing)}", _instead(given))
    _require_gpu_code(given, [name for name in names if name.startswith("libggml-cuda")])
    version = start_server(given, lambda ended: _not_started(given, ended), system)
    about: dict[str, object] = {
        "id": given.id,
        "kind": given.kind,
        "source": {"git": given.git, "commit": given.commit},
        "release": given.tag,
        "archives": {each.name: each.sha256 for each in given.archives},
        "cuda": given.cuda,
        "version": version,
        "seconds": int(system.clock()) - began,
        # Last, and all in one line: the inspection reads it so.
        "sha256": {name: sha256sum(system, f"{given.work}/out/bin/{name}") for name in sorted(names)},
    }
    system.write(f"{given.work}/out/manifest.json", f"{json.dumps(about)}\n", mode=0o644, owner=given.user)
    for archive in given.archives:
        system.remove(_arrived(given, archive))


def _instead(given: ReleaseInput) -> str:
    return f"name another release, or write `ref: {given.tag}` in place of `release`, which builds it on the host"


def _not_started(given: ReleaseInput, ended: Ended) -> FailedError:
    """Return why a server does not start: often the loader's own words, of a library that is missing or too old."""
    reason = "it does not respond" if ended.code == TIMED_OUT else last_line(ended)[:300] or f"exit code {ended.code}"
    return FailedError(f"release {given.tag} does not run on this host: {reason}", _instead(given))


# --- fetching -----------------------------------------------------------------------------------------------


def _arrived(given: ReleaseInput, archive: ArchiveInput) -> str:
    return f"{given.cache}/sources/{archive.sha256}"


def _fetch(given: ReleaseInput, system: System) -> None:
    """Fetch the archives by the fetcher of models, which resumes and checks their hashes. Raise FailedError."""
    run, job = f"{given.work}/fetch", f"{given.work}/fetch.json"
    system.folder(run)
    sources = f"{given.cache}/sources"
    document = {
        "id": given.id,
        "incoming": sources,
        "store": sources,
        "files": [
            {
                "name": each.name,
                "sha256": each.sha256,
                "size": each.size,
                "sources": [{"name": str(urlsplit(each.url).hostname), "url": each.url, "secret": "none"}],
            }
            for each in given.archives
        ],
        "folders": [],
        "connections": given.connections,
        "bandwidth": [vars(each) for each in given.bandwidth],
    }
    system.write(job, json.dumps(document), mode=0o644, owner=given.user)
    ended = system.run_logged([given.fetcher, "fetch", job, run], f"{given.work}/fetch.log", seconds=given.seconds)
    if ended.code == TIMED_OUT:
        raise FailedError(f"release {given.tag} has not arrived within {given.seconds // 3600} h", _ANEW)
    if not ended.ok:
        failed = (system.read(f"{run}/failed") or "").split("\n")[0] or last_line(ended)
        raise FailedError(f"release {given.tag}: {failed}", _ANEW)


# --- unpacking ----------------------------------------------------------------------------------------------


def unpack(archive: Path, name: str, folder: Path) -> list[str]:
    """Extract all files of an archive into one folder, and return their names. Raise FailedError.

    Only plain files and links between them are accepted, and each name once. Links become further names of their file.
    A file that an earlier archive has brought stays.
    """
    files: dict[str, None] = {}
    links: dict[str, str] = {}
    earlier = {each.name for each in folder.iterdir()}
    size = 0
    try:
        with tarfile.open(archive, "r:*") as packed:
            for member in packed:
                if member.isdir():
                    continue
                own = _plain_name(member.name, name)
                if own in files or own in links:
                    raise FailedError(f"{name} has two files named {own}")
                size += member.size
                if len(files) + len(links) >= MOST_FILES or size > MOST_BYTES:
                    raise FailedError(f"{name} has more than {MOST_FILES} files, or than {MOST_BYTES >> 30} GiB")
                if member.issym() or member.islnk():
                    links[own] = _plain_name(member.linkname, name)
                elif member.isreg():
                    files[own] = None
                    if own not in earlier:
                        _write(packed, member, folder / own)
                else:
                    raise FailedError(f"{name} has a member that is no file: {own}")
    except (tarfile.TarError, EOFError, zlib.error, ValueError) as error:
        raise FailedError(f"{name} is no archive that can be read: {type(error).__name__}") from None
    for own, target in links.items():
        if own not in earlier:
            os.link(folder / _end_of(own, target, links, files, name), folder / own)
    return [each for each in (*files, *links) if each not in earlier]


def _plain_name(path: str, archive: str) -> str:
    """Return the name of a file without its folders. Raise FailedError if it leads elsewhere or is unusual."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or not _NAME.fullmatch(parts[-1]):
        raise FailedError(f"{archive} has a name that is refused: {path[:100]!r}")
    return parts[-1]


def _end_of(own: str, target: str, links: dict[str, str], files: dict[str, None], archive: str) -> str:
    """Return the file that a link leads to. Raise FailedError."""
    for _ in range(_MOST_LINKS):
        if target in files:
            return target
        target = links.get(target, "")
    raise FailedError(f"{archive} has a link to no file of it: {own}")


def _write(packed: tarfile.TarFile, member: tarfile.TarInfo, to: Path) -> None:
    data = packed.extractfile(member)
    assert data
    mode = 0o755 if member.mode & 0o111 else 0o644
    with os.fdopen(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as file:
        while piece := data.read(_BUFFER):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


# --- code for GPUs ------------------------------------------------------------------------------------------

# The containers of CUDA code in a library: a header, then an entry for each architecture. Compared with what
# `cuobjdump --list-elf --list-ptx` of CUDA 13.0 prints of libcublas (54 MB: 0.05 s) and of libraries of our own, packed
# and not. tests/data/gpu_code.fatbin is a file of nvcc.
_MAGIC = 0xBA55ED50
_CONTAINER, _ENTRY = struct.Struct("<IHHQ"), struct.Struct("<HHIQIIHHI")
_PTX, _MACHINE_CODE = 1, 2
_MOST_CONTAINERS, _MOST_ENTRIES = 1_000_000, 64


@dataclass(frozen=True)
class GpuCode:
    """The architectures for which a library has code that GPUs run, and those of PTX, which drivers compile."""

    machine: frozenset[int]
    ptx: frozenset[int]

    def runs_on(self, architecture: int) -> bool:
        """Apply NVIDIA's rules: machine code runs within a major version, PTX upwards."""
        same = (each for each in self.machine if each // 10 == architecture // 10)
        return any(each <= architecture for each in (*same, *self.ptx))


def gpu_code(library: Path) -> GpuCode:
    """Return the architectures of the CUDA code in a library; none if it has none, or in another format."""
    found = {_PTX: set[int](), _MACHINE_CODE: set[int]()}
    with library.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return GpuCode(frozenset(), frozenset())
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for kind, architecture in _entries(data):
                found.get(kind, set()).add(architecture)
    return GpuCode(frozenset(found[_MACHINE_CODE]), frozenset(found[_PTX]))


def _entries(data: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Yield the kind and the architecture of each entry of all containers."""
    magic, at = struct.pack("<I", _MAGIC), 0
    for _ in range(_MOST_CONTAINERS):
        at = data.find(magic, at)
        if at < 0 or at + _CONTAINER.size > len(data):
            return
        _, _, header, size = _CONTAINER.unpack_from(data, at)
        entry, end = at + header, min(at + header + size, len(data))
        for _ in range(_MOST_ENTRIES):
            if entry + _ENTRY.size > end:
                break
            kind, _, head, length, *_, architecture = _ENTRY.unpack_from(data, entry)
            if head < _ENTRY.size or not 10 <= architecture < 1000:
                break
            yield kind, architecture
            entry += head + length
        at += len(magic)


def _require_gpu_code(given: ReleaseInput, libraries: list[str]) -> None:
    """Raise FailedError if a release has no code for a GPU. Nothing is known if it has none in the known format."""
    found = [gpu_code(Path(given.work, "out", "bin", each)) for each in libraries]
    code = GpuCode(
        frozenset(one for each in found for one in each.machine), frozenset(one for each in found for one in each.ptx)
    )
    lacking = [each for each in given.architectures if not code.runs_on(each)]
    if lacking and (code.machine or code.ptx):
        known = ", ".join(map(str, sorted(code.machine | code.ptx)))
        message = f"release {given.tag} has no code for GPUs of architecture {lacking[0]}, only for {known}"
        raise FailedError(message, _instead(given))


VERBS = {"install": Verb(ReleaseInput, install_release)}
