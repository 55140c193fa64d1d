"""Define what a measurement consists of: its job, workloads, progress reports and saved result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import Connect
from llamaherd.measure.client.endpoint import Served
from llamaherd.measure.client.http_client import Failure
from llamaherd.measure.client.requests import Series
from llamaherd.measure.client.suite import long_text
from llamaherd.measure.meter.obstacles import Obstacle
from llamaherd.measure.results.result import Condition, Result, Run
from llamaherd.plan import InstancePlan, Plan


def approximate_text(tokens: int) -> str:
    """A long text, where a token has four letters."""
    return long_text(4 * tokens)


@dataclass(frozen=True)
class WorkloadContext:
    """The way to a server: what it is, the beginnings that no cache knows, and seconds since the measurement began.

    `text_of` is a long text of about so many tokens.
    """

    served: Served
    session: str
    clock: Callable[[], float]
    text_of: Callable[[int], str] = approximate_text


class Workload(Protocol):
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

    def runs(self, road: WorkloadContext) -> Iterator[tuple[int, Run]]:
        """The runs, one by one. Raises UserError where the server cannot be measured so."""
        ...


def seconds_left(share: float, seconds: float) -> float:
    """About how long a workload goes on, of which a share took some seconds."""
    return seconds * (1 - share) / share if share > 0 else 0.0


def workload_error(what: str, failed: Failure) -> UserError:
    """That a workload ends here, and why."""
    return UserError(f"{what}: {failed.message}", failed.help)


NEVER_OVERRULED = ("server-down", "not-as-planned", "port-taken")
"""With these, it is not the declared server that would be measured: nobody can overrule them."""

Drain = Callable[[Callable[[str], None]], AbstractContextManager[None]]
"""Keeps new requests of others off a server while it is measured, and tells people of that."""


@dataclass(frozen=True)
class Job:
    """An instance of a rig, and how long its measurement may take. `anyway`: whatever is in the way, if it can be.

    `group` is the server that it has in turn with others, where it is one of a group.
    """

    connect: Connect
    plan: Plan
    instance: InstancePlan
    results: Path
    seconds: float
    who: str
    anyway: bool = False
    aside: Drain = lambda _: nullcontext()
    group: InstancePlan | None = None

    def let_through(self, found: Sequence[Obstacle]) -> None:
        """Raise InTheWayError where something is in the way that nobody has overruled, or can."""
        if any(not self.anyway or each.code in NEVER_OVERRULED for each in found):
            raise ObstacleError(found)


@dataclass(frozen=True)
class ServerProfile:
    """What is known of a server once it is warm: about how fast it is, and how many tokens of a slot there are.

    `text_of` is a long text of so many tokens. `before` are the conditions of a measurement that could be gone on with,
    `last` those of the last one that came to its end.
    """

    seconds: float
    seed: str
    context: int
    decode: float | None
    prefill: float | None
    text_of: Callable[[int], str]
    before: tuple[Condition, ...] = ()
    last: tuple[Condition, ...] = ()


MakeSeries = Callable[[ServerProfile], Sequence[Series]]


class ProgressReporter(Protocol):
    """Who is told how it goes."""

    def say(self, text: str) -> None:
        """A line."""

    def progress(self, share: float, seconds_left: float, about: str) -> None:
        """How much is done, and what is being done."""


@dataclass(frozen=True)
class SavedResult:
    """A result, and the file that it is in."""

    path: Path
    result: Result


class ObstacleError(UserError):
    """Why a server cannot be measured now."""

    def __init__(self, obstacles: Sequence[Obstacle]) -> None:
        self.obstacles = tuple(obstacles)
        super().__init__(obstacles[0].message, obstacles[0].help)
