"""The result that somebody means: a file of ours or of others, or the newest of an instance."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from llamaherd.bench.importers.base import Whose
from llamaherd.bench.importers.read import read_foreign
from llamaherd.bench.results.document import MOST, fold, parse
from llamaherd.bench.results.result import Result
from llamaherd.bench.results.store import read_result, result_files
from llamaherd.diagnostics.findings import UserError
from llamaherd.text.textfile import UnreadableError, read_bytes
from llamaherd.text.units import utc_stamp

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
        return _of_several(read_any(Path(name)), name, number)
    instance = _INSTANCE.fullmatch(name)
    if not instance:
        raise UserError(f"there is no file {name}", "name a file with a result, or RIG/INSTANCE")
    files = result_files(results, instance[1], instance[2])
    if not files:
        raise UserError(f"there is no result of {name} in {results}", "name a file with a result instead")
    if (number or 1) > len(files):
        raise UserError(f"there are {len(files)} results of {name}", f"the oldest one is `{name}:{len(files)}`")
    return read_result(files[(number or 1) - 1])


def read_any(path: Path) -> tuple[Result, ...]:
    """The results in a file, whoever has written it. Raises UserError."""
    try:
        data = read_bytes(path, MOST)
        changed = datetime.fromtimestamp(min(max(path.stat().st_mtime, 0), _LATEST), UTC)
    except UnreadableError as error:
        raise UserError(f"cannot read {path}: {error}", error.help) from None
    except (OSError, OverflowError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}", "check the path and its mode") from None
    if _OURS.match(data):
        return (fold(data, str(path))[0] if path.suffix == ".jsonl" else parse(data, str(path)),)
    slug = re.sub(r"[^a-z0-9._-]+", "-", path.stem.lower()).strip("._-")[:40] or "file"
    return read_foreign(data, str(path), Whose("elsewhere", slug, utc_stamp(changed)))


def _of_several(found: tuple[Result, ...], name: str, number: int | None) -> Result:
    if number is not None and number <= len(found):
        return found[number - 1]
    if number is None and len(found) == 1:
        return found[0]
    shown = "; ".join(f"{name}:{at} {_about(each)}" for at, each in enumerate(found[:_MOST_NAMED], start=1))
    raise UserError(f"{name} holds {len(found)} results", f"say which: {shown}")


def _about(result: Result) -> str:
    """A few words that tell a result from others of its file."""
    first = str(result.cells[0].condition) if result.cells else "nothing"
    more = f" and {len(result.cells) - 1} more" if len(result.cells) > 1 else ""
    return f"({result.stack or first + more})"
