"""Run a search on a host, from the declared keys to its result: trials, then the best ones in rounds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol

from llamaherd.measure.statistics import FEWEST_BLOCKS
from llamaherd.measure.tune.candidate import Candidate, Cost, Judged, Outcome, Outcomes, Precision
from llamaherd.measure.tune.evaluation import Evaluation, HoldLimits, PowerSeries
from llamaherd.measure.tune.final_measurements import (
    MARGIN,
    Standing,
    best_of,
    depth_left_out,
    depth_of,
    depth_seconds,
    standings,
)
from llamaherd.measure.tune.journal import Found, SearchJournal, Sized, TriedCandidate, candidate_of, keys_of
from llamaherd.measure.tune.search import Model, Space, search
from llamaherd.text.numbers import show_seconds

ROUNDS, _MOST_ROUNDS = FEWEST_BLOCKS, 12
"""Restarts of each finalist and of the declared keys; and the most of the best one while it is inconclusive."""
_FINALISTS = 5
_FEWEST = 2
"""The declared keys, and one candidate."""
_SHARE, _MOST = 0.4, 0.7
"""Shares of the budget for the final rounds: of all finalists, and of the fewest."""
_PROBED, _CONFIRMED = 2, 3
"""Rounds of requests of a promising candidate, and of a finalist after each restart."""
_LEAST_JUDGING, _MOST_JUDGING = 300, 1800
"""The least and the most seconds for one measurement of quality, whatever is left of the budget."""
Judge = Callable[[Candidate, Precision, float], Judged]
"""Measures the quality of a candidate with a precision, within some seconds."""
_DEEP, _LIMITS = 0.2, 0.4
"""The most of the budget that is reserved for the full depth, and for power limits. What takes longer gets the rest."""
_NEAR = 0.85
"""The share of the best score below which one round of requests is enough: the candidate is no finalist."""


class Progress(Protocol):
    """Reports the progress of a search."""

    def began(self, number: int, seconds_left: float) -> None:
        """Report that a candidate is measured."""
        ...

    def ended(self, candidate: Candidate, outcome: Outcome, best: float | None, cost: Cost | None) -> None:
        """Report the outcome of a candidate, the best score so far, and the loss of quality, if any."""
        ...

    def judging(self, precision: Precision) -> None:
        """Report that the quality of a cache type, or of other weights, is measured, which takes minutes."""
        ...

    def confirming(self, count: int, number: int) -> None:
        """Report a round, in which `count` candidates are measured again."""
        ...

    def deepening(self, candidate: Candidate, depth: int) -> None:
        """Report that a candidate is measured at the full depth of its context."""
        ...

    def limiting(self, watts: int, number: int) -> None:
        """Report that a power limit is measured, in a round."""
        ...


@dataclass
class Tuning:
    """One search. `budget` is in seconds, and includes those of an earlier run that was interrupted.

    Without a `judge`, `space` contains no cache type that is coarser than the declared one, and no other weights.
    Without `limited`, no power limits are measured.
    """

    evaluation: Evaluation
    journal: SearchJournal
    space: Space
    start: Candidate
    budget: float
    progress: Progress
    now: Callable[[], str]
    model: Model | None = None
    hints: Sequence[Candidate] = ()
    judge: Judge | None = None
    limited: HoldLimits | None = None
    _best: float | None = field(default=None, init=False)
    _trials: Outcomes = field(default_factory=Outcomes, init=False)

    def run(self) -> Found:
        """Search until the budget is spent or nothing is left, measure the best ones again, and return the result."""
        self._trials = self.journal.search.known
        self._best = self._best_score()
        self._require_judged(lambda: self._trials.best(1))
        through = search(self.space, self.start, self._trials, self._evaluate, self._more, self.model, self.hints)
        cut = "" if through else self._cut_off()
        self._require_judged(self._finalists)
        finalists = self._finalists()
        if finalists:
            self._confirm(finalists)
        chosen = best_of(self.standings(), self.start)
        shallow = self._deepen(chosen)
        unlimited = self._limit(chosen)
        found = Found(keys=keys_of(chosen), ended=self.now(), cut=cut, shallow=shallow, unlimited=unlimited)
        self.journal.add(found)
        return found

    def standings(self) -> list[Standing]:
        """Return the finalists compared with the declared keys, best first."""
        return standings(self.journal.search, self.start)

    def _evaluate(self, candidate: Candidate) -> Outcome:
        known = self.journal.search
        self.progress.began(len(known.trials) + 1, self.budget - known.seconds)

        def worth(trial: TriedCandidate) -> bool:
            *_, (_, outcome) = known.read(trial)
            score = outcome.score
            return self._best is None or (score is not None and score >= _NEAR * self._best)

        refused = known.refused(candidate)
        if refused:
            trial = TriedCandidate(keys=keys_of(candidate), why="quality", says=refused)
        else:
            trial = self._measured(candidate, _PROBED, worth)
        self.journal.add(trial)
        outcome = known.known.outcomes[candidate]
        if outcome.score is not None and (self._best is None or outcome.score > self._best):
            self._require_judged(lambda: [candidate])
            outcome = known.known.outcomes[candidate]
        if outcome.score is not None:
            self._best = max(outcome.score, self._best or 0.0)
        self.progress.ended(candidate, outcome, self._best, known.cost(candidate))
        return outcome

    def _require_judged(self, leading: Callable[[], Sequence[Candidate]]) -> None:
        """Measure the quality of the leading candidates, each precision once, and exclude those that lose too much."""
        known = self.journal.search
        while self.judge:
            costs = [(each, cost) for each in leading() if (cost := known.cost(each)) and cost.judged is None]
            if not costs:
                return
            candidate, cost = costs[0]
            self.progress.judging(cost.precision)
            seconds = min(_MOST_JUDGING, max(_LEAST_JUDGING, self.budget - known.seconds))
            self.journal.add(self.judge(candidate, cost.precision, seconds))
            for each, _ in list(self._trials):
                if refused := known.refused(each):
                    self._trials.add(each, Outcome(None, why="quality", says=refused))
            self._best = self._best_score()

    def _best_score(self) -> float | None:
        return max((each.score for _, each in self._trials if each.score is not None), default=None)

    def _measured(
        self, candidate: Candidate, rounds: int, worth: Callable[[TriedCandidate], bool] = lambda _: True
    ) -> TriedCandidate:
        sized = self.evaluation.sizes = self.evaluation.sizes or self.journal.search.sizes
        trial = self.evaluation.measure(candidate, rounds, worth)
        if sized is None and (sizes := self.evaluation.sizes):
            self.journal.add(Sized.of(sizes))
        return trial

    def _more(self) -> bool:
        """Return whether one more candidate and the final rounds fit into the budget."""
        known = self.journal.search
        if any(each.round is not None for each in known.trials):
            return False
        until = self._until
        if len(known.known) < _FEWEST:
            # What is declared may be many times slower than all others, and tells nothing of their time. What comes
            # next is that packed onto its GPUs, which promises most.
            return known.seconds < until
        end = max(self._end(_FEWEST), min(self._end(_FINALISTS + 1), _SHARE * until))
        return known.seconds + self._mean() + min(end, _MOST * until) < until

    def _cut_off(self) -> str:
        """Return why the budget did not suffice for the first pass."""
        each, end = (show_seconds(round(seconds)) for seconds in (self._mean(), self._end(_FEWEST)))
        return f"a candidate takes about {each} here, and {_FEWEST} of them in the rounds of the end {end}"

    def _mean(self) -> float:
        """Return the expected seconds of the next candidate: the mean of the better half, as it varies the best one."""
        known = self.journal.search
        taken = {candidate_of(each.keys): each.seconds for each in known.trials if each.seconds and each.round is None}
        better = [taken[each] for each in known.known.best(max(1, (len(taken) + 1) // 2)) if each in taken]
        return fmean(better or taken.values() or [0.0])

    def _end(self, count: int) -> float:
        """Return the expected seconds of the final rounds with this many candidates."""
        return ROUNDS * count * self._requests / _PROBED * self._each(count)

    def _each(self, count: int) -> float:
        """Return the mean seconds that a finalist or the declared keys took."""
        known = self.journal.search
        chosen = {self.start, *known.known.best(count)}
        whole = [
            each.seconds
            for each in known.trials
            if not each.why and each.round is None and candidate_of(each.keys) in chosen
        ]
        return fmean(whole) if whole else 0.0

    def _taken(self, candidate: Candidate, requests: int) -> float:
        """Return the expected seconds of a candidate in a final round: as in the last round, or as in the search."""
        own = [each for each in self.journal.search.trials if candidate_of(each.keys) == candidate and each.seconds]
        if not own:
            return self._mean()
        return own[-1].seconds * (1 if own[-1].round is not None else requests / _PROBED)

    @property
    def _requests(self) -> int:
        """Rounds of requests after each restart of the end: fewer if the declared server is too slow."""
        whole = ROUNDS * _FEWEST / _PROBED * self._each(_FEWEST)
        return next((many for many in range(_CONFIRMED, 1, -1) if many * whole <= _MOST * self._until), 1)

    def _finalists(self) -> Sequence[Candidate]:
        """Return the declared keys and the best candidates that the budget allows; nothing if none is better."""
        known = self.journal.search
        trials = known.known
        if self.start not in trials.outcomes or trials.outcomes[self.start].failed:
            best = trials.best(1)
            return [*best] if best else []
        count = _FINALISTS
        # The same ones when it is gone on with in the middle of a round.
        spent = sum(each.seconds for each in known.trials if each.round is None)
        while count > 1 and spent + self._end(count + 1) > self._until:
            count -= 1
        least = _NEAR * max((each.score or 0.0 for _, each in trials), default=0.0)
        near = [each for each in trials.best(count + 1) if (trials.outcomes[each].score or 0.0) >= least]
        others = [each for each in near if each != self.start][:count]
        return [self.start, *others] if others else []

    def _confirm(self, finalists: Sequence[Candidate]) -> None:
        """Measure each finalist once a round, in random order; then the best one until its verdict is conclusive."""
        search_, requests = self.journal.search, self._requests
        for number in range(_MOST_ROUNDS):
            chosen = finalists if number < ROUNDS else self._undecided()
            if not chosen:
                return
            self.progress.confirming(len(chosen), number + 1)
            done = search_.round_of(number)
            for candidate in _shuffled(chosen, f"{search_.head.identity}:{number}"):
                if candidate in done:
                    continue
                if search_.seconds + self._taken(candidate, requests) > self._until:
                    return
                trial = self._measured(candidate, requests)
                self.journal.add(trial.model_copy(update={"round": number}))

    @property
    def _until(self) -> float:
        """Seconds of the budget without those reserved for the full depth and for power limits."""
        parts = ((self._deep_seconds(), _DEEP), (self._power and self._power.seconds, _LIMITS))
        return self.budget - sum(seconds for seconds, most in parts if seconds and seconds <= most * self.budget)

    def _deep_seconds(self) -> float | None:
        """Return the expected seconds of the full depth by the first measurement: a resumed search expects the same."""
        known = self.journal.search
        if self.evaluation.climb is None or not known.trials:
            return None
        figures = known.trials[0].figures
        return depth_seconds(depth_of(self.evaluation.context), known.sizes, figures, figures.load or 0.0)

    def _deepen(self, chosen: Candidate) -> str:
        """Measure the result and the declared keys at the full depth. Return why it was left out; empty if not."""
        known, depth = self.journal.search, depth_of(self.evaluation.context)
        if self.evaluation.climb is None or chosen == self.start or not known.round_of(0).get(self.start):
            return ""
        both = _shuffled((self.start, chosen), f"{known.head.identity}:depth")
        left = [each for each in both if each not in known.deep]
        if left == both and (why := depth_left_out(depth, self._deep_seconds(), self.budget - known.seconds)):
            return why
        for each in left:
            self.progress.deepening(each, depth)
            self.journal.add(self.evaluation.measure_depth(each, depth))
        return ""

    def _limit(self, chosen: Candidate) -> str:
        """Measure the result under power limits. Return why that was left out; empty if it was not."""
        outcome = self._trials.outcomes.get(chosen)
        if self._power is None or outcome is None or outcome.failed:
            return ""
        return self._power.measure(chosen, self.budget - self.journal.search.seconds)

    @property
    def _power(self) -> PowerSeries | None:
        if self.limited is None:
            return None
        return PowerSeries(self.evaluation, self.journal, self.limited, self.progress.limiting)

    def _undecided(self) -> Sequence[Candidate]:
        """Return the declared keys and the best candidate, if its lead exceeds the margin and is inconclusive."""
        best = next((each for each in self.standings() if each.candidate != self.start), None)
        if best is None or best.beside is None or best.beside.value < 1 + MARGIN:
            return []
        known = best.judgement is not None and best.judgement.verdict != "not known yet"
        return [] if known else [self.start, best.candidate]


def _shuffled(candidates: Sequence[Candidate], seed: str) -> list[Candidate]:
    """Return candidates in a random order, which the seed determines."""
    return sorted(candidates, key=lambda each: hashlib.sha256(f"{seed}:{each}".encode()).digest())
