"""The results that a report is of: those beside the inventory, those of a rig or an instance, and files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from llamaherd.bench.results.naming import read_any
from llamaherd.bench.results.store import read_result, result_files
from llamaherd.diagnostics.findings import UserError
from llamaherd.report.believable import believed
from llamaherd.report.measured import Measured

MOST = 2_000
"""Results that are read for a report, the newest of each instance first."""
_MOST_FOLDERS = 1_000
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")


@dataclass(frozen=True)
class Gathered:
    """The results that could be read, and a sentence for each file that could not."""

    found: tuple[Measured, ...]
    left_out: tuple[str, ...]


def gather(words: Sequence[str], results: Path) -> Gathered:
    """What is named, or all beside the inventory where nothing is. Raises UserError where a word names nothing."""
    found: dict[tuple[str, str, str], Measured] = {}
    left_out: list[str] = []
    files: dict[Path, None] = {}
    for word in words:
        if Path(word).is_file():
            found |= {_key(each): each for each in _in_file(Path(word))}
        else:
            files |= dict.fromkeys(_named(word, results))
    if not words:
        files |= dict.fromkeys(_all(results))
    for path in list(files)[:MOST]:
        try:
            each = believed(read_result(path), str(path))
        except UserError as error:
            left_out.append(error.message)
        else:
            found[_key(each)] = each
    if len(files) > MOST:
        left_out.append(f"{len(files) - MOST:,} older results are left out: no more than {MOST:,} are read")
    if not found:
        why = left_out[0] if left_out else f"there are no results in {results}"
        raise UserError(why, "name files with results; `herd explain report` says which can be read")
    every = sorted(found.values(), key=lambda each: (each.rig, each.instance, each.label, each.began, each.id))
    return Gathered(tuple(every), tuple(left_out))


def _key(each: Measured) -> tuple[str, str, str]:
    return each.began, each.id, each.label


def _in_file(path: Path) -> Iterator[Measured]:
    """The results of a file, called after it where they have no other name, as `herd compare` calls them."""
    read = read_any(path)
    for number, result in enumerate(read, start=1):
        each = believed(result, str(path))
        name = f"{path.name}:{number}" if len(read) > 1 else path.name
        if result.shared:
            # All that are for others call their rig and instance alike: two of them need not be of the same.
            each = replace(each, rig="shared", instance=path.name, label=path.name)
        yield replace(each, label=name) if each.less and not result.stack else each


def _named(word: str, results: Path) -> Iterator[Path]:
    rig, _, instance = word.partition("/")
    if not _NAME.fullmatch(rig) or (instance and not _NAME.fullmatch(instance)):
        raise UserError(f"there is no file {word}", "name a file with results, a rig, or RIG/INSTANCE")
    names = [instance] if instance else _folders(results / rig)
    files = [file for name in names for file in result_files(results, rig, name)]
    if not files:
        raise UserError(f"there is no result of {word} in {results}", "name a file with results instead")
    yield from files


def _all(results: Path) -> Iterator[Path]:
    """All there are: the newest of each instance before the second of any."""
    each = [result_files(results, rig, name) for rig in _folders(results) for name in _folders(results / rig)]
    for place in range(max(map(len, each), default=0)):
        yield from (files[place] for files in each if place < len(files))


def _folders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as there:
            entries = [each for _, each in zip(range(_MOST_FOLDERS), there, strict=False)]
        return sorted(each.name for each in entries if _NAME.fullmatch(each.name) and each.is_dir())
    except OSError:
        return []
