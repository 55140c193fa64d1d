"""Stores of models as the admission step leaves them, and the program that fills them as units run it."""

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
_LAUNCH = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from llamaherd.onhost.fetch.main import main; sys.exit(main())"
)

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="mounts, gives files to others, or runs a host's scripts: needs root"
)


def manifest_line(path: Path, sha256: str, name: str = "") -> str:
    """The line of a file in its folder's manifest, as `stat -c '%s\\t%.9Y\\t…\\t%n'` writes it."""
    stat = path.stat()
    seconds, nanoseconds = divmod(stat.st_mtime_ns, 10**9)
    return f"{stat.st_size}\t{seconds}.{nanoseconds:09}\t{sha256}\t{name or path.name}\n"


def stored(folder: Path, files: Mapping[str, bytes]) -> list[str]:
    """Make files in a folder of a store, and its manifest. Returns their sha256."""
    hashes = [hashlib.sha256(body).hexdigest() for body in files.values()]
    lines = []
    for (name, body), sha256 in zip(files.items(), hashes, strict=True):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        lines.append(manifest_line(path, sha256, name))
    (folder / ".manifest").write_text("".join(lines))
    return hashes


def fetcher_command(*arguments: object) -> list[str]:
    """A command of the fetcher: an isolated interpreter, which is told where the package lies and knows no other."""
    return [sys.executable, "-I", "-c", _LAUNCH, str(REPOSITORY), *map(str, arguments)]
