"""Read the results and searches of a report: all of an inventory, those of a rig or an instance, or files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.report.results import Measured, check_measured
from llamaherd.measure.report.searches import FinishedSearch
from llamaherd.measure.results.lookup import read_results
from llamaherd.measure.results.store import read_result, result_files
from llamaherd.measure.tune.journal import SEARCH_NAME, read_search, searches
from llamaherd.measure.tune.result import Shares, search_result

MOST = 2_000
"""The most results in a report, the newest of each instance first."""
_MOST_FOLDERS = 1_000
MOST_SEARCHES = 20
"""The most searches in a report, the newest of each instance first."""
_MOST_READ, _MOST_TRIALS = 100, 5_000
"""The most files of searches, and trials of one: real searches have fewer."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")


@dataclass(frozen=True)
class Gathered:
    """The results and finished searches of a report, and a message for each unreadable file.

    `beyond` names those of which there are more than the limit.
    """

    found: tuple[Measured, ...]
    left_out: tuple[str, ...]
    searches: tuple[FinishedSearch, ...] = ()
    beyond: str = ""


def gather_results(words: Sequence[str], results: Path, shares: Callable[[], Shares | None] = lambda: None) -> Gathered:
    """Return the named results, or all in `results/`. Raise UserError if a word names nothing.

    `shares` returns the function for the importance of keys. It is called only if there is a search.
    """
    found: dict[tuple[str, str, str], Measured] = {}
    left_out: list[str] = []
    files: dict[Path, None] = {}
    sought: dict[Path, None] = {}
    for word in words:
        if not Path(word).is_file():
            named, its = _named(word, results)
            files |= dict.fromkeys(named)
            sought |= dict.fromkeys(its)
        elif SEARCH_NAME.fullmatch(Path(word).name):
            sought[Path(word)] = None
        else:
            found |= {_key(each): each for each in _in_file(Path(word))}
    if not words:
        files |= dict.fromkeys(_all(results, result_files))
        sought |= dict.fromkeys(_all(results, searches))
    found |= _measured(list(files), left_out)
    ended = _ended(list(sought), shares, left_out)
    if not found and not ended:
        why = left_out[0] if left_out else f"there are no results in {results}"
        raise UserError(why, "name files with results; `herd explain report` lists the supported formats")
    every = sorted(found.values(), key=lambda each: (each.rig, each.instance, each.label, each.began, each.id))
    many = len(ended) == MOST_SEARCHES and len(sought) > MOST_SEARCHES
    beyond = f"of {len(sought)} searches {MOST_SEARCHES} are shown; a report of one rig has its own" if many else ""
    return Gathered(tuple(every), tuple(left_out), ended, beyond)


def _measured(files: Sequence[Path], left_out: list[str]) -> dict[tuple[str, str, str], Measured]:
    """Return the results of files, up to the limit. Append errors."""
    found = {}
    for path in files[:MOST]:
        try:
            each = check_measured(read_result(path), str(path))
        except UserError as error:
            left_out.append(error.message)
        else:
            found[_key(each)] = each
    if len(files) > MOST:
        left_out.append(f"{len(files) - MOST:,} older results are left out: no more than {MOST:,} are read")
    return found


def _ended(
    files: Sequence[Path], shares: Callable[[], Shares | None], left_out: list[str]
) -> tuple[FinishedSearch, ...]:
    """Return the finished searches of files, up to the limit. Append errors."""
    found: list[FinishedSearch] = []
    importance = shares() if files else None
    for path in files[:_MOST_READ]:
        if len(found) == MOST_SEARCHES:
            break
        try:
            search = read_search(path)
        except UserError as error:
            left_out.append(error.message)
            continue
        if len(search.trials) > _MOST_TRIALS:
            left_out.append(f"{path} has {len(search.trials):,} trials, which no search has")
        elif search.found:
            end = search_result(search, shares=importance)
            found.append(FinishedSearch(search.head, search.found.ended, path.name, end, tuple(search.measurements)))
    return tuple(sorted(found, key=lambda each: (each.head.rig, each.head.instance, each.head.began)))


def _key(each: Measured) -> tuple[str, str, str]:
    return each.began, each.id, each.label


def _in_file(path: Path) -> Iterator[Measured]:
    """Return the results of a file. Unnamed ones are named after the file, as in `herd compare`."""
    read = read_results(path)
    for number, result in enumerate(read, start=1):
        each = check_measured(result, str(path))
        name = f"{path.name}:{number}" if len(read) > 1 else path.name
        if result.shared:
            # Shared files have the same rig and instance names: two of them may be of different instances.
            each = replace(each, rig="shared", instance=path.name, label=path.name)
        yield replace(each, label=name) if each.less and not result.stack else each


def _named(word: str, results: Path) -> tuple[list[Path], list[Path]]:
    """Return the files of results and of searches of a rig or an instance. Raise UserError."""
    rig, _, instance = word.partition("/")
    if not _NAME.fullmatch(rig) or (instance and not _NAME.fullmatch(instance)):
        raise UserError(f"there is no file {word}", "name a file with results, a rig, or RIG/INSTANCE")
    names = [instance] if instance else _folders(results / rig)
    files = [file for name in names for file in result_files(results, rig, name)]
    sought = list(_in_turn([searches(results, rig, name) for name in names]))
    if not files and not sought:
        raise UserError(f"there is no result of {word} in {results}", "name a file with results instead")
    return files, sought


def _all(results: Path, of: Callable[[Path, str, str], Sequence[Path]]) -> Iterator[Path]:
    """Return all files: the newest of each instance before the second newest of any."""
    return _in_turn([of(results, rig, name) for rig in _folders(results) for name in _folders(results / rig)])


def _in_turn(each: Sequence[Sequence[Path]]) -> Iterator[Path]:
    for place in range(max(map(len, each), default=0)):
        yield from (files[place] for files in each if place < len(files))


def _folders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as there:
            entries = [each for _, each in zip(range(_MOST_FOLDERS), there, strict=False)]
        return sorted(each.name for each in entries if _NAME.fullmatch(each.name) and each.is_dir())
    except OSError:
        return []
