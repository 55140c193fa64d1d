"""The runs of `herd up` on a host: releases, each with its plan, and the texts that a rollback needs."""

from __future__ import annotations

import base64
import gzip
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from llamaherd.layout import KEPT, LOCK_WAIT, RELEASES, WRITTEN
from llamaherd.onhost.files import cannot_write
from llamaherd.onhost.system import System
from llamaherd.onhost.verbs import Verb

MOST_RELEASES = 50
"""Releases that a host keeps."""
MOST_PLAN = 8 << 20
"""Bytes of a plan: one of hundreds of instances has less than a tenth."""
_MOST_RELEASE, _MOST_PACKED = 256 << 10, 1 << 20
BEGUN = f"{RELEASES}/begun"
"""Exists while a run changes the host, and afterwards if the run was interrupted and has stored no release."""
_NUMBERED = re.compile(r"([0-9]{1,9})\.json")
_GOOD = '"failed":[]'
"""A release without failures contains this text."""


@dataclass(frozen=True)
class WriteInput:
    """A release and its plan, as JSON. Neither contains a secret."""

    release: str
    plan: str


@dataclass(frozen=True)
class ReadInput:
    """The plans to read: of so many of the newest releases, of as many good ones, and of one number.

    With `texts`, also the state of files that are made of keys.
    """

    newest: int = 0
    number: int = 0
    texts: bool = False


@dataclass(frozen=True)
class StoredRelease:
    """A release, as JSON, and its plan if it was requested: gzip in base64."""

    number: int
    release: str
    plan: str = ""


@dataclass(frozen=True)
class Stored:
    """The releases of a host, and whether files that are made of keys are as they were written last, by their paths."""

    releases: tuple[StoredRelease, ...] = ()
    texts: Mapping[str, bool] = field(default_factory=dict)


def write(given: WriteInput, system: System) -> None:
    """Write a release and its plan under the next number, and remove the oldest. Raise FailedError."""
    with system.lock("releases", LOCK_WAIT, "storing the release"):
        try:
            if system.entry(str(RELEASES)) is None:
                system.folder(str(RELEASES), mode=0o700)
            numbers = _numbers(system)
            number = max(numbers, default=0) + 1
            # The plan first: a release is there once its plan is.
            system.write(f"{RELEASES}/{number}.plan", gzip.compress(given.plan.encode(), mtime=0))
            system.write(f"{RELEASES}/{number}.json", given.release)
            system.remove(BEGUN)
            for old in [number, *numbers][MOST_RELEASES:]:
                system.remove(f"{RELEASES}/{old}.json")
                system.remove(f"{RELEASES}/{old}.plan")
        except OSError as error:
            raise cannot_write(error) from error


def note_begin(system: System) -> None:
    """Note that a run changes the host: until it stores its release, no release has the state of the host."""
    with suppress(OSError):
        if system.entry(str(RELEASES)) is None:
            system.folder(str(RELEASES), mode=0o700)
        system.write(BEGUN, "")


def find_unsettled(system: System) -> str:
    """Return why the newest release has not the state of the host; empty if it has, or if there is none."""
    if system.entry(BEGUN):
        return "a run was interrupted"
    numbers = _numbers(system)[:1]
    failed = [each for each in numbers if _GOOD not in (system.read(f"{RELEASES}/{each}.json") or _GOOD)]
    return f"release {failed[0]} failed" if failed else ""


def read(given: ReadInput, system: System) -> Stored:
    """Read releases, and plans however many releases have failed since."""
    numbers = _numbers(system)[:MOST_RELEASES]
    wanted = {*numbers[: given.newest], *_good(system, numbers, given.newest), given.number}
    releases = tuple(
        StoredRelease(
            number,
            system.read(f"{RELEASES}/{number}.json", _MOST_RELEASE) or "",
            _packed(system, number) if number in wanted else "",
        )
        for number in numbers
    )
    return Stored(releases, _texts(system) if given.texts else {})


def needed(system: System, keep: int) -> Iterator[tuple[Literal["release", "kept"], str, str]]:
    """Yield the texts that a rollback needs: of the newest good releases, and of servers that are kept to be restored.

    Each text has a kind and a name before it: `release` and its number, or `kept` and the server.
    """
    for number in _good(system, _numbers(system), keep):
        for text in _plan(system, number).split('"'):
            yield "release", str(number), text
    for name in system.names(str(KEPT)):
        for version in ("last", "before"):
            yield "kept", name, system.read(f"{KEPT}/{name}/{version}/file") or ""


def _numbers(system: System) -> list[int]:
    """Return the numbers of releases, the newest first."""
    found = map(_NUMBERED.fullmatch, system.names(str(RELEASES)))
    return sorted((int(each[1]) for each in found if each), reverse=True)


def _good(system: System, numbers: list[int], most: int) -> list[int]:
    """Return the numbers of releases without failures: so many of the newest."""
    good: list[int] = []
    for number in numbers:
        if len(good) == most:
            break
        if _GOOD in (system.read(f"{RELEASES}/{number}.json") or ""):
            good.append(number)
    return good


def _packed(system: System, number: int) -> str:
    return base64.b64encode(system.read_bytes(f"{RELEASES}/{number}.plan", _MOST_PACKED) or b"").decode()


def _plan(system: System, number: int) -> str:
    """Return the text of a plan: as much of it as can be read."""
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        text = unpacking.decompress(system.read_bytes(f"{RELEASES}/{number}.plan", _MOST_PACKED) or b"", MOST_PLAN)
    except zlib.error:
        return ""
    return text.decode(errors="replace")


def _texts(system: System) -> dict[str, bool]:
    """Return whether files that are made of keys are as they were written last."""
    found: dict[str, bool] = {}
    for record in system.names(str(WRITTEN)):
        if record.startswith("."):
            continue
        for line in (system.read(f"{WRITTEN}/{record}") or "").split("\n"):
            if not line:
                continue
            digest, _, path = line.partition("\t")
            found[path] = system.digest([f"{WRITTEN}/.secret", path]) == digest
    return found


VERBS = {"write": Verb(WriteInput, write), "read": Verb(ReadInput, read)}
