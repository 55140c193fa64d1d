"""Builds of llama.cpp with a known fault, each row with its source. A toolkit's are in `toolchains.MISCOMPILING`."""

from __future__ import annotations

from typing import NamedTuple

from llamaherd.reference import releases


class BadBuild(NamedTuple):
    """Builds that fail with a flag, from the first to the last; `value` is one of the words that the flag takes."""

    first: int
    last: int
    flag: str
    value: str
    fault: str
    source: str

    @property
    def named(self) -> str:
        """Return the builds in words."""
        return f"builds b{self.first} to b{self.last}"


BAD_BUILDS = (BadBuild(10741, 10748, "--spec-type", "draft-mtp", "do not start", "ggml-org/llama.cpp#28196"),)


def bad_builds(version: str) -> tuple[BadBuild, ...]:
    """Return the rows that a version is among; none for a version that is no build or release."""
    place = releases.order(version)
    return tuple(each for each in BAD_BUILDS if place and (each.first,) <= place < (each.last + 1,))
