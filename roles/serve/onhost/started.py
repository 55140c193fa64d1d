"""Compare the record of a server's start with the present files.

`started record` writes the record at each start. `started_program.py`, which is shipped alone, writes the same lines.
A record contains hashes and inodes instead of times, because a clock may be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llamaherd.layout import STATE
from llamaherd.onhost.files import as_text, resolve
from llamaherd.onhost.system import System

OF_CONTAINERS = STATE / "started"
"""Docker starts containers by itself, also after a boot: a record stays."""
OF_UNITS = "/run/llamaherd/started"
_SECRET = str(OF_CONTAINERS / ".secret")
_MANIFEST = ".manifest"
_MOST = 8 << 20


def changed_since(
    record: str, run: str, files: Sequence[str], inputs: Sequence[str], system: System
) -> tuple[str, ...]:
    """Return what no longer is as a record contains it: paths, or the run. Where there is no record, return its path.

    `run` is systemd's id of the start or Docker's of the container, `files` are the unit and its drop-ins, and `inputs`
    the key's file or `-`, and the folders of models.
    """
    found = resolve(record, system)
    text = system.read(record, _MOST) if found and found.kind == "file" else None
    if text is None:
        return (record,)
    now = {*_started_with(run, files, inputs, system)}
    return tuple(line.rpartition("\t")[2] for line in text.split("\n") if line and line not in now)


def _started_with(run: str, files: Sequence[str], inputs: Sequence[str], system: System) -> Iterator[str]:
    yield f"run\t{run}"
    for path in files:
        found = resolve(path, system)
        if found and found.kind == "file":
            yield f"file\t{system.digest([path])}\t{path}"
    key, *folders = inputs
    secret = system.entry(_SECRET)
    # With a secret of this host: who reads the hash cannot try keys.
    if key != "-" and secret and secret.size:
        yield f"key\t{system.digest([_SECRET, key])}\t{key}"
    for folder in folders:
        for line in filter(None, (system.read(f"{folder}/{_MANIFEST}", _MOST) or "").split("\n")):
            fields = [*line.split("\t"), "", "", "", ""]
            yield f"model\t{fields[2]}\t{folder}/{fields[3]}"
        # A file that came again is another one, which only a new start reads.
        for path, number in _inodes(folder, system):
            yield f"inode\t{number}\t{path}"


def _inodes(folder: str, system: System) -> Iterator[tuple[str, int]]:
    for name in system.names(folder):
        path = f"{folder}/{name}"
        found = system.entry(path)
        if found and found.kind == "folder":
            yield from _inodes(path, system)
        elif found and found.kind == "file" and name != _MANIFEST:
            yield as_text(path), found.inode
