"""Receive the program on stdin, store it, and run it. The bootstrap runs this text: nothing else is on the host yet."""

from __future__ import annotations

import importlib.util
import io
import json
import marshal
import os
import sys
import zipfile
from pathlib import Path

_PIECE = 65536
_OLDEST = 0x030A0000
"""Python 3.10: an older one cannot compile the program."""
_KEPT = 3
"""Versions that stay on a host."""


def receive() -> bytes:
    """Return the program, which follows its size and a line break. Raise SystemExit if it is cut off."""
    size = data = b""
    while not size.endswith(b"\n") and (byte := os.read(0, 1)):
        size += byte
    left = int(size) if size.endswith(b"\n") else -1
    while left > 0 and (piece := os.read(0, min(left, _PIECE))):
        data, left = data + piece, left - len(piece)
    if left:
        sys.exit("llamaherd: the connection ended while the program was sent\n  help: run the command again")
    return data


def store(path: Path, data: bytes) -> None:
    """Write the program with its modules compiled for this Python: each run saves a tenth of a second. Raise OSError.

    Another Python compiles them again.
    """
    new = path.with_name(f"{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with new.open("wb") as file, zipfile.ZipFile(io.BytesIO(data)) as sent:
            with zipfile.ZipFile(file, "w") as stored:
                for name in sent.namelist():
                    source = sent.read(name)
                    stored.writestr(name, source)
                    if name.endswith(".py"):
                        head = importlib.util.MAGIC_NUMBER + bytes((1, 0, 0, 0)) + importlib.util.source_hash(source)
                        stored.writestr(f"{name}c", head + marshal.dumps(compile(source, f"{path}/{name}", "exec")))
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)
        for each in sorted(path.parent.iterdir(), key=lambda each: each.stat().st_mtime)[:-_KEPT]:
            each.unlink()
    finally:
        new.unlink(missing_ok=True)


def in_memory(data: bytes) -> str:
    """Return the path of the program in memory."""
    memory = os.memfd_create("llamaherd", 0)
    with os.fdopen(memory, "wb", closefd=False) as file:
        file.write(data)
    return f"/proc/self/fd/{memory}"


def main(path: Path, *, keep: bool) -> None:
    """Run the program. With `keep`, store it; otherwise store it only if the host is set up and has room."""
    data = receive()
    if sys.hexversion < _OLDEST:
        message = f"python3 there has version {sys.version.split()[0]}; llamaherd needs 3.10 or newer"
        fix = "upgrade its system: to Debian 12, Ubuntu 22.04 or newer"
        print(json.dumps({"event": "error", "message": message, "help": fix, "log": []}))
        sys.exit(1)
    os.umask(0o022)
    try:
        # A command that changes nothing stores nothing on a host that is not set up, and needs no disk that has room.
        if keep or path.parent.parent.is_dir():
            store(path, data)
    except OSError as error:
        if keep and not path.exists():
            help_ = "`df -h /opt` shows whether there is room"
            sys.exit(f"llamaherd: cannot write {path}: {error.strerror}\n  help: {help_}")
    program = str(path) if path.exists() else in_memory(data)
    os.execv(sys.executable, [sys.executable, "-IS", program])


if __name__ == "__main__":
    main(Path(sys.argv[1]), keep=sys.argv[2] == "keep")
