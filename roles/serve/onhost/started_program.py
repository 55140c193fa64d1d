#!/usr/bin/env -S python3 -IS
"""Record what a server is started with, or print what of that has changed since. For root alone.

    started record|changed unit|container NAME KEY|- FOLDER...

KEY is the file of its key, FOLDERs are those of its models. A clock may be wrong, so a record contains hashes and
inodes instead of times. A line has the kind of a thing, its hash or number, and its path. `changed` exits with 1 if
something has changed. `started.py` compares with the same records in an inspection.
"""

# Shipped alone: for Python 3.10 and its standard library, without a module of llamaherd.
from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path("/")
USAGE = "usage: started record|changed unit|container NAME KEY|- FOLDER..."
_SECONDS = 60
_MOST = 8 << 20
_MANIFEST = ".manifest"
_UNIT_PROPERTIES = "InvocationID,FragmentPath,DropInPaths,NeedDaemonReload"


def query(kind: str, name: str) -> dict[str, str]:
    """Return what systemd reports of a unit, or Docker's id of a container; empty if they report nothing."""
    words = ["docker", "inspect", "--type", "container", "--format", "InvocationID={{.Id}}", name]
    if kind == "unit":
        words = ["systemctl", "show", "-p", _UNIT_PROPERTIES, f"{name}.service"]
    try:
        ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    pairs = (line.partition("=") for line in os.fsdecode(ended.stdout).split("\n"))
    return {key: value for key, equals, value in pairs if equals}


def started_with(state: dict[str, str], key: str, folders: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a record for a server that starts now."""
    if "InvocationID" in state:
        yield f"run\t{state['InvocationID']}"
    # A unit is its file and its drop-ins.
    for path in (*_paths(state.get("FragmentPath", "")), *_paths(state.get("DropInPaths", ""))):
        with suppress(OSError):
            yield f"file\t{_digest(path)}\t{path}"
    # The hash includes a secret of this host, so that it cannot serve to guess the key.
    if key != "-" and (secret := _read(_secret())):
        yield f"key\t{hashlib.sha256(secret + _read(Path(key))).hexdigest()}\t{key}"
    for folder in folders:
        manifest = os.fsdecode(_read(Path(folder, _MANIFEST)))
        for line in filter(None, manifest.split("\n")):
            fields = [*line.split("\t"), "", "", "", ""]
            yield f"model\t{fields[2]}\t{folder}/{fields[3]}"
        # A file that was replaced has another inode, and only a new start reads it.
        for path, number in _inodes(folder):
            yield f"inode\t{number}\t{path}"


def changed_since(record: Path, now: Iterator[str]) -> Iterator[str]:
    """Yield a line for each thing of a record that has changed since: its kind and its path."""
    if not record.is_file():
        yield f"record\t{record}"
        return
    holds = {*now}
    for line in os.fsdecode(_read(record)).split("\n"):
        if line and line not in holds:
            yield f"{line.partition(chr(9))[0]}\t{line.rpartition(chr(9))[2]}"


def write_record(record: Path, lines: Iterator[str]) -> None:
    """Write a record in one step. Raise OSError."""
    for folder, mode in ((ROOT / "run/llamaherd", 0o755), (_secret().parents[1], 0o755)):
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(mode)  # whatever the umask
    for folder in (record.parent, _secret().parent):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)
    _ensure_secret()
    new = record.with_name(f"{record.name}.new")
    _write(new, os.fsencode("".join(f"{line}\n" for line in lines)))
    new.replace(record)


def _ensure_secret() -> None:
    """Create the host's secret. Two servers may start at once: a link is made by one of them."""
    secret = _secret()
    if _read(secret):
        return
    own = secret.with_name(f"{secret.name}.{os.getpid()}")
    _write(own, os.urandom(32))
    with suppress(FileExistsError):
        secret.hardlink_to(own)
    own.unlink()


def _secret() -> Path:
    return ROOT / "var/lib/llamaherd/started/.secret"


def _paths(words: str) -> list[str]:
    """Return paths that systemd separates by blanks; a path may contain blanks."""
    first, *others = words.split(" /")
    return [*filter(None, [first]), *(f"/{each}" for each in others)]


def _inodes(folder: str) -> Iterator[tuple[str, int]]:
    """Yield the regular files of a folder and their inodes."""
    with suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                yield from _inodes(entry.path)
            elif entry.is_file(follow_symlinks=False) and entry.name != _MANIFEST:
                yield entry.path, entry.stat(follow_symlinks=False).st_ino


def _digest(path: str) -> str:
    """Return the SHA-256 of a file. Raise OSError."""
    with Path(path).open("rb") as file:
        digest = hashlib.sha256()
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _read(path: Path) -> bytes:
    """Return a file's content; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST)
    except OSError:
        return b""


def _write(path: Path, data: bytes) -> None:
    """Write a file that is root's alone, whatever the umask. Raise OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, 0o600)
        file.write(data)


def main(arguments: Sequence[str]) -> int:
    """Record or compare. Return the exit code."""
    match arguments:
        case [("record" | "changed") as command, ("unit" | "container") as kind, name, key, *folders]:
            pass
        case _:
            print(USAGE, file=sys.stderr)
            return 1
    # Docker starts containers by itself, also after a boot: the container is the same then.
    folder = ROOT / ("run" if kind == "unit" else "var/lib") / "llamaherd/started"
    state = query(kind, name)
    now = started_with(state, key, folders)
    if command == "changed":
        changes = [*changed_since(folder / name, now)]
        sys.stdout.buffer.write(os.fsencode("".join(f"{line}\n" for line in changes)))
        return 1 if changes else 0

    def lines() -> Iterator[str]:
        yield from now
        # systemd has loaded another text than the text on disk.
        if state.get("NeedDaemonReload") == "yes":
            yield f"file\tunread\t{name}.service"

    try:
        write_record(folder / name, lines())
    except OSError as error:
        print(f"{folder / name} cannot be written: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
