"""Text files of this machine, read within bounds, whatever kind of file they are."""

from __future__ import annotations

import os
import re
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
        larger = f"it is larger than {show_size(most)}", "check that this is the file that you mean"
        raise UnreadableError(*(_binary(bytes(data)) or larger))
    return bytes(data)


def read_text(path: Path, most: int) -> str:
    """Return the text of such a file, with `\\n` between lines and without a byte order mark. Raise UnreadableError."""
    return decoded(read_bytes(path, most)).removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def decoded(data: bytes) -> str:
    """Return the text of a file, as it is. Raise UnreadableError."""
    if found := _binary(data):
        raise UnreadableError(*found)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UnreadableError("it is not UTF-8 text", "save it as UTF-8, if it is text at all") from None


LINE_END = re.compile("(\r\n|[\r\n\x85\u2028\u2029])")
"""The end of a line as YAML 1.1 counts lines: places of findings and edits count them in the same way."""


def lines_of(text: str) -> list[str]:
    """Return the lines of a text without their ends. A text that ends with a line end has an empty last line."""
    return LINE_END.split(text)[::2]


_MAGIC = {
    b"GGUF": ("it is a model (GGUF)", "name it in a rig, below `models`; `herd fit` shows whether it fits"),
    b"\xff\xfe": ("it is UTF-16 text, as editors of Windows write it", "save it as UTF-8"),
    b"\xfe\xff": ("it is UTF-16 text, as editors of Windows write it", "save it as UTF-8"),
    b"\x1f\x8b": ("it is compressed", "unpack it first"),
    b"PK\x03\x04": ("it is compressed", "unpack it first"),
    b"(\xb5/\xfd": ("it is compressed", "unpack it first"),
    b"\x7fELF": ("it is a program", "name a text file"),
}
"""What a file is by its first bytes, and the fix."""
_HEAD = 1024


def _binary(data: bytes) -> tuple[str, str] | None:
    """Return what a file is that is no UTF-8 text, and the fix; None if its beginning may be text."""
    known = next((found for magic, found in _MAGIC.items() if data.startswith(magic)), None)
    return known or (("it is no text", "name a text file") if b"\x00" in data[:_HEAD] else None)
