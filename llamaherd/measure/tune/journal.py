"""A search as a file in the results folder, one JSON line for each step, so that an interrupted search resumes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter, ValidationError

from llamaherd.diagnostics.findings import UserError
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Rig
from llamaherd.measure.results.result import Count, Kind, Name, NotNegative, Positive, Recorded
from llamaherd.measure.results.store import AppendOnlyFile, folders_in, names_in, read_file
from llamaherd.measure.tune.candidate import (
    Candidate,
    Cost,
    Figures,
    Judged,
    Limits,
    Objective,
    Outcome,
    Outcomes,
    Precision,
    Sizes,
    Value,
    Why,
    precision_of,
)

Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]


class FingerprintGpu(Recorded):
    """A GPU, as far as another one is like it."""

    model: str
    memory_bytes: Count | None = None


class Fingerprint(Recorded):
    """The properties of a rig and an instance that others may share. `header` is the digest of the model's header."""

    engine: str
    model: str
    header: Hash | None = None
    gpus: tuple[FingerprintGpu, ...] = ()
    cores: Count
    context: Count
    parallel: Count


def fingerprint_of(rig: Rig, name: str, header: Header | None) -> Fingerprint:
    """Return the fingerprint of an instance of a rig."""
    instance = rig.instances[name]
    model = rig.models[instance.model]
    cards = rig.gpus.cards if rig.gpus else {}
    return Fingerprint(
        engine=rig.engines[instance.engine].kind,
        model=f"{model.hf} {model.quant or model.files}" if model.hf else instance.model,
        header=header.digest if header else None,
        gpus=tuple(
            FingerprintGpu(model=cards[each].model, memory_bytes=cards[each].memory_bytes) for each in instance.on
        ),
        cores=rig.host.cpu.cores,
        context=instance.context,
        parallel=instance.parallel,
    )


_Word = Annotated[str, StringConstraints(max_length=200)]
_Whole = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
_Key = Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,40}(\.[a-z_]{1,40})?$")]
_KeyValue = bool | _Whole | float | _Word | Annotated[list[float], Field(max_length=64)] | None


def _apart(keys: dict[str, Any]) -> dict[str, Any]:
    """Return the keys. Raise ValueError if one is a mapping and a value at once."""
    if both := {key.partition(".")[0] for key in keys if "." in key} & keys.keys():
        raise ValueError(f"{min(both)} is a mapping and a value")
    return keys


Keys = Annotated[dict[_Key, _KeyValue], Field(max_length=64), AfterValidator(_apart)]
"""Keys of an instance, within bounds, so that they can be written as lines of YAML."""


class Head(Recorded):
    """The search. `identity` is the hash of what a measurement depends on: build, files, machine, prompts, keys.

    `kind` is the hash of what two rigs share if one can begin with the result of the other; `likeness` has it in words,
    for commands without the rig. Early searches have neither. `quality` limits the loss of coarser caches and other
    weights, if these are tried; `finest` names the weights that others are compared with. `watts` are the power limits
    that are tried in the end, and `gpus` the names of the GPUs in the inventory.
    """

    line: Literal["head"] = "head"
    format: Literal[1] = 1
    llamaherd: str
    rig: Name
    instance: Name
    began: str
    identity: Hash
    kind: Hash | None = None
    likeness: Fingerprint | None = None
    aim: Objective
    declared: Keys
    quality: Limits | None = None
    finest: _Word = ""
    gpus: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    watts: Annotated[tuple[Count, ...], Field(max_length=64)] = ()


class TriedCandidate(Recorded):
    """A measured candidate. `round` numbers the final rounds, in which the best are measured again."""

    line: Literal["trial"] = "trial"
    keys: Keys
    figures: Figures = Figures()
    why: Why | None = None
    says: str = ""
    seconds: NotNegative = 0.0
    round: Count | None = None


class Deep(Recorded):
    """A candidate at the full depth of its context, in one start; `says` is why there are no figures.

    `prefill` is the speed of all of that prompt, and `decode` that of each response there.
    """

    line: Literal["deep"] = "deep"
    keys: Keys
    depth: Count
    prefill: Positive | None = None
    decode: Annotated[tuple[Positive, ...], Field(max_length=16)] = ()
    says: str = ""
    seconds: NotNegative = 0.0


class Limited(Recorded):
    """The best candidate under one power limit in one round. `as_now` marks the limit that its GPUs had before.

    `speed` is the score of the objective, or that of `turn` for efficiency; `joules` are those of a token.
    """

    line: Literal["limit"] = "limit"
    keys: Keys
    watts: Count
    round: Count
    speed: Positive
    joules: Positive
    as_now: bool = False
    seconds: NotNegative = 0.0


class Found(Recorded):
    """The end: the best keys.

    `cut` is why the pass over the keys was not completed, `shallow` why the full depth was not measured, and
    `unlimited` why no power limit was tried, if any of these was left out.
    """

    line: Literal["found"] = "found"
    keys: Keys
    ended: str
    cut: str = ""
    shallow: str = ""
    unlimited: str = ""


def candidate_of(keys: Keys) -> Candidate:
    """Return the candidate with the keys of a file."""
    return Candidate.of({key: tuple(value) if isinstance(value, list) else value for key, value in keys.items()})


def keys_of(candidate: Candidate) -> Keys:
    """Return a candidate's keys as a file contains them."""

    def plain(value: Value) -> bool | int | float | str | list[float] | None:
        return list(value) if isinstance(value, tuple) else value

    return {key: plain(value) for key, value in candidate.keys}


MOST = 8 << 20
_MOST_FOLDERS, _NEWEST, _MOST_READ, _MOST_HINTS = 100, 3, 50, 3
"""Folders that are read, searches of an instance, searches that are read, and results of them that are tried."""
SEARCH_NAME = re.compile(r"tune-\d{8}T\d{6}Z\.jsonl")

_FOR_PROMPTS = ("batch", "ubatch")
"""Keys that change the speed of prefill, but not that of decode."""
_DISTURBED = 1.1
"""How many times as fast a later measurement of the same is if the first one was disturbed."""

Line = Sizes | TriedCandidate | Judged | Deep | Limited | Found
"""A line after the head."""
_LINE: TypeAdapter[Head | Line] = TypeAdapter(Annotated[Head | Line, Field(discriminator="line")])


class Search:
    """The contents of a search's journal."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self.sizes: Sizes | None = None
        self.trials: list[TriedCandidate] = []
        self.judged: dict[Precision, Judged] = {}
        self.deep: dict[Candidate, Deep] = {}
        self.limited: list[Limited] = []
        self.found: Found | None = None
        self._known: Outcomes | None = None  # of the lines that were taken by now

    def take(self, line: Head | Line) -> None:
        """Add one line."""
        self._known = None
        match line:
            case Sizes():
                self.sizes = line
            case TriedCandidate():
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
    def known(self) -> Outcomes:
        """The outcome of each candidate, without the final rounds."""
        if self._known is None:
            self._known = Outcomes({candidate_of(each.keys): outcome for each, outcome in self.read()})
        return Outcomes(dict(self._known.outcomes))

    def read(self, *more: TriedCandidate) -> Iterator[tuple[TriedCandidate, Outcome]]:
        """Yield each trial of the search itself, and then `more`, with its outcome.

        The size of a batch (`ubatch`) changes the speed of prefill, but not that of decode. So trials that differ in
        nothing else have the decode of the first one: one disturbed measurement ends no climb. If a later one is much
        faster, the first one was disturbed.
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
        """The seconds of all measurements so far."""
        tried, judged = (sum(each.seconds for each in lines) for lines in (self.trials, self.judged.values()))
        last = sum(each.seconds for each in self.deep.values()) + sum(each.seconds for each in self.limited)
        return tried + judged + last

    def round_of(self, number: int) -> dict[Candidate, TriedCandidate]:
        """Return the measurements of a final round."""
        return {candidate_of(each.keys): each for each in self.trials if each.round == number}

    def cost(self, candidate: Candidate) -> Cost | None:
        """Return the loss of quality of a candidate; None if it computes as precisely as the declared keys."""
        if self.head.quality is None:
            return None
        precision = precision_of(candidate, candidate_of(self.head.declared), self.head.finest)
        return Cost(precision, self.judged.get(precision)) if precision else None

    def refused(self, candidate: Candidate) -> str | None:
        """Return why a candidate may not be proposed; None if it may, or if its quality is not measured yet."""
        cost, limits = self.cost(candidate), self.head.quality
        judged = cost.judged if cost else None
        if judged is None or limits is None or judged.passes(limits):
            return None
        return f"{judged}, where {limits} is declared" if judged.quality else str(judged)

    @property
    def passed(self) -> tuple[Judged, ...]:
        """The measured precisions that may be proposed."""
        limits = self.head.quality
        return tuple(each for each in self.judged.values() if limits and each.passes(limits))

    @property
    def measurements(self) -> list[TriedCandidate]:
        """All measurements, without the speeds of candidates whose quality is not known to suffice."""
        return [self._measurement(each) for each in self.trials]

    def _measurement(self, trial: TriedCandidate) -> TriedCandidate:
        candidate = candidate_of(trial.keys)
        cost, refused = self.cost(candidate), self.refused(candidate)
        if trial.why or not cost or (cost.judged and not refused):
            return trial
        return trial.model_copy(update={"figures": Figures(), "why": "quality", "says": refused or str(cost)})

    def outcome(self, trial: TriedCandidate) -> Outcome:
        """Return the outcome of a trial: a candidate that loses too much quality has no score, however fast it is."""
        if not trial.why and (refused := self.refused(candidate_of(trial.keys))):
            return Outcome(None, why="quality", says=refused)
        score = None if trial.why else self.head.aim.score(trial.figures)
        return Outcome(score, why=trial.why or ("answer" if score is None else None), says=trial.says)


class SearchJournal:
    """A search that is being written; use it as a context manager."""

    def __init__(self, lines: AppendOnlyFile, search: Search) -> None:
        self.path, self.search = lines.path, search
        self._lines = lines

    @classmethod
    def begin(cls, results: Path, head: Head) -> Self:
        """Begin a new journal. Raise UserError."""
        stamp = head.began.replace("-", "").replace(":", "")
        path = results / head.rig / head.instance / f"tune-{stamp}.jsonl"
        return cls(AppendOnlyFile.begin(path, _text(head)), Search(head))

    @classmethod
    def resume(cls, path: Path) -> Self:
        """Resume an interrupted journal with everything in it. Raise UserError."""
        return cls(*AppendOnlyFile.resume(path, MOST, lambda data: _fold(data, path)))

    def add(self, line: Line) -> None:
        """Write a line."""
        self._lines.add(_text(line))
        self.search.take(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()


def searches(results: Path, rig: str, instance: str) -> list[Path]:
    """Return the files of an instance's searches, the newest first."""
    folder = results / rig / instance
    return [folder / name for name in sorted(filter(SEARCH_NAME.fullmatch, names_in(folder)), reverse=True)]


def read_search(path: Path) -> Search:
    """Read the search in a file. Raise UserError."""
    return _fold(read_file(path, MOST), path)[0]


def same_search(results: Path, head: Head) -> Path | None:
    """Return the newest file of the same search, interrupted or finished; None without one."""
    for path in searches(results, head.rig, head.instance):
        with suppress(UserError):
            found = read_search(path)
            if (found.head.identity, found.head.aim) == (head.identity, head.aim):
                return path
    return None


def found_by_twins(results: Path, head: Head) -> list[Candidate]:
    """Return the results of searches with the same objective on similar rigs, the newest first, within bounds."""
    found: dict[Candidate, None] = {}
    for path in newest_searches(results):
        with suppress(UserError):
            search = read_search(path)
            same = (search.head.kind, search.head.aim) == (head.kind, head.aim)
            if search.found and head.kind and same and search.head.identity != head.identity:
                found[candidate_of(search.found.keys)] = None
    return list(found)[:_MOST_HINTS]


def newest_searches(results: Path) -> list[Path]:
    """Return the newest files of each instance of all rigs, the newest first, within bounds."""
    every = [
        path
        for rig in folders_in(results)[:_MOST_FOLDERS]
        for instance in folders_in(results / rig)[:_MOST_FOLDERS]
        for path in searches(results, rig, instance)[:_NEWEST]
    ]
    return sorted(every, key=lambda each: each.name, reverse=True)[:_MOST_READ]


def _text(line: Head | Line) -> bytes:
    value: dict[str, Any] = {"line": line.line} | line.model_dump(mode="json", exclude_defaults=True)
    return json.dumps(value).encode() + b"\n"


def _fold(data: bytes, path: Path) -> tuple[Search, int]:
    """Parse the complete lines of a search, and count their bytes. Raise UserError."""
    whole = data.rfind(b"\n") + 1
    search: Search | None = None
    for number, line in enumerate(data[:whole].splitlines(), 1):
        try:
            found = _LINE.validate_json(line)
        except (ValidationError, RecursionError):
            raise _unusable(path, f"line {number} is no line of a search") from None
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
    return UserError(f"{path} is no usable search: {why}", "leave it out, or restore the last good one")
