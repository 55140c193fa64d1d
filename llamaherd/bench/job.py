"""What is to be measured, and who is told how it goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from llamaherd.bench.meter.look import Obstacle
from llamaherd.bench.results.result import Condition, Result
from llamaherd.bench.schedule import Series
from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import Connect
from llamaherd.plan import InstancePlan, Plan

GRAVE = ("server-down", "not-as-planned", "port-taken")
"""With these, it is not the declared server that would be measured: nobody can overrule them."""

Aside = Callable[[Callable[[str], None]], AbstractContextManager[None]]
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
    aside: Aside = lambda _: nullcontext()
    group: InstancePlan | None = None

    def let_through(self, found: Sequence[Obstacle]) -> None:
        """Raise InTheWayError where something is in the way that nobody has overruled, or can."""
        if any(not self.anyway or each.code in GRAVE for each in found):
            raise InTheWayError(found)


@dataclass(frozen=True)
class Known:
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


MakeSeries = Callable[[Known], Sequence[Series]]


class Teller(Protocol):
    """Who is told how it goes."""

    def say(self, text: str) -> None:
        """A line."""

    def progress(self, share: float, seconds_left: float, about: str) -> None:
        """How much is done, and what is being done."""


@dataclass(frozen=True)
class Measured:
    """A result, and the file that it is in."""

    path: Path
    result: Result


class InTheWayError(UserError):
    """Why a server cannot be measured now."""

    def __init__(self, obstacles: Sequence[Obstacle]) -> None:
        self.obstacles = tuple(obstacles)
        super().__init__(obstacles[0].message, obstacles[0].help)
