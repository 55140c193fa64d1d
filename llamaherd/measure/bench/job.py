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
from llamaherd.measure.client.requests import Series, long_text
from llamaherd.measure.meter.meter import Obstacle
from llamaherd.measure.results.result import Condition, Result, Run
from llamaherd.plan import InstancePlan, Plan


def approximate_text(tokens: int) -> str:
    """Return a long text, estimated at four letters a token."""
    return long_text(4 * tokens)


@dataclass(frozen=True)
class WorkloadContext:
    """A server, the session that its cache busters derive from, and seconds since the measurement began.

    `text_of` returns a long text of about so many tokens.
    """

    served: Served
    session: str
    clock: Callable[[], float]
    text_of: Callable[[int], str] = approximate_text


class Workload(Protocol):
    """Runs under some conditions, each by its place among them."""

    @property
    def name(self) -> str:
        """The name in messages."""
        ...

    @property
    def one_by_one(self) -> bool:
        """True if runs follow each other: then the host can be inspected for other programs in between."""
        ...

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of its cells."""
        ...

    @property
    def rule(self) -> str:
        """The criterion to stop, which is fixed beforehand."""
        ...

    def runs(self, context: WorkloadContext) -> Iterator[tuple[int, Run]]:
        """Yield the runs, one by one. Raise UserError if the server cannot be measured this way."""
        ...


def seconds_left(share: float, seconds: float) -> float:
    """Estimate how much longer a workload takes, of which a share took some seconds."""
    return seconds * (1 - share) / share if share > 0 else 0.0


def workload_error(what: str, failed: Failure) -> UserError:
    """Return the error that ends a workload, with the reason."""
    return UserError(f"{what}: {failed.message}", failed.help)


NEVER_OVERRULED = ("server-down", "not-as-planned", "port-taken")
"""With these, a server other than the declared one would be measured: they cannot be overruled."""

Drain = Callable[[Callable[[str], None]], AbstractContextManager[None]]
"""Keeps other clients' new requests off a server while it is measured, and reports that."""


@dataclass(frozen=True)
class Job:
    """An instance of a rig, and how long its measurement may take. `anyway` overrules obstacles, except some.

    `group` is the server that it shares with other models, if it belongs to a group.
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
        """Raise ObstacleError if there is an obstacle that is not overruled, or cannot be."""
        if any(not self.anyway or each.code in NEVER_OVERRULED for each in found):
            raise ObstacleError(found)


@dataclass(frozen=True)
class ServerProfile:
    """What a warm server is like: about how fast it is, and how many tokens a slot has.

    `text_of` returns a long text of so many tokens. `before` are the conditions of a measurement that can be resumed,
    `last` those of the last complete one.
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
    """The receiver of progress and messages."""

    def say(self, text: str) -> None:
        """Print a line."""

    def progress(self, share: float, seconds_left: float, about: str) -> None:
        """Report how much is done, and what is being done."""


@dataclass(frozen=True)
class SavedResult:
    """A result, and its file."""

    path: Path
    result: Result


class ObstacleError(UserError):
    """The obstacles for which a server cannot be measured now."""

    def __init__(self, obstacles: Sequence[Obstacle]) -> None:
        self.obstacles = tuple(obstacles)
        super().__init__(obstacles[0].message, obstacles[0].help)
