"""Results as files in the inventory folder: documents, journals of running measurements, redaction, JSON Schema."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from tempfile import mkstemp
from typing import Any, Self, TypeVar

from pydantic import StringConstraints, ValidationError

from llamaherd import __version__
from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.file_writer import write_atomically
from llamaherd.measure.results.result import FORMAT, Around, Cell, Recorded, Result, Run, Start
from llamaherd.onhost.posix import sync_folder
from llamaherd.text.textfile import UnreadableError, read_bytes

MOST_RESULT_BYTES, _MOST_VALUES = 8 << 20, 400_000
"""Bytes and values of a result. A run has some 400 bytes and 22 values, and 256 more with its pieces."""

_RESTORE = "restore the last good one from version control, or leave it out"


def with_id(result: Result) -> Result:
    """Return the result with its id."""
    return result.model_copy(update={"id": content_id(result)})


def content_id(result: Result) -> str:
    """Return the hash of a result without its id: 12 hexadecimal digits."""
    value = result.model_dump(mode="json", exclude={"id"}, exclude_defaults=True)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def result_bytes(result: Result) -> bytes:
    """Render the document, a line for each run, without defaults. Raise UserError if it is too large."""
    value = {"format": FORMAT} | result.model_dump(mode="json", exclude_defaults=True, exclude={"cells"})
    head = json.dumps(value, indent=1)
    cells = ",\n  ".join(map(_cell_text, result.cells))
    data = f'{head[:-2]},\n "cells": [\n  {cells}\n ]\n}}\n'.encode()
    if len(data) > MOST_RESULT_BYTES:
        raise UserError("this result is larger than what is read again", "measure fewer conditions at a time")
    return data


def _cell_text(cell: Cell) -> str:
    runs = ",\n    ".join(json.dumps(run.model_dump(mode="json", exclude_defaults=True)) for run in cell.runs)
    condition = json.dumps(cell.condition.model_dump(mode="json", exclude_defaults=True))
    took = cell.telemetry.model_dump(mode="json", exclude_defaults=True) if cell.telemetry else None
    telemetry = f'"telemetry": {json.dumps(took)},\n   ' if took is not None else ""
    return f'{{"condition": {condition},\n   {telemetry}"runs": [\n    {runs}]}}'


def parse_result(data: bytes, name: str) -> Result:
    """Parse the result in a document of this name. Raise UserError."""
    value = load_json(data, name)
    found = value.get("format") if isinstance(value, dict) else None
    if type(found) is not int or "cells" not in value:
        raise UserError(f"{name} is no result of a measurement", "name a file that a measurement has written")
    if found > FORMAT:
        raise UserError(
            f"{name} is a result of format {found}, and this llamaherd, {__version__}, reads format {FORMAT}",
            "use the llamaherd that wrote it, or a newer one",
        )
    result = _validated(data, name)
    if result.id != content_id(result):
        raise UserError(
            f"{name} was changed after the measurement: the hash of its content differs from its id", _RESTORE
        )
    return result


def load_json(data: bytes, name: str) -> Any:
    """Parse JSON within bounds. Raise UserError."""
    if len(data) > MOST_RESULT_BYTES:
        raise unusable_result(name, f"it is larger than {MOST_RESULT_BYTES >> 20} MiB")
    try:
        value = json.loads(data.decode())
    except RecursionError:
        raise unusable_result(name, "it is nested too deeply") from None
    except UnicodeDecodeError:
        raise unusable_result(name, "it is no text") from None
    except ValueError:
        raise unusable_result(name, "it is no JSON, or ends in the middle") from None
    if has_too_many_values(value):
        raise unusable_result(name, f"it holds more than {_MOST_VALUES:,} values")
    return value


def has_too_many_values(value: Any) -> bool:
    """Check for more values than are validated: each wrong one would be reported."""
    left, count = [value], 0
    while left and count <= _MOST_VALUES:
        each = left.pop()
        inner = list(each.values()) if isinstance(each, dict) else each if isinstance(each, list) else []
        count += len(inner)
        left += [deeper for deeper in inner if isinstance(deeper, dict | list)]
    return count > _MOST_VALUES


def unusable_result(name: str, why: str) -> UserError:
    """Return the error that a file is unusable as a result, with the reason."""
    return UserError(f"{name} is no usable result: {why}", _RESTORE)


def _validated(data: bytes, name: str) -> Result:
    try:
        return Result.model_validate_json(data)
    except ValidationError as error:
        raise unusable_result(name, _problem(error)) from None


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    problem = first["msg"].removeprefix("Value error, ")
    return f"`{place or 'cells'}`: {problem[0].lower()}{problem[1:]}"


def journal_line(**parts: Any) -> bytes:
    """Return a line of a journal.

    `begin` is the result before the first run, `start` one more start of the server, and `run` a run under the
    condition of the number `cell`. `excluded` is the number of a run of `cell` that does not count afterwards, and
    `why`.
    """
    value = {
        name: each.model_dump(mode="json", exclude_defaults=True) if isinstance(each, Recorded) else each
        for name, each in parts.items()
    }
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def fold_journal(data: bytes, name: str) -> tuple[Result, int]:
    """Return the result that a journal has so far, and how many of its bytes are complete lines. Raise UserError.

    A power cut leaves a last line that is incomplete or no text: it is ignored.
    """
    if len(data) > MOST_RESULT_BYTES:
        raise unusable_result(name, f"it is larger than {MOST_RESULT_BYTES >> 20} MiB")
    lines = data.splitlines(keepends=True)
    values: list[dict[str, Any]] = []
    whole = 0
    for number, line in enumerate(lines, start=1):
        try:
            value = load_json(line, f"line {number} of {name}")
        except UserError:
            if number == len(lines):
                break
            raise
        if not line.endswith(b"\n"):
            break
        values.append(value)
        whole += len(line)
    return _folded(values, name), whole


def _has_run(cells: Sequence[dict[str, Any]], cell: int, place: int) -> bool:
    """Check that a journal's cell has a run of this number."""
    runs = cells[cell]["runs"] if 0 <= cell < len(cells) else []
    return 0 <= place < len(runs) and isinstance(runs[place], dict)


def _folded(values: list[dict[str, Any]], name: str) -> Result:
    if not values or not isinstance(values[0], dict) or not isinstance(begun := values[0].get("begin"), dict):
        raise unusable_result(name, "its first line does not describe the measurement")
    cells = [dict(each, runs=[]) for each in begun.get("cells", ()) if isinstance(each, dict)]
    starts = list(begun.get("starts", ()))
    for number, value in enumerate(values[1:], start=2):
        match value:
            case {"start": start}:
                starts.append(start)
            case {"cell": int(cell), "run": run} if 0 <= cell < len(cells):
                cells[cell]["runs"].append(run)
            case {"cell": int(cell), "excluded": int(place), "why": str(why)} if _has_run(cells, cell, place):
                cells[cell]["runs"][place]["excluded"] = why
            case _:
                raise unusable_result(name, f"line {number} is no line of a journal")
    whole = dict(begun, cells=cells, starts=starts)
    return _validated(json.dumps(whole).encode(), name)


def result_schema() -> dict[str, Any]:
    """Return the schema of a result's document."""
    schema = _without_titles(Result.model_json_schema())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:llamaherd:result",
        "title": "A measurement of llamaherd",
        **schema,
        "required": ["format", *schema["required"], "cells"],
    }


def result_schema_text() -> str:
    """Return the text of `result.schema.json`."""
    return json.dumps(result_schema(), indent=2, ensure_ascii=False) + "\n"


def _without_titles(value: Any) -> Any:
    """Remove the titles that pydantic derives from names: they add nothing."""
    if isinstance(value, dict):
        return {key: _without_titles(each) for key, each in value.items() if not (key == "title" and type(each) is str)}
    return [_without_titles(each) for each in value] if isinstance(value, list) else value


HIDDEN = "…"

_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?i)\b[a-z][a-z0-9+.-]*://[^\s\"'<>]+",  # URLs, with hosts, users and ports
        r"[\w.+-]+@[\w.-]+",  # addresses of mail, and users at hosts
        r"(?i)\b(?:GPU-|MIG-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",  # UUIDs
        r"(?i)\b[0-9a-f]{2}(?::[0-9a-f]{2}){5}\b",  # MAC addresses
        r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b",  # IPv4
        r"(?i)(?<![\w:])(?:[0-9a-f]{1,4}:){2,7}[0-9a-f]{0,4}(?![\w:])|(?i:(?<![\w:])[0-9a-f:]*::[0-9a-f:]*)",  # IPv6
        r"(?i)\b[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:lan|local|localdomain|home|internal|intranet|fritz\.box|home\.arpa)\b",
        r"(?<![\w.])(?:~\w*|[A-Za-z]:)?[/\\][^\s\"'|;,=]+",  # paths
    )
)
_HOME = re.compile(r"(?i)(?:/home/|/Users/|\\Users\\)([^\s/\\\"'|;,=:]+)")
_SHORTEST = 3
"""Letters of a name, below which it occurs in too many other words."""


def redact_result(result: Result) -> Result:
    """Return the result without private data, and with an id of its own.

    Names of hosts and users are removed wherever they occur as a word; rig and instance get generic names. Hashes of
    models and builds stay: they identify what was measured.
    """
    origin = result.provenance
    around = Around(
        instances=("another",) * len(origin.around.instances),
        processes=("another",) * len(origin.around.processes),
        load=origin.around.load,
    )
    provenance = origin.model_copy(
        update={
            "host": origin.host.model_copy(update={"name": None}),
            "gpus": tuple(gpu.model_copy(update={"uuid": None, "address": None}) for gpu in origin.gpus),
            "server": origin.server.model_copy(update={"user": None}),
            "around": around,
        }
    )
    starts = tuple(
        each.model_copy(update={"process": str(number) if each.process else None})
        for number, each in enumerate(result.starts)
    )
    bare = {"rig": "rig", "instance": "instance", "shared": True, "starts": starts, "provenance": provenance}
    return with_id(_scrubbed(result.model_copy(update=bare), _private_words(result)))


def redact_text(text: str, private: Iterable[str] = ()) -> str:
    """Remove addresses, UUIDs, paths and these words from a text."""
    for pattern in _PATTERNS:
        text = pattern.sub(HIDDEN, text)
    for word in private:
        text = re.sub(rf"(?i)(?<![^\W_]){re.escape(word)}(?![^\W_])", HIDDEN, text)
    return text


def _private_words(result: Result) -> tuple[str, ...]:
    """Return the names of the host, of the rig and of users, the longest first."""
    host, user = result.provenance.host.name or "", result.provenance.server.user or ""
    homes = set(_HOME.findall("\n".join(_texts(result.model_dump(mode="json")))))
    words = {host, host.partition(".")[0], user, result.rig, *homes}
    return tuple(sorted((word for word in words if len(word) >= _SHORTEST), key=len, reverse=True))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inner:
        yield from _texts(each)


def free_texts(model: type[Recorded]) -> frozenset[str]:
    """Return the fields of a model that may hold any text: not those of a fixed form, which hold no names."""
    return frozenset(
        name
        for name, field in model.model_fields.items()
        if field.annotation in _FREE and not any(isinstance(each, StringConstraints) for each in field.metadata)
    )


_FREE = (str, str | None, tuple[str, ...], dict[str, str])
M = TypeVar("M", bound=Recorded)


def _scrubbed(model: M, private: tuple[str, ...]) -> M:
    free = free_texts(type(model))
    fields = {name: getattr(model, name) for name in type(model).model_fields}
    return model.model_copy(
        update={name: _redacted(value, private, free=name in free) for name, value in fields.items()}
    )


def _redacted(value: Any, private: tuple[str, ...], *, free: bool) -> Any:
    """Return the value of a field without private data; `free`: it may hold any text."""
    if isinstance(value, Recorded):
        return _scrubbed(value, private)
    if isinstance(value, tuple):
        return tuple(_redacted(each, private, free=free) for each in value)
    if free and isinstance(value, dict):
        return {redact_text(key, private): redact_text(each, private) for key, each in value.items()}
    return redact_text(value, private) if free and isinstance(value, str) else value


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
                try:
                    os.link(part, path)
                except FileExistsError:
                    help_ = "another measurement began in the same second: try again"
                    raise UserError(f"{path} exists already", help_) from None
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


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Raise errors of the file system as UserError."""
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UserError(f"cannot write {path}: {why}", "check the folder, its mode and its disk") from None


def _lock_file(handle: int, path: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise UserError(f"{path} is being written by another run", "wait for that one, or end it") from None


RESULTS = "results"
MOST_FILES = 10_000
"""Results of one instance that are read at most."""

_FOLDER = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
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


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, within bounds; none if it cannot be read."""
    try:
        with os.scandir(folder) as there:
            return [each.name for each in islice(there, MOST_FILES)]
    except OSError:
        return []


def folders_in(folder: Path) -> list[str]:
    """Return the names of rigs or instances that have a folder in a folder."""
    return sorted(name for name in names_in(folder) if _FOLDER.fullmatch(name) and (folder / name).is_dir())


def result_files(results: Path, rig: str, instance: str) -> list[Path]:
    """Return the files of an instance's results, the newest first."""
    folder = results / rig / instance
    names = names_in(folder)
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

    Results of blocks and damaged files are left out.
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
        write_atomically(path, data, 0o644)
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
        return cls(AppendOnlyFile.begin(path, journal_line(begin=begun)), begun)

    @classmethod
    def resume(cls, path: Path) -> Self:
        """Open the journal of an interrupted measurement; an incomplete last line is cut off."""
        return cls(*AppendOnlyFile.resume(path, MOST_RESULT_BYTES, lambda data: fold_journal(data, str(path))))

    def add_start(self, start: Start) -> None:
        """Record that the server was started once more: later runs belong to that start."""
        self._lines.add(journal_line(start=start))
        self.result = self.result.model_copy(update={"starts": (*self.result.starts, start)})

    def add_run(self, cell: int, run: Run) -> None:
        """Record a run under the condition of this number."""
        self._lines.add(journal_line(cell=cell, run=run))
        self._set_runs(cell, (*self.result.cells[cell].runs, run))

    def exclude(self, cell: int, number: int, why: str) -> None:
        """Record that a run does not count, unless it is excluded already."""
        runs = list(self.result.cells[cell].runs)
        if runs[number].excluded:
            return
        self._lines.add(journal_line(cell=cell, excluded=number, why=why))
        runs[number] = runs[number].model_copy(update={"excluded": why})
        self._set_runs(cell, tuple(runs))

    def _set_runs(self, cell: int, runs: tuple[Run, ...]) -> None:
        cells = list(self.result.cells)
        cells[cell] = cells[cell].model_copy(update={"runs": runs})
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

    def __exit__(self, *_: object) -> None:
        self.close()


def unfinished_journal(results: Path, rig: str, instance: str, same: Callable[[Result], bool]) -> Path | None:
    """Find the newest journal of an instance that the same measurement can resume."""
    for path in result_files(results, rig, instance):
        if path.suffix == ".jsonl":
            with suppress(UserError):
                if same(read_result(path)):
                    return path
    return None
