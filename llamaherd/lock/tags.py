"""Versions in tags of git repositories and images, and the newest tag of a kind."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_VERSION = re.compile(r"(?<![\w.])(v?)(\d{1,9}(?:\.\d{1,9}){1,3})(?![\w.])|(?<![\w.])(b)(\d{1,9})(?![\w.])", re.ASCII)
"""The version in a tag: `v0.33.0` of `v0.33.0-cu129`, `b11434` of `server-cuda13-b11434`."""


@dataclass(frozen=True)
class TagVersion:
    """The version in a tag, and the text around it, which differs between the variants of a release."""

    before: str
    numbers: tuple[int, ...]
    after: str

    @property
    def variant(self) -> tuple[str, str, int]:
        """The parts that are equal in two tags that differ in their version only."""
        return self.before, self.after, len(self.numbers)


def tag_version(tag: str) -> TagVersion | None:
    """Return the version in a tag; None for a tag such as `latest`."""
    found = _VERSION.search(tag)
    if found is None:
        return None
    letter, digits = (found[1], found[2]) if found[2] else (found[3], found[4])
    numbers = tuple(int(part) for part in digits.split("."))
    return TagVersion(tag[: found.start()] + letter, numbers, tag[found.end() :])


def moved_version(version: str, old: str, new: str) -> str | None:
    """Return what a version becomes when a tag moves: `0.34.0` for `0.33.0`; None if it is not that of the old tag."""
    before, after = _VERSION.search(old), _VERSION.search(new)
    if before is None or after is None:
        return None
    return {before[0]: after[0], before[0].removeprefix("v"): after[0].removeprefix("v")}.get(version)


def newest_tag(tag: str, tags: Iterable[str]) -> str:
    """Return the newest tag that differs from a tag in its version only: `b12359` for `b11434`.

    A tag without a version is the newest of its kind.
    """
    own = tag_version(tag)
    if own is None:
        return tag
    known = ((tag_version(each), each) for each in tags)
    same = [(version.numbers, each) for version, each in known if version and version.variant == own.variant]
    return max([(own.numbers, tag), *same])[1]
