"""Write files in the inventory folder atomically and never readable by other users."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff
from glob import escape
from pathlib import Path

from llamaherd.diagnostics.findings import UserError
from llamaherd.text.numbers import whole_number
from llamaherd.text.textfile import UnreadableError, read_text


def write_atomically(file: Path, content: str | bytes, mode: int) -> None:
    """Replace a file with a text or with bytes. Raise OSError."""
    with _part(file, content.encode() if isinstance(content, str) else content, mode) as part:
        part.replace(file)


def create_atomically(file: Path, text: str, mode: int) -> None:
    """Write a new file; an existing one, also a file written meanwhile, stays unchanged. Raise OSError."""
    with _part(file, text.encode(), mode) as part, suppress(FileExistsError):
        file.hardlink_to(part)


def remove_abandoned(*files: Path) -> None:
    """Remove partial files that killed runs left next to these files; those of running processes stay.

    A missing or read-only folder is no error here: writing reports it.
    """
    for file in files:
        for part in file.parent.glob(f".{escape(file.name)}.*.part"):
            number = part.name.removeprefix(f".{file.name}.").removesuffix(".part")
            if (process := whole_number(number)) is not None and not _runs(process):
                with suppress(OSError):
                    part.unlink()


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True  # a process of another user
    return True


@contextmanager
def report_write_errors() -> Iterator[None]:
    """Convert an OSError to a UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {error.filename}: {error.strerror}", "check its mode and its disk") from None


_BYTE_ORDER_MARK = "\ufeff"
_MOST_BYTES = 1 << 20
"""The most bytes of a file of the inventory."""


def text_of(file: Path) -> str:
    """Return the text of a file of the inventory. Raise UserError."""
    try:
        return read_text(file, _MOST_BYTES)
    except UnreadableError as error:
        raise UserError(f"cannot read {file}: {error}", error.help) from None


@dataclass(frozen=True)
class FileEdit:
    """The text of a file before and after a change."""

    file: Path
    old: str
    new: str

    def lines(self) -> Iterator[str]:
        """Yield the changed lines, with the line above and below each part."""
        for line in unified_diff(self.old.splitlines(), self.new.splitlines(), n=1, lineterm=""):
            if not line.startswith(("---", "+++", "@@")) and line.strip():
                yield line

    def write(self) -> None:
        """Replace the file in one step, with the same mode; a link stays. Raise UserError if it changed meanwhile."""
        target = self.file.resolve()
        if text_of(target) != self.old:
            raise UserError(f"{self.file} was changed by another program meanwhile", "run the same command again")
        with report_write_errors():
            text = _as_written(target.read_bytes().decode(), self.old, self.new)
            write_atomically(target, text, target.stat().st_mode & 0o777)


def _as_written(raw: str, old: str, new: str) -> str:
    """Return a new text with the byte order mark and the line ends of the file, whose text without them is `old`."""
    if raw == old:
        return new
    mark = _BYTE_ORDER_MARK if raw.startswith(_BYTE_ORDER_MARK) else ""
    pieces = re.split(r"(\r\n|\r|\n)", raw.removeprefix(mark))
    before, after = old.split("\n"), new.split("\n")
    ends = [*pieces[1::2], ""]
    usual = ends[0] or "\n"
    made = [usual] * len(after)
    for block in SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks():
        kept = ends[block.a : block.a + block.size]
        made[block.b : block.b + block.size] = [end or usual for end in kept]
    made[-1] = ""
    return mark + "".join(line + end for line, end in zip(after, made, strict=True))


@contextmanager
def _part(file: Path, content: bytes, mode: int) -> Iterator[Path]:
    """Yield a partial file with the content in the same folder, and remove it afterwards."""
    remove_abandoned(file)
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    try:
        # No other user may read it at any moment.
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as writer:
            writer.write(content)
            writer.flush()
            os.fsync(writer.fileno())
        part.chmod(mode)
        yield part
    except OSError as error:
        error.filename = error.filename or str(file)  # a write to an open file has no name
        raise
    finally:
        part.unlink(missing_ok=True)
