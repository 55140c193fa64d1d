"""Find the result that a user names: a file in any supported format, or the newest of an instance."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.results.document import (
    MOST_RESULT_BYTES,
    fold_journal,
    has_too_many_values,
    load_json,
    parse_result,
)
from llamaherd.measure.results.importers import (
    ImportTarget,
    JsonObject,
    is_llama_bench,
    is_llama_benchy,
    is_sweep_bench,
    parse_llama_bench,
    parse_llama_benchy,
    parse_sweep_bench,
    parse_tables,
)
from llamaherd.measure.results.result import Result
from llamaherd.measure.results.store import read_result, result_files
from llamaherd.text.numbers import utc_stamp
from llamaherd.text.textfile import UnreadableError, read_bytes

_HELP = (
    "llama-bench `-o json`, llama-sweep-bench `--output-format jsonl`, llama-benchy `--format json` and tables with a "
    "column of t/s can be read"
)


def parse_foreign_results(data: bytes, name: str, whose: ImportTarget) -> tuple[Result, ...]:
    """The results that others have written, in a file of this name. Raises UserError."""
    if len(data) > MOST_RESULT_BYTES:
        raise UserError(f"{name} is larger than {MOST_RESULT_BYTES >> 20} MiB", _HELP)
    try:
        document = data.decode()
    except UnicodeDecodeError:
        raise UserError(f"{name} is no text", _HELP) from None
    rows = _json_rows(document, name)
    if rows is None:
        found = parse_tables(document, whose)
    elif len(rows) == 1 and is_llama_benchy(rows[0]):
        found = parse_llama_benchy(rows[0], whose)
    elif is_llama_bench(rows):
        found = parse_llama_bench(rows, whose)
    elif is_sweep_bench(rows):
        found = parse_sweep_bench(rows, whose)
    else:
        found = ()
    found = tuple(result for result in found if any(cell.runs for cell in result.cells))
    if not found:
        raise UserError(f"{name} holds no measurement that is known here", _HELP)
    return found


def _json_rows(document: str, name: str) -> list[JsonObject] | None:
    """The objects of a JSON document or of lines of JSON; None where it is something else."""
    start = document.lstrip()[:1]
    if start not in ("{", "["):
        return None
    try:
        value = json.loads(document)
    except RecursionError:
        raise UserError(f"{name} is nested too deeply", _HELP) from None
    except ValueError:
        value = [load_json(line.encode(), name) for line in document.splitlines() if line.strip()[:1] == "{"]
    if has_too_many_values(value):
        raise UserError(f"{name} holds more values than are looked at", _HELP)
    rows = value if isinstance(value, list) else [value]
    return rows if all(isinstance(row, dict) for row in rows) else []


_COUNTED = re.compile(r"(.+):([1-9]\d{0,4})")
_INSTANCE = re.compile(r"([a-z0-9][a-z0-9._-]{0,39})/([a-z0-9][a-z0-9._-]{0,39})")
_OURS = re.compile(rb'\s*\{\s*"(?:format|begin)"')
_MOST_NAMED = 12
_LATEST = 2**37
"""A time in the year 6325: a file may claim to be of a later one."""


def named_result(word: str, results: Path) -> Result:
    """The result in `FILE`, the second one in `FILE:2`, the newest of `RIG/INSTANCE`, the one before it in
    `RIG/INSTANCE:2`. Raises UserError."""
    counted = None if Path(word).exists() else _COUNTED.fullmatch(word)
    name, number = (counted[1], int(counted[2])) if counted else (word, None)
    if Path(name).exists():
        return _select_result(read_results(Path(name)), name, number)
    instance = _INSTANCE.fullmatch(name)
    if not instance:
        raise UserError(f"there is no file {name}", "name a file with a result, or RIG/INSTANCE")
    files = result_files(results, instance[1], instance[2])
    if not files:
        raise UserError(f"there is no result of {name} in {results}", "name a file with a result instead")
    if (number or 1) > len(files):
        raise UserError(f"there are {len(files)} results of {name}", f"the oldest one is `{name}:{len(files)}`")
    return read_result(files[(number or 1) - 1])


def read_results(path: Path) -> tuple[Result, ...]:
    """The results in a file, whoever has written it. Raises UserError."""
    try:
        data = read_bytes(path, MOST_RESULT_BYTES)
        changed = datetime.fromtimestamp(min(max(path.stat().st_mtime, 0), _LATEST), UTC)
    except UnreadableError as error:
        raise UserError(f"cannot read {path}: {error}", error.help) from None
    except (OSError, OverflowError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}", "check the path and its mode") from None
    if _OURS.match(data):
        return (fold_journal(data, str(path))[0] if path.suffix == ".jsonl" else parse_result(data, str(path)),)
    slug = re.sub(r"[^a-z0-9._-]+", "-", path.stem.lower()).strip("._-")[:40] or "file"
    return parse_foreign_results(data, str(path), ImportTarget("elsewhere", slug, utc_stamp(changed)))


def _select_result(found: tuple[Result, ...], name: str, number: int | None) -> Result:
    if number is not None and number <= len(found):
        return found[number - 1]
    if number is None and len(found) == 1:
        return found[0]
    shown = "; ".join(f"{name}:{at} {_summary(each)}" for at, each in enumerate(found[:_MOST_NAMED], start=1))
    raise UserError(f"{name} holds {len(found)} results", f"say which: {shown}")


def _summary(result: Result) -> str:
    """A few words that tell a result from others of its file."""
    first = str(result.cells[0].condition) if result.cells else "nothing"
    more = f" and {len(result.cells) - 1} more" if len(result.cells) > 1 else ""
    return f"({result.stack or first + more})"
