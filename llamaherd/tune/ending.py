"""The end of a search as a value: before and after, steps, importance, the front, what failed. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llamaherd.tune.aim import Aim
from llamaherd.tune.candidate import Candidate
from llamaherd.tune.depth import Deeper, deeper_of
from llamaherd.tune.front import Front, front_of
from llamaherd.tune.importance import Importance, Shares, importances
from llamaherd.tune.journal import Search
from llamaherd.tune.lines import candidate_of
from llamaherd.tune.outcome import Standing, Step, standings, steps
from llamaherd.tune.power import PowerEnd, power_end
from llamaherd.tune.quality import Judged
from llamaherd.tune.trials import Outcome, Why

FAILED: dict[Why, str] = {
    "memory": "ran out of memory",
    "load": "did not start",
    "answer": "gave no answer",
    "quality": "lost too much quality",
    "draft": "did not draft",
}
"""What each reason says."""


@dataclass(frozen=True)
class Failed:
    """A candidate that came to nothing, by the number of its trial, from 1 on."""

    number: int
    candidate: Candidate
    why: Why
    says: str


@dataclass(frozen=True)
class Ending:
    """What a search comes to. `found` is None where it was cut off before its end."""

    aim: Aim
    declared: Candidate
    found: Candidate | None
    tried: int
    seconds: float
    standings: tuple[Standing, ...]
    steps: tuple[Step, ...]
    importances: tuple[Importance, ...]
    front: Front
    failed: tuple[Failed, ...]
    judged: tuple[Judged, ...] = ()
    """What coarser caches and other weights cost, of those that may be proposed: no speed of one stands without it."""
    deeper: Deeper | None = None
    """What was found beside what is declared, at the full depth of their context."""
    shallow: str = ""
    """Why nothing was measured there, where it was not."""
    cut: str = ""
    """Why the pass over the keys was not gone to its end, where it was not."""

    power: PowerEnd | None = None
    """What was found, under power limits."""
    unlimited: str = ""
    """Why none was tried, where some were to be."""

    @property
    def doubt(self) -> str:
        """What speaks against what was found; empty where nothing does."""
        return self.deeper.doubt if self.deeper else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out of it, and why."""
        cut = f"not every key was tried: {self.cut}; `--again` with a larger `--budget` tries more" if self.cut else ""
        shallow = f"nothing was measured at the full depth: {self.shallow}" if self.shallow else ""
        unlimited = f"no power limit was tried to its end: {self.unlimited}" if self.unlimited else ""
        return tuple(filter(None, (cut, shallow, unlimited)))

    @property
    def after(self) -> Standing | None:
        """What was found, in the rounds of the end; the best one beside what is declared, where that is the end."""
        wanted = None if self.found == self.declared else self.found
        others = [each for each in self.standings if each.candidate != self.declared]
        return next((each for each in others if each.candidate == wanted), others[0] if others else None)

    @property
    def before(self) -> Standing | None:
        """What is declared, in the rounds of the end."""
        return next((each for each in self.standings if each.candidate == self.declared), None)


def ending(search: Search, declared: Candidate | None = None, shares: Shares | None = None) -> Ending:
    """The end of a search, or what it comes to by now, beside what was `declared` when it began."""
    base = candidate_of(search.head.declared) if declared is None else declared
    known, rounds = search.known, standings(search, base)
    tried, found = len(known), candidate_of(search.found.keys) if search.found else None
    for each in rounds:
        # Three starts tell more than the reading that made it one of the best.
        known.add(each.candidate, Outcome(each.score))
    return Ending(
        aim=search.head.aim,
        declared=base,
        found=found,
        tried=tried,
        seconds=search.seconds,
        standings=tuple(rounds),
        steps=tuple(steps(search)),
        importances=importances(known, shares, found if found != base else None),
        front=front_of(search),
        failed=tuple(_failed(search)),
        judged=search.passed,
        deeper=deeper_of(search, base, found),
        power=power_end(search),
        unlimited=search.found.unlimited if search.found else "",
        shallow=search.found.shallow if search.found else "",
        cut=search.found.cut if search.found else "",
    )


def _failed(search: Search) -> Iterator[Failed]:
    for number, each in enumerate(search.trials, start=1):
        outcome = search.outcome(each)
        if outcome.why:
            yield Failed(number, candidate_of(each.keys), outcome.why, outcome.says)
