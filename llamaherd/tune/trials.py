"""What has been tried: each candidate once, with what came of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from llamaherd.tune.candidate import Candidate

Why = Literal["memory", "load", "answer", "quality", "draft"]
"""It ran out of memory, did not load, gave no answer, fell below the limit of quality, or did not draft as asked."""


@dataclass(frozen=True)
class Outcome:
    """What came of a candidate: how good it is, higher being better; or why there is no such figure.

    `spread` is the standard deviation of `score` as a share, where it is known.
    """

    score: float | None
    spread: float | None = None
    why: Why | None = None
    says: str = ""

    @property
    def failed(self) -> bool:
        """Whether it is no candidate any more."""
        return self.score is None


@dataclass
class Trials:
    """Candidates in the order in which they were tried."""

    outcomes: dict[Candidate, Outcome] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.outcomes)

    def __iter__(self) -> Iterator[tuple[Candidate, Outcome]]:
        return iter(self.outcomes.items())

    def add(self, candidate: Candidate, outcome: Outcome) -> None:
        """Keep what came of a candidate."""
        self.outcomes[candidate] = outcome

    def best(self, count: int) -> list[Candidate]:
        """The best ones by what was seen of them, best first."""
        scored = [(outcome.score, each) for each, outcome in self if outcome.score is not None]
        return [each for _, each in sorted(scored, key=lambda pair: -pair[0])[:count]]
