"""What `herd tune` says while it searches: a line for each candidate."""

from __future__ import annotations

from llamaherd.cli.common import say
from llamaherd.tune.aim import Aim
from llamaherd.tune.candidate import Candidate
from llamaherd.tune.quality import Cost, Precision
from llamaherd.tune.trials import Outcome


class SearchLines:
    """A line for each candidate."""

    def __init__(self, aim: Aim) -> None:
        self._aim = aim

    def began(self, number: int, seconds_left: float) -> None:
        """Nothing yet: it takes seconds."""
        self._head = f"{number:>3}  {_clock(seconds_left)} left"

    def ended(self, candidate: Candidate, outcome: Outcome, best: float | None, cost: Cost | None) -> None:
        """What came of it. No speed stands without what it costs to say other things."""
        if outcome.why == "quality":
            came = "quality"
        elif outcome.score is None:
            came = f"{outcome.why}: {outcome.says}"[:60]
        elif cost and cost.judged is None:
            came = "not the best"
        else:
            came = self._aim.shown(outcome.score) + (" *" if outcome.score == best else "")
        say(f"{self._head}  {came:<16}  {candidate}{f'; {cost}' if cost else ''}", err=True)

    def judging(self, precision: Precision) -> None:
        """It takes minutes."""
        weights = "" if precision.model else ", with the same weights"
        say(f"judging {precision} beside {precision.exact}{weights}", err=True)

    def confirming(self, count: int, number: int) -> None:
        """The best ones are started once more."""
        say(f"round {number}: the best {count - 1} beside what is declared, in turns", err=True)

    def limiting(self, watts: int, number: int) -> None:
        """GPUs are held to another power limit."""
        say(f"power limits, round {number}: {watts} W", err=True)

    def deepening(self, candidate: Candidate, depth: int) -> None:
        """It takes as long as a whole context takes to be read."""
        say(f"{depth:,} tokens deep: {candidate}", err=True)


def _clock(seconds: float) -> str:
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"
