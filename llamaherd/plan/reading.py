"""How a text is read to know how far two servers are from each other in what they say."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.plan.base import Planned


@dataclass(frozen=True)
class Reading:
    """One way to read it, in `chunks` of `context` tokens, `batch` of them at once.

    `bytes` is the size of the file that is kept of it on the host's disk.
    """

    context: int
    chunks: int
    batch: int
    bytes: int


class DivergencePlan(Planned):
    """How far what a server says is from what another one says: `tool` tells it, a program of its build.

    `says` are words of the server's command line that decide what it says, `more` those that decide where and how fast;
    the tool takes both. `readings` are ways in which a text could be read with its model, the best one first.
    """

    tool: str
    says: tuple[str, ...]
    more: tuple[str, ...]
    vocabulary: int
    readings: tuple[Reading, ...]
