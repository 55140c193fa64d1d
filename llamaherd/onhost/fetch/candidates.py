"""Find model files that other programs have stored on this host: their caches, and a bounded walk through folders."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from llamaherd.onhost.fetch import manifest
from llamaherd.onhost.fetch.manifest import Vouched

_IN_A_HOME = (
    # Files are named by their etag, which is the sha256 of those in LFS: https://huggingface.co/docs/hub/local-cache
    # llama.cpp also stores the files of `-hf` here, since https://github.com/ggml-org/llama.cpp/pull/20775,
    ".cache/huggingface/hub/models--*/blobs",
    # Without symlinks, the files themselves are in the snapshots.
    ".cache/huggingface/hub/models--*/snapshots",
    # llama.cpp before that, here: https://github.com/ggml-org/llama.cpp/pull/7826
    ".cache/llama.cpp",
    # LM Studio today, and in old versions: https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/553
    ".lmstudio/models",
    ".cache/lm-studio/models",
    # Files are sha256-<hex>: https://github.com/ollama/ollama/blob/main/docs/faq.md; a colon in place of the dash
    # until https://github.com/ollama/ollama/pull/3126
    ".ollama/models/blobs",
)
_OF_SERVICES = (
    # The folder of ollama's own installer: https://github.com/ollama/ollama/blob/main/scripts/install.sh
    "usr/share/ollama/.ollama/models/blobs",
    # Packages of distributions: NixOS, and Arch of old and today: https://github.com/ollama/ollama/issues/4455, 6668
    "var/lib/ollama/models/blobs",
    "var/lib/ollama/.ollama/models/blobs",
    "var/lib/ollama/blobs",
)
_DEPTH = 8
_ENTRIES = 100_000
_NAMED = re.compile(r"(?:sha256[-:])?([0-9a-f]{64})")


class Candidate(NamedTuple):
    """A file of the right size, which may be one of the job's.

    `claimed` is the sha256 by its name or by the store's manifest, which is `vouched`; None if it is unknown.
    """

    path: Path
    size: int
    claimed: str | None = None
    vouched: Vouched | None = None


def find_candidates(store: Path, others: Iterable[Path], sizes: Collection[int], but: Path) -> list[Candidate]:
    """Return every file of one of these sizes in the store and then in other folders, each once, but in one folder."""
    vouched = {each.path: each for path in manifest.find_manifests(store) for each in manifest.read_manifest(path)}
    found: dict[tuple[int, int], Candidate] = {}
    for folder in (store, *others):
        for path, stat in _walk(folder, but):
            if stat.st_size in sizes:
                found.setdefault((stat.st_dev, stat.st_ino), _candidate(path, stat.st_size, vouched.get(path)))
    return list(found.values())


def likely_candidates(found: Iterable[Candidate], sha256: str, size: int) -> list[Candidate]:
    """Return the candidates that may be the file, the likeliest first."""
    fitting = [each for each in found if each.size == size and not _is_another(each, sha256)]
    return sorted(fitting, key=lambda each: (each.vouched is None, each.claimed != sha256))


def find_caches(root: Path) -> list[Path]:
    """Return the folders of other programs that are on a host whose files begin at `root`."""
    homes = [*_glob(root, "home/*"), root / "root"]
    in_homes = [folder for home in homes for pattern in _IN_A_HOME for folder in _glob(home, pattern)]
    return [*(root / place for place in _OF_SERVICES), *in_homes]


def _glob(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:  # a home on a server that does not respond hides no other home
        return []


def _candidate(path: Path, size: int, vouched: Vouched | None) -> Candidate:
    named = _NAMED.fullmatch(path.name)
    return Candidate(path, size, vouched.sha256 if vouched else named[1] if named else None, vouched)


def _is_another(candidate: Candidate, sha256: str) -> bool:
    # Models made from the same one often have the same size: a reliable name saves reading 50 GB.
    reliable = candidate.vouched is not None or candidate.path.parent.name == "blobs"
    return reliable and candidate.claimed not in (None, sha256)


def _walk(top: Path, but: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield every regular file below a folder, by way of symlinks too, each folder once, except for one folder.

    Unreadable folders are left out, and so are files deeper or later than users keep models.
    """
    visited = _identities(but)
    kernels = {device for device, _ in _identities(Path("/proc"), Path("/sys"), Path("/dev"))}
    left = _ENTRIES
    waiting = deque([(top, 0)])
    while waiting:
        folder, depth = waiting.popleft()
        here = _identities(folder)
        # Reading the kernel's files may have effects.
        if here <= visited or any(device in kernels for device, _ in here):
            continue
        visited |= here
        for entry in _entries(folder):
            left -= 1
            if left < 0:
                return
            try:
                if entry.is_file():
                    yield Path(entry.path), entry.stat()
                elif depth < _DEPTH and entry.is_dir():
                    waiting.append((Path(entry.path), depth + 1))
            except OSError:  # gone, or a link to itself
                continue


def _identities(*paths: Path) -> set[tuple[int, int]]:
    """Return device and inode of each existing path."""
    found = set()
    for path in paths:
        try:
            stat = path.stat()
        except OSError:
            continue
        found.add((stat.st_dev, stat.st_ino))
    return found


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, by name; none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []
