"""A search as a file beside the results: a line for each candidate, so that one which was killed goes on.

`results/<rig>/<instance>/tune-<time>.jsonl`: the first line says what is searched, the last one what was found.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, TypeAdapter, ValidationError

from llamaherd.bench.results.appended import Appended, read
from llamaherd.bench.results.result import Kind
from llamaherd.diagnostics.findings import UserError
from llamaherd.tune.aim import Figures
from llamaherd.tune.candidate import Candidate
from llamaherd.tune.lines import Deep, Found, Head, Limited, Sized, Trial, candidate_of
from llamaherd.tune.probe import Sizes
from llamaherd.tune.quality import Cost, Judged, Precision, precision_of
from llamaherd.tune.trials import Outcome, Trials

MOST, _MOST_FILES = 8 << 20, 1_000
_MOST_FOLDERS, _NEWEST, _MOST_READ, _MOST_HINTS = 100, 3, 50, 3
"""Folders that are looked through, searches of an instance, those that are read, and what of them is tried."""
SEARCH_NAME = re.compile(r"tune-\d{8}T\d{6}Z\.jsonl")

_FOR_PROMPTS = ("batch", "ubatch")
"""Keys that change how a prompt is read, and nothing about how an answer is written."""
_DISTURBED = 1.1
"""How many times as fast a later reading of the same is where the first one was disturbed."""

Later = Sized | Trial | Judged | Deep | Limited | Found
"""A line after the head."""
_LINE: TypeAdapter[Head | Later] = TypeAdapter(Annotated[Head | Later, Field(discriminator="line")])


class Search:
    """All that a search has written by now."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self.sizes: Sizes | None = None
        self.trials: list[Trial] = []
        self.judged: dict[Precision, Judged] = {}
        self.deep: dict[Candidate, Deep] = {}
        self.limited: list[Limited] = []
        self.found: Found | None = None
        self._known: Trials | None = None  # of the lines that were taken by now

    def take(self, line: Head | Later) -> None:
        """Take one more line."""
        self._known = None
        match line:
            case Sized():
                self.sizes = line.sizes
            case Trial():
                self.trials.append(line)
            case Judged():
                self.judged[line.precision] = line
            case Deep():
                self.deep[candidate_of(line.keys)] = line
            case Limited():
                self.limited.append(line)
            case Found():
                self.found = line

    @property
    def known(self) -> Trials:
        """What came of each candidate of the search itself."""
        if self._known is None:
            self._known = Trials({candidate_of(each.keys): outcome for each, outcome in self.read()})
        return Trials(dict(self._known.outcomes))

    def read(self, *more: Trial) -> Iterator[tuple[Trial, Outcome]]:
        """Yield each trial of the search itself, and then `more`, with what came of it.

        How much is computed at once (`ubatch`) changes how prompts are read, and not how answers are written. So the
        answers of trials that differ in nothing else are those of the first one: one disturbed reading ends no climb.
        Where a later one is much faster, the first one was disturbed.
        """
        written: dict[Candidate, Mapping[Kind, float]] = {}
        for each in (*self.trials, *more):
            if each.round is not None:
                continue
            others = candidate_of(each.keys).with_keys(dict.fromkeys(_FOR_PROMPTS))
            if not each.why and self.head.aim.purpose == "turn":
                known = written.get(others, each.figures.decode)
                decode = {
                    kind: known.get(kind, 0.0) if speed <= _DISTURBED * known.get(kind, 0.0) else speed
                    for kind, speed in each.figures.decode.items()
                }
                written[others] = decode
                figures = each.figures.model_copy(update={"decode": decode})
                yield each, self.outcome(each.model_copy(update={"figures": figures}))
            else:
                yield each, self.outcome(each)

    @property
    def seconds(self) -> float:
        """How long all of it took by now."""
        tried, judged = (sum(each.seconds for each in lines) for lines in (self.trials, self.judged.values()))
        last = sum(each.seconds for each in self.deep.values()) + sum(each.seconds for each in self.limited)
        return tried + judged + last

    def round_of(self, number: int) -> dict[Candidate, Trial]:
        """What was measured in a round of the end."""
        return {candidate_of(each.keys): each for each in self.trials if each.round == number}

    def cost(self, candidate: Candidate) -> Cost | None:
        """What it costs; None where it computes no less exactly than what is declared, or nothing is judged."""
        if self.head.quality is None:
            return None
        precision = precision_of(candidate, candidate_of(self.head.declared), self.head.finest)
        return Cost(precision, self.judged.get(precision)) if precision else None

    def refused(self, candidate: Candidate) -> str | None:
        """Why it is none to be proposed; None where it may be, or nobody has judged it yet."""
        cost, limits = self.cost(candidate), self.head.quality
        judged = cost.judged if cost else None
        if judged is None or limits is None or judged.passes(limits):
            return None
        return f"{judged}, where {limits} is declared" if judged.quality else str(judged)

    @property
    def passed(self) -> tuple[Judged, ...]:
        """What was judged and may be proposed."""
        limits = self.head.quality
        return tuple(each for each in self.judged.values() if limits and each.passes(limits))

    @property
    def told(self) -> list[Trial]:
        """All trials, without the speeds of those of whose caches nobody knows that they are good enough."""
        return [self._told(each) for each in self.trials]

    def _told(self, trial: Trial) -> Trial:
        candidate = candidate_of(trial.keys)
        cost, refused = self.cost(candidate), self.refused(candidate)
        if trial.why or not cost or (cost.judged and not refused):
            return trial
        return trial.model_copy(update={"figures": Figures(), "why": "quality", "says": refused or str(cost)})

    def outcome(self, trial: Trial) -> Outcome:
        """A trial as the search takes it: one whose cache was found to cost too much is none, however fast."""
        if not trial.why and (refused := self.refused(candidate_of(trial.keys))):
            return Outcome(None, why="quality", says=refused)
        score = None if trial.why else self.head.aim.score(trial.figures)
        return Outcome(score, why=trial.why or ("answer" if score is None else None), says=trial.says)


class SearchJournal:
    """A search that is being written; use it as a context manager."""

    def __init__(self, lines: Appended, search: Search) -> None:
        self.path, self.search = lines.path, search
        self._lines = lines

    @classmethod
    def begin(cls, results: Path, head: Head) -> Self:
        """A new one. Raises UserError."""
        stamp = head.began.replace("-", "").replace(":", "")
        path = results / head.rig / head.instance / f"tune-{stamp}.jsonl"
        return cls(Appended.begin(path, _text(head)), Search(head))

    @classmethod
    def resume(cls, path: Path) -> Self:
        """One that was cut off, with all that it has. Raises UserError."""
        return cls(*Appended.resume(path, MOST, lambda data: _fold(data, path)))

    def add(self, line: Later) -> None:
        """Keep a line."""
        self._lines.add(_text(line))
        self.search.take(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()


def searches(results: Path, rig: str, instance: str) -> list[Path]:
    """The files of an instance's searches, the newest first."""
    folder = results / rig / instance
    try:
        with os.scandir(folder) as there:
            names = [each.name for _, each in zip(range(_MOST_FILES), there, strict=False)]
    except OSError:
        return []
    return [folder / name for name in sorted(filter(SEARCH_NAME.fullmatch, names), reverse=True)]


def read_search(path: Path) -> Search:
    """The search in a file. Raises UserError."""
    return _fold(read(path, MOST), path)[0]


def same_search(results: Path, head: Head) -> Path | None:
    """The newest file of the same search, whether it was cut off or has come to an end."""
    for path in searches(results, head.rig, head.instance):
        try:
            found = read_search(path)
        except UserError:
            continue
        if (found.head.identity, found.head.aim) == (head.identity, head.aim):
            return path
    return None


def found_by_twins(results: Path, head: Head) -> list[Candidate]:
    """What other searches for the same have come to on rigs of its kind, the newest first, within bounds."""
    found: dict[Candidate, None] = {}
    for path in newest_searches(results):
        with suppress(UserError):
            search = read_search(path)
            same = (search.head.kind, search.head.aim) == (head.kind, head.aim)
            if search.found and head.kind and same and search.head.identity != head.identity:
                found[candidate_of(search.found.keys)] = None
    return list(found)[:_MOST_HINTS]


def newest_searches(results: Path) -> list[Path]:
    """The newest files of each instance of all rigs, the newest of all first, within bounds."""
    every = [
        path
        for rig in _folders(results)
        for instance in _folders(results / rig)
        for path in searches(results, rig, instance)[:_NEWEST]
    ]
    return sorted(every, key=lambda each: each.name, reverse=True)[:_MOST_READ]


def _folders(folder: Path) -> list[str]:
    """The names of the folders in one; none where it cannot be read."""
    try:
        return sorted(each.name for each in folder.iterdir() if each.is_dir())[:_MOST_FOLDERS]
    except OSError:
        return []


def _text(line: Head | Later) -> bytes:
    value: dict[str, Any] = {"line": line.line} | line.model_dump(mode="json", exclude_defaults=True)
    return json.dumps(value).encode() + b"\n"


def _fold(data: bytes, path: Path) -> tuple[Search, int]:
    """The search in whole lines, and how many bytes those are. Raises UserError."""
    whole = data.rfind(b"\n") + 1
    search: Search | None = None
    for number, line in enumerate(data[:whole].splitlines(), 1):
        try:
            found = _LINE.validate_json(line)
        except (ValidationError, RecursionError):
            raise _unusable(path, f"line {number} is none of a search") from None
        if search is None and isinstance(found, Head):
            search = Search(found)
        elif search is None or isinstance(found, Head):
            raise _unusable(path, f"line {number} does not belong there")
        else:
            search.take(found)
    if search is None:
        raise _unusable(path, "it is empty")
    return search, whole


def _unusable(path: Path, why: str) -> UserError:
    return UserError(f"{path} is no search that can be used: {why}", "leave it out, or take the last good one back")
