"""Results as files beside the inventory: `results/<rig>/<instance>/<time>-<id>.json`, added to and never rewritten.

While it is measured a result is a journal, `<time>.jsonl`, with a line for each run. Killed at any moment, what was
measured is there, and is read as a result that was cut off; the same measurement goes on with it. In the end it
becomes the document, in one atomic step.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp
from types import TracebackType
from typing import Self

from llamaherd.bench.results.appended import Appended, read, said, sync_folder
from llamaherd.bench.results.document import (
    MOST,
    exclusion_line,
    finished,
    fold,
    head_line,
    parse,
    run_line,
    start_line,
    to_bytes,
)
from llamaherd.bench.results.result import Result, Run, Start
from llamaherd.diagnostics.findings import UserError

RESULTS = "results"
MOST_FILES = 10_000
"""Results of one instance that are looked through."""

_DOCUMENT, _JOURNAL = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{12}\.json"), re.compile(r"\d{8}T\d{6}Z\.jsonl")


def results_folder(inventory: Path) -> Path:
    """Where the results of an inventory lie."""
    return (inventory if inventory.is_dir() else inventory.parent) / RESULTS


def folder_of(results: Path, result: Result) -> Path:
    """Where those of its instance lie."""
    return results / result.rig / result.instance


def stem(result: Result) -> str:
    """What its file is called, before the ending: when it began, and its id once it has one."""
    began = result.began.replace("-", "").replace(":", "")
    return f"{began}-{result.id}" if result.id else began


def read_result(path: Path) -> Result:
    """The result in a file, be it a document or a journal. Raises UserError."""
    data = read(path, MOST)
    return fold(data, str(path))[0] if path.suffix == ".jsonl" else parse(data, str(path))


def result_files(results: Path, rig: str, instance: str) -> list[Path]:
    """The files of an instance's results, the newest first."""
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
    """Put a result that is whole where it belongs, in one atomic step; it gets its id. Raises UserError.

    The same result again is the same file. No other is ever written over: a name holds the hash of what is in it.
    """
    whole = finished(result)
    path = folder_of(results, whole) / f"{stem(whole)}.json"
    put_whole(path, to_bytes(whole))
    return path


def put_whole(path: Path, data: bytes) -> None:
    """Write a file in one atomic step: whoever sees it sees all of it. Raises UserError."""
    with said(path):
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
    """A result that is being measured; each run is on the disk once it was added. Use it as a context manager.

    Nobody else can write the same one meanwhile, and nothing stays locked when its process is gone.
    """

    def __init__(self, lines: Appended, result: Result) -> None:
        self.path = lines.path
        self.result = result
        self._lines = lines

    @classmethod
    def begin(cls, results: Path, result: Result) -> Self:
        """A new journal, with what is known before the first run; the runs of `result` are left out."""
        bare = tuple(cell.model_copy(update={"runs": ()}) for cell in result.cells)
        begun = result.model_copy(update={"cells": bare, "id": "", "ended": None})
        path = folder_of(results, begun) / f"{stem(begun)}.jsonl"
        return cls(Appended.begin(path, head_line(begun)), begun)

    @classmethod
    def resume(cls, path: Path) -> Self:
        """A journal that was cut off, with all that it has; the rest of a line that was not finished is cut."""
        return cls(*Appended.resume(path, MOST, lambda data: fold(data, str(path))))

    def add_start(self, start: Start) -> None:
        """Keep that the server was started once more: the runs after it are of that start."""
        self._lines.add(start_line(start))
        self.result = self.result.model_copy(update={"starts": (*self.result.starts, start)})

    def add_run(self, cell: int, run: Run) -> None:
        """Keep a run under the condition of this number."""
        self._lines.add(run_line(cell, run))
        cells = list(self.result.cells)
        cells[cell] = cells[cell].model_copy(update={"runs": (*cells[cell].runs, run)})
        self.result = self.result.model_copy(update={"cells": tuple(cells)})

    def exclude(self, cell: int, number: int, why: str) -> None:
        """Keep that a run does not count, unless that is known of it already."""
        runs = list(self.result.cells[cell].runs)
        if runs[number].excluded:
            return
        self._lines.add(exclusion_line(cell, number, why))
        runs[number] = runs[number].model_copy(update={"excluded": why})
        cells = list(self.result.cells)
        cells[cell] = cells[cell].model_copy(update={"runs": tuple(runs)})
        self.result = self.result.model_copy(update={"cells": tuple(cells)})

    def finish(self, ended: str) -> Path:
        """The document that it becomes; the journal goes once that is on the disk."""
        results = self.path.parents[2]
        document = write_result(results, self.result.model_copy(update={"ended": ended}))
        self.path.unlink(missing_ok=True)
        return document

    def close(self) -> None:
        """Let others write it; what it holds stays."""
        self._lines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def cut_off(results: Path, rig: str, instance: str, same: Callable[[Result], bool]) -> Path | None:
    """The newest journal of an instance that the same measurement can go on with, if there is one."""
    for path in result_files(results, rig, instance):
        if path.suffix == ".jsonl":
            try:
                found = read_result(path)
            except UserError:
                continue
            if same(found):
                return path
    return None
