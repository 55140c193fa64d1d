"""Store results as files in the inventory folder, and append to the journal of a running measurement."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp
from types import TracebackType
from typing import Self, TypeVar

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.results.document import (
    MOST_RESULT_BYTES,
    exclusion_line,
    fold_journal,
    head_line,
    parse_result,
    result_bytes,
    run_line,
    start_line,
    with_id,
)
from llamaherd.measure.results.result import Result, Run, Start
from llamaherd.text.textfile import UnreadableError, read_bytes

T = TypeVar("T")


class AppendOnlyFile:
    """An open file of lines. Raise UserError if a line cannot be written."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle

    @classmethod
    def begin(cls, path: Path, first: bytes) -> Self:
        """Create a file with its first line, in one atomic step."""
        with write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, part = mkstemp(".part", ".herd-", path.parent)
        lines = cls(path, handle)
        try:
            with write_errors(path):
                os.fchmod(handle, 0o644)
                fcntl.fcntl(handle, fcntl.F_SETFL, os.O_APPEND)
                _lock_file(handle, path)
                lines.add(first)
                _link_file(part, path)
                sync_folder(path.parent)
        except BaseException:
            lines.close()
            raise
        finally:
            Path(part).unlink(missing_ok=True)
        return lines

    @classmethod
    def resume(cls, path: Path, most: int, fold: Callable[[bytes], tuple[T, int]]) -> tuple[Self, T]:
        """Open an existing file of up to `most` bytes, and return it with the result of `fold`; the rest is cut off.

        `fold` also returns how many bytes its complete lines have.
        """
        with write_errors(path):
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _lock_file(handle, path)
            found, length = fold(read_file(path, most))
            with write_errors(path):
                os.ftruncate(handle, length)
        except BaseException:
            os.close(handle)
            raise
        return cls(path, handle), found

    def add(self, line: bytes) -> None:
        """Add a line, or nothing: on a full disk, its first part is removed."""
        with write_errors(self.path):
            before = os.fstat(self._handle).st_size
            try:
                left = line
                while left:
                    left = left[os.write(self._handle, left) :]
                os.fsync(self._handle)
            except OSError:
                os.ftruncate(self._handle, before)
                raise

    def close(self) -> None:
        """Release the file; its content stays."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def read_file(path: Path, most: int) -> bytes:
    """Read a file of up to `most` bytes. Raise UserError."""
    try:
        return read_bytes(path, most)
    except UnreadableError as error:
        raise UserError(f"cannot read {path}: {error}", error.help) from None


def sync_folder(folder: Path) -> None:
    """Write the entries of a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Raise errors of the file system as UserError."""
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UserError(f"cannot write {path}: {why}", "check the folder, its mode and its disk") from None


def _link_file(part: str, path: Path) -> None:
    """Give a file its name; an existing file is not replaced."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise UserError(f"{path} exists already", "another measurement began in the same second: try again") from None


def _lock_file(handle: int, path: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise UserError(f"{path} is being written by another run", "wait for that one, or end it") from None


RESULTS = "results"
MOST_FILES = 10_000
"""Results of one instance that are read at most."""

_DOCUMENT, _JOURNAL = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{12}\.json"), re.compile(r"\d{8}T\d{6}Z\.jsonl")


def results_folder(inventory: Path) -> Path:
    """Return the folder of an inventory's results."""
    return (inventory if inventory.is_dir() else inventory.parent) / RESULTS


def result_folder(results: Path, result: Result) -> Path:
    """Return the folder of its instance's results."""
    return results / result.rig / result.instance


def result_stem(result: Result) -> str:
    """Return the name of its file, without the ending: when it began, and its id once it has one."""
    began = result.began.replace("-", "").replace(":", "")
    return f"{began}-{result.id}" if result.id else began


def read_result(path: Path) -> Result:
    """Read the result in a file, be it a document or a journal. Raise UserError."""
    data = read_file(path, MOST_RESULT_BYTES)
    return fold_journal(data, str(path))[0] if path.suffix == ".jsonl" else parse_result(data, str(path))


def result_files(results: Path, rig: str, instance: str) -> list[Path]:
    """Return the files of an instance's results, the newest first."""
    folder = results / rig / instance
    try:
        with os.scandir(folder) as there:
            names = [each.name for _, each in zip(range(MOST_FILES), there, strict=False)]
    except OSError:
        return []
    whole = [name for name in names if _DOCUMENT.fullmatch(name)]
    # A run that is killed just before it removes its journal leaves both.
    began = {name.partition("-")[0] for name in whole}
    cut = [name for name in names if _JOURNAL.fullmatch(name) and name.partition(".")[0] not in began]
    return [folder / name for name in sorted([*whole, *cut], reverse=True)]


def last_result(
    results: Path,
    rig: str,
    instance: str,
    but: Path | None = None,
    wanted: Callable[[Result], bool] = lambda _: True,
) -> Result | None:
    """Return the newest `wanted` result of an instance that `herd bench` has measured to its end.

    Arms of blocks and damaged files are left out.
    """
    for path in result_files(results, rig, instance):
        if path == but or path.suffix != ".json":
            continue
        with suppress(UserError):
            found = read_result(path)
            if found.source.kind == "herd" and found.method.arm is None and wanted(found):
                return found
    return None


def write_result(results: Path, result: Result) -> Path:
    """Write a complete result in one atomic step; it gets its id. Raise UserError.

    The same result again is the same file. No other file is replaced: a name contains the hash of the content.
    """
    whole = with_id(result)
    path = result_folder(results, whole) / f"{result_stem(whole)}.json"
    write_whole(path, result_bytes(whole))
    return path


def write_whole(path: Path, data: bytes) -> None:
    """Write a file in one atomic step: readers see all of it, or nothing. Raise UserError."""
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = mkstemp(".part", ".herd-", path.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(handle)
            Path(part).chmod(0o644)
            Path(part).replace(path)
        finally:
            Path(part).unlink(missing_ok=True)
        sync_folder(path.parent)


class Journal:
    """A result that is being measured; each added run is on the disk. Use it as a context manager.

    No other process can write the same one meanwhile, and nothing stays locked when its process ends.
    """

    def __init__(self, lines: AppendOnlyFile, result: Result) -> None:
        self.path = lines.path
        self.result = result
        self._lines = lines

    @classmethod
    def begin(cls, results: Path, result: Result) -> Self:
        """Create a journal, with everything but the runs of `result`."""
        bare = tuple(cell.model_copy(update={"runs": ()}) for cell in result.cells)
        begun = result.model_copy(update={"cells": bare, "id": "", "ended": None})
        path = result_folder(results, begun) / f"{result_stem(begun)}.jsonl"
        return cls(AppendOnlyFile.begin(path, head_line(begun)), begun)

    @classmethod
    def resume(cls, path: Path) -> Self:
        """Open the journal of an interrupted measurement; an incomplete last line is cut off."""
        return cls(*AppendOnlyFile.resume(path, MOST_RESULT_BYTES, lambda data: fold_journal(data, str(path))))

    def add_start(self, start: Start) -> None:
        """Record that the server was started once more: later runs belong to that start."""
        self._lines.add(start_line(start))
        self.result = self.result.model_copy(update={"starts": (*self.result.starts, start)})

    def add_run(self, cell: int, run: Run) -> None:
        """Record a run under the condition of this number."""
        self._lines.add(run_line(cell, run))
        cells = list(self.result.cells)
        cells[cell] = cells[cell].model_copy(update={"runs": (*cells[cell].runs, run)})
        self.result = self.result.model_copy(update={"cells": tuple(cells)})

    def exclude(self, cell: int, number: int, why: str) -> None:
        """Record that a run does not count, unless it is excluded already."""
        runs = list(self.result.cells[cell].runs)
        if runs[number].excluded:
            return
        self._lines.add(exclusion_line(cell, number, why))
        runs[number] = runs[number].model_copy(update={"excluded": why})
        cells = list(self.result.cells)
        cells[cell] = cells[cell].model_copy(update={"runs": tuple(runs)})
        self.result = self.result.model_copy(update={"cells": tuple(cells)})

    def finish(self, ended: str) -> Path:
        """Write the complete document, and remove the journal once that is on the disk."""
        results = self.path.parents[2]
        document = write_result(results, self.result.model_copy(update={"ended": ended}))
        self.path.unlink(missing_ok=True)
        return document

    def close(self) -> None:
        """Release the file; its content stays."""
        self._lines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def unfinished_journal(results: Path, rig: str, instance: str, same: Callable[[Result], bool]) -> Path | None:
    """Find the newest journal of an instance that the same measurement can resume."""
    for path in result_files(results, rig, instance):
        if path.suffix == ".jsonl":
            try:
                found = read_result(path)
            except UserError:
                continue
            if same(found):
                return path
    return None
