"""Text files of this machine, read within bounds, whatever kind of file they are."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from llamaherd.text.numbers import show_size

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class UnreadableError(Exception):
    """The reason why a file cannot be read: `it is a pipe, and no file`; `help` is the fix."""

    def __init__(self, reason: str, help_: str) -> None:
        super().__init__(reason)
        self.help = help_


def read_bytes(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most so many bytes. Raise UnreadableError."""
    try:
        # Reading a pipe would wait, and a device has no end.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            kind = stat.S_IFMT(os.fstat(handle).st_mode)
            if kind != stat.S_IFREG:
                raise UnreadableError(
                    f"it is {_KINDS.get(kind, 'something else')}, and no file", "name the file itself"
                )
            data = bytearray()
            while len(data) <= most and (piece := os.read(handle, most + 1 - len(data))):
                data += piece
        finally:
            os.close(handle)
    except OSError as error:
        raise UnreadableError(error.strerror or type(error).__name__, "check the path and its mode") from None
    except ValueError:
        raise UnreadableError("no file has such a name", "check the path") from None
    if len(data) > most:
        raise UnreadableError(f"it is larger than {show_size(most)}", "check that this is the file that you mean")
    return bytes(data)


def read_text(path: Path, most: int) -> str:
    """Return the text of such a file, with `\\n` between lines and without a byte order mark. Raise UnreadableError."""
    data = read_bytes(path, most)
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise UnreadableError(*_not_utf8(data)) from None


def _not_utf8(data: bytes) -> tuple[str, str]:
    """Return what data is that is not UTF-8 text, and the fix."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or data[1:64:2].count(0) > 8:
        return "it is UTF-16 text, as Windows' editors write it", "save it as UTF-8"
    if data.startswith((b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd")):
        return "it is compressed", "unpack it first"
    return "it is not UTF-8 text", "save it as UTF-8, if it is text at all"
