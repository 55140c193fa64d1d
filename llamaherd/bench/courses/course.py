"""Measurements that need more than one answer at a time: a ladder of depths, and several requests at once.

A course asks the server by itself, and says each run as soon as it is over. So what was measured is kept, whatever
ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from llamaherd.bench.asking.client import Failure
from llamaherd.bench.asking.endpoint import Served
from llamaherd.bench.asking.suite import long_text
from llamaherd.bench.results.result import Condition, Run
from llamaherd.diagnostics.findings import UserError


def long_of(tokens: int) -> str:
    """A long text, where a token has four letters."""
    return long_text(4 * tokens)


@dataclass(frozen=True)
class Road:
    """The way to a server: what it is, the beginnings that no cache knows, and seconds since the measurement began.

    `text_of` is a long text of about so many tokens.
    """

    served: Served
    session: str
    clock: Callable[[], float]
    text_of: Callable[[int], str] = long_of


class Course(Protocol):
    """Runs under some conditions, each by its place among them."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def one_by_one(self) -> bool:
        """Whether nothing is asked between two runs: then it can be looked who else is there."""
        ...

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Its cells."""
        ...

    @property
    def rule(self) -> str:
        """When it is enough, said beforehand."""
        ...

    def runs(self, road: Road) -> Iterator[tuple[int, Run]]:
        """The runs, one by one. Raises UserError where the server cannot be measured so."""
        ...


def seconds_left(share: float, seconds: float) -> float:
    """About how long a course goes on, of which this share took so many seconds."""
    return seconds * (1 - share) / share if share > 0 else 0.0


def broken(what: str, failed: Failure) -> UserError:
    """That a course ends here, and why."""
    return UserError(f"{what}: {failed.message}", failed.help)
