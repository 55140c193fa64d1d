"""The result of a search as a value: before and after, steps, failures; and as JSON and YAML. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from llamaherd.measure.statistics import Estimate
from llamaherd.measure.tune.analysis import Importance, OnFront, ParetoFront, Shares, importances, pareto_front
from llamaherd.measure.tune.candidate import Candidate, Outcome, Why, settings_of
from llamaherd.measure.tune.final_measurements import Deeper, PowerEnd, deeper_of, power_end, power_json
from llamaherd.measure.tune.journal import Search, candidate_of
from llamaherd.measure.tune.objective import Objective
from llamaherd.measure.tune.quality import Judged
from llamaherd.measure.tune.standings import Standing, Step, standings, steps

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
class SearchResult:
    """What a search comes to. `found` is None where it was cut off before its end."""

    aim: Objective
    declared: Candidate
    found: Candidate | None
    tried: int
    seconds: float
    standings: tuple[Standing, ...]
    steps: tuple[Step, ...]
    importances: tuple[Importance, ...]
    front: ParetoFront
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


def search_result(search: Search, declared: Candidate | None = None, shares: Shares | None = None) -> SearchResult:
    """The end of a search, or what it comes to by now, beside what was `declared` when it began."""
    base = candidate_of(search.head.declared) if declared is None else declared
    known, rounds = search.known, standings(search, base)
    tried, found = len(known), candidate_of(search.found.keys) if search.found else None
    for each in rounds:
        # Three starts tell more than the reading that made it one of the best.
        known.add(each.candidate, Outcome(each.score))
    return SearchResult(
        aim=search.head.aim,
        declared=base,
        found=found,
        tried=tried,
        seconds=search.seconds,
        standings=tuple(rounds),
        steps=tuple(steps(search)),
        importances=importances(known, shares, found if found != base else None),
        front=pareto_front(search),
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


_AT_DEPTH = {"prefill", "decode", "says"}


def result_json(end: SearchResult) -> dict[str, Any]:
    """All of it."""
    return {
        "for": end.aim.purpose,
        "tried": end.tried,
        "seconds": round(end.seconds, 1),
        "declared": dict(end.declared.keys),
        "found": dict(end.found.keys) if end.found else None,
        "changes": yaml_lines(end),
        "standings": [_standing(each) for each in end.standings],
        "depth": _depth(end),
        "power": power_json(end.power) if end.power else ({"left_out": end.unlimited} if end.unlimited else {}),
        "steps": [
            {"number": each.number, "keys": dict(each.keys), "gain": each.gain, "score": each.score}
            for each in end.steps
        ],
        "importance": [_importance(each) for each in end.importances],
        "front": [_on_front(each) for each in end.front.candidates],
        "failed": dict(Counter(each.why for each in end.failed)),
        "failures": [
            {"number": each.number, "keys": dict(each.candidate.keys), "why": each.why, "says": each.says}
            for each in end.failed
        ],
        **({"judged": [each.model_dump(exclude={"line"}) for each in end.judged]} if end.judged else {}),
    }


def yaml_lines(end: SearchResult) -> str:
    """What would be otherwise in the inventory, as its lines; empty where nothing would be."""
    return "" if end.found is None else yaml_of(end.found, end.declared)


def yaml_of(candidate: Candidate, declared: Candidate) -> str:
    """A candidate's keys that are not as declared, as lines of an instance."""
    data: dict[str, Any] = {}
    for each in settings_of(candidate, declared):
        at = data
        for key in each.path[:-1]:
            at = at.setdefault(key, {})
        at[each.path[-1]] = each.value
    return yaml.safe_dump(data, sort_keys=False) if data else ""


def _standing(each: Standing) -> dict[str, Any]:
    return {
        "keys": dict(each.candidate.keys),
        "score": each.score,
        "interval": _interval(each.estimate),
        "beside": [each.beside.value, each.beside.low, each.beside.high] if each.beside else None,
        "verdict": each.judgement.verdict if each.judgement else None,
    }


def _depth(end: SearchResult) -> dict[str, Any]:
    """What was found beside what is declared at the full depth; or why nothing is known of that."""
    deeper = end.deeper
    if deeper is None:
        return {"left_out": end.shallow} if end.shallow else {}
    ratio, judgement = deeper.ratio, deeper.judgement
    return {
        "tokens": deeper.after.depth,
        "declared": deeper.before.model_dump(mode="json", include=_AT_DEPTH),
        "found": deeper.after.model_dump(mode="json", include=_AT_DEPTH),
        "beside": [ratio.value, ratio.low, ratio.high] if ratio else None,
        "verdict": judgement.verdict if judgement else None,
    }


def _interval(told: Estimate | None) -> list[float] | None:
    """The least and the most that the score may be; None where its rounds do not tell."""
    return [told.low, told.high] if told and told.low is not None and told.high is not None else None


def _importance(each: Importance) -> dict[str, Any]:
    return {
        "key": each.key,
        "share": each.share,
        "value": each.value,
        "best_with": each.best_with,
        "other": each.other,
        "best_without": each.best_without,
        "alone": each.alone,
    }


def _on_front(each: OnFront) -> dict[str, Any]:
    return {"keys": dict(each.candidate.keys), "figures": dict(each.figures)}
