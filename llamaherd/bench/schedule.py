"""What is asked of a server, and in which order: values, that series of measurements are made of. Pure.

A series says what its next step is by the runs that there are. So it knows when it is enough, and one that was cut off
goes on by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from llamaherd.bench.results.result import Cell, Condition


@dataclass(frozen=True)
class Ask:
    """One request, and the cell of its series that its run belongs to; None: it is asked, and not kept.

    `salt` numbers the beginning that goes before its text: the same number is the same beginning, within a measurement.
    None: there is none. With `reuse`, what the server has in its cache is taken. `more` goes into the request's body.
    """

    cell: int | None
    text: str
    tokens: int
    salt: int | None = None
    reuse: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """Requests that belong to each other: one after another, or all `at_once`. `rest` are seconds without any before.

    `watts` is what each GPU is held to meanwhile; None: what it is held to anyway. `about` is what people are told that
    is being done.
    """

    asks: tuple[Ask, ...]
    at_once: bool = False
    rest: float = 0.0
    block: int | None = None
    watts: int | None = None
    about: str = ""


@dataclass(frozen=True)
class SoFar:
    """What there is of a series: its cells with their runs, in its own order, and how much time it has left.

    `steps` counts those since this program began: numbers of salts come from it, as each program has its own salts.
    """

    cells: tuple[Cell, ...]
    seconds_left: float
    steps: int


class Series(Protocol):
    """Measurements that belong together. The conductor asks for a step, does it, and asks again."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Its cells: an ask names them by their place here."""
        ...

    @property
    def rule(self) -> str:
        """When it is enough, said beforehand."""
        ...

    def next_step(self, so_far: SoFar) -> Step | None:
        """What is to be done next; None when it is enough."""
        ...

    def share_done(self, so_far: SoFar) -> float:
        """How much of it is done, from 0 to 1, as far as can be known."""
        ...
