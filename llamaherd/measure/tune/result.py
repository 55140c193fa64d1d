"""The result of a search as a value, JSON and YAML, and results of earlier searches as suggestions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from llamaherd.diagnostics.findings import UserError
from llamaherd.gguf.header import BLOCKS
from llamaherd.measure.tune.candidate import (
    KV,
    MODEL,
    Candidate,
    Judged,
    Objective,
    Outcome,
    Outcomes,
    Value,
    Why,
    settings_of,
)
from llamaherd.measure.tune.final_measurements import (
    Deeper,
    PowerEnd,
    Standing,
    Step,
    deeper_of,
    power_end,
    power_json,
    ratio_json,
    ratio_text,
    standings,
    steps,
)
from llamaherd.measure.tune.journal import (
    Fingerprint,
    FingerprintGpu,
    Head,
    Search,
    TriedCandidate,
    candidate_of,
    newest_searches,
    read_search,
)
from llamaherd.measure.tune.search import BATCH, EXPERTS, LAYERS

FOLLOW = (EXPERTS, LAYERS, BATCH)
"""Keys that follow from the others by the estimate of memory: they are not searched for."""

Shares = Callable[[Outcomes, Sequence[str]], Mapping[str, float]]
"""The share of each key in what makes a candidate one of the best."""


@dataclass(frozen=True)
class Importance:
    """A key. `best_with` is the best score with its value in the result, `best_without` that with any other value.

    `alone` is the most that this value gained if nothing else differed, as a share; None without two such candidates.
    `share` is PED-ANOVA's; None without Optuna.
    """

    key: str
    share: float | None
    value: Value
    best_with: float
    other: Value
    best_without: float
    alone: float | None

    @property
    def gain(self) -> float:
        """The gain of the best candidate with it over the best one with another value, as a share."""
        return self.best_with / self.best_without - 1


def optuna_shares() -> Shares | None:
    """Return PED-ANOVA, if Optuna is installed."""
    try:
        from llamaherd.measure.tune.optuna_model import ped_anova
    except ImportError:
        return None
    return ped_anova


def importances(trials: Outcomes, shares: Shares | None, found: Candidate | None = None) -> tuple[Importance, ...]:
    """Return the keys with several tried values, the most important first, by their values in `found` or the best."""
    scored = {candidate for candidate, _ in _scored(trials)}
    best = [found] if found in scored else trials.best(1)
    if not best:
        return ()
    keys = _varied(trials)
    share = shares(trials, keys) if shares and keys else {}
    every = [_importance_of(trials, best[0], key, share.get(key)) for key in keys]
    return tuple(sorted(every, key=lambda each: (-(each.share or 0.0), -each.gain)))


def _varied(trials: Outcomes) -> list[str]:
    """Return the searched keys that have a score for two values."""
    values: dict[str, set[Value]] = {}
    for candidate, _ in _scored(trials):
        for key, value in candidate.keys:
            values.setdefault(key, set()).add(value)
    return [key for key, seen in values.items() if len(seen) > 1 and key not in FOLLOW]


def _importance_of(trials: Outcomes, best: Candidate, key: str, share: float | None) -> Importance:
    value = best[key]
    others = [(score, each[key]) for each, score in _scored(trials) if each[key] != value]
    without, other = max(others, key=lambda pair: pair[0])
    with_it = max(score for each, score in _scored(trials) if each[key] == value)
    return Importance(key, share, value, with_it, other, without, _gain_alone(trials, key, value))


def _gain_alone(trials: Outcomes, key: str, value: Value) -> float | None:
    """Return the most that a value gained over another one, among candidates that are equal in all other keys."""
    with_it: dict[Candidate, float] = {}
    without: dict[Candidate, float] = {}
    for candidate, score in _scored(trials):
        rest = Candidate(tuple(each for each in candidate.keys if each[0] not in (key, *FOLLOW)))
        if candidate[key] == value:
            with_it[rest] = max(score, with_it.get(rest, score))
        else:
            without[rest] = min(score, without.get(rest, score))
    return max((with_it[rest] / without[rest] - 1 for rest in with_it.keys() & without.keys()), default=None)


def _scored(trials: Outcomes) -> Iterator[tuple[Candidate, float]]:
    return ((candidate, outcome.score) for candidate, outcome in trials if outcome.score is not None)


_ALIKE = 0.03
"""The share within which two are the same."""


@dataclass(frozen=True)
class Measure:
    """A figure in which candidates are compared; `of` is None if it is unknown."""

    name: str
    unit: str
    of: Callable[[TriedCandidate], float | None]
    less: bool = False
    """True if less of it is better."""

    def gain(self, one: float, other: float) -> float:
        """Return how much better one value is than another: above 1 is better."""
        return other / one if self.less else one / other


@dataclass(frozen=True)
class OnFront:
    """A candidate of the front with its figures, by the names of the measures."""

    candidate: Candidate
    figures: Mapping[str, float]


@dataclass(frozen=True)
class ParetoFront:
    """The candidates that no other one beats in every measure, the best one for the objective first."""

    measures: tuple[Measure, ...] = ()
    candidates: tuple[OnFront, ...] = ()


def _decode(trial: TriedCandidate) -> float | None:
    return Objective(purpose="decode").score(trial.figures)


def _energy(trial: TriedCandidate) -> float | None:
    score = Objective(purpose="efficiency").score(trial.figures)
    return 1 / score if score else None


def _cache_bits(trial: TriedCandidate) -> float | None:
    """Return the bits of a value of the cache, which its memory is proportional to: they follow from its type."""
    block = BLOCKS.get(str(trial.keys.get(KV)).upper())
    return None if block is None else 8 * block[0] / block[1]


MEASURES = (
    Measure("decode", "t/s", _decode),
    Measure("prefill", "t/s", lambda trial: trial.figures.prefill),
    Measure("together", "t/s", lambda trial: trial.figures.total),
    Measure("energy", "J a token", _energy, less=True),
    Measure("cache", "bits a value", _cache_bits, less=True),
)
"""The measures in which candidates are compared, if all of them have it, and it is not the same for all."""


def pareto_front(search: Search) -> ParetoFront:
    """Return the front of a search; an empty one if fewer than two measures are known for all its candidates.

    Of candidates that are equal in everything, within 3 %, the best one for the objective represents all.
    """
    known = _known(search)
    measures = tuple(each for each in MEASURES if _is_distinctive(each, known))
    if len(measures) < 2:
        return ParetoFront()
    every = [OnFront(candidate, _figures(measures, trials)) for candidate, trials in known.items()]
    # A candidate that is better in everything comes first: each one is compared with the front alone.
    every.sort(key=lambda each: [-one.gain(each.figures[one.name], 1.0) for one in measures])
    whole: list[OnFront] = []
    for each in every:
        if not any(_dominates(measures, other, each) for other in whole):
            whole.append(each)
    kept: list[OnFront] = []
    for each in sorted(whole, key=lambda one: -_score(search, known[one.candidate])):
        if not any(_as_good(measures, other, each, 1 - _ALIKE) for other in kept):
            kept.append(each)
    return ParetoFront(measures, tuple(kept))


def _known(search: Search) -> dict[Candidate, list[TriedCandidate]]:
    """Return the measurements of each candidate that has a score: those of the final rounds, if there are any."""
    found: dict[Candidate, list[TriedCandidate]] = {}
    for each in search.measurements:
        if search.outcome(each).score is not None:
            found.setdefault(candidate_of(each.keys), []).append(each)
    return {candidate: [each for each in its if each.round is not None] or its for candidate, its in found.items()}


def _score(search: Search, trials: Sequence[TriedCandidate]) -> float:
    return fmean(search.outcome(each).score or 0.0 for each in trials)


def _is_distinctive(measure: Measure, known: Mapping[Candidate, Sequence[TriedCandidate]]) -> bool:
    values = [measure.of(each) for trials in known.values() for each in trials]
    return None not in values and len(set(values)) > 1


def _figures(measures: Sequence[Measure], trials: Sequence[TriedCandidate]) -> dict[str, float]:
    return {each.name: fmean(value for trial in trials if (value := each.of(trial)) is not None) for each in measures}


def _as_good(measures: Sequence[Measure], one: OnFront, other: OnFront, least: float) -> bool:
    return all(each.gain(one.figures[each.name], other.figures[each.name]) >= least for each in measures)


def _dominates(measures: Sequence[Measure], one: OnFront, other: OnFront) -> bool:
    return one.figures != other.figures and _as_good(measures, one, other, 1.0)


FAILED: dict[Why, str] = {
    "memory": "ran out of memory",
    "load": "did not start",
    "answer": "did not respond",
    "quality": "lost too much quality",
    "draft": "did not draft",
}
"""The message for each reason."""


@dataclass(frozen=True)
class Failed:
    """A failed candidate, by the number of its trial, from 1 on."""

    number: int
    candidate: Candidate
    why: Why
    says: str


@dataclass(frozen=True)
class SearchResult:
    """The result of a search. `found` is None if it was interrupted."""

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
    """The loss of quality of coarser caches and other weights that may be proposed, which qualifies their speed."""
    deeper: Deeper | None = None
    """The best candidate compared with the declared keys, at the full depth of their context."""
    shallow: str = ""
    """Why the full depth was not measured, if so."""
    cut: str = ""
    """Why the pass over the keys was not completed, if so."""

    power: PowerEnd | None = None
    """The best candidate under power limits."""
    unlimited: str = ""
    """Why no limit was tried, if some should be."""

    @property
    def doubt(self) -> str:
        """The doubt about the best candidate; empty without one."""
        return self.deeper.doubt if self.deeper else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """The omitted parts of the search, with the reasons."""
        cut = f"not every key was tried: {self.cut}; `--again` with a larger `--budget` tries more" if self.cut else ""
        shallow = f"the full depth was not measured: {self.shallow}" if self.shallow else ""
        unlimited = f"no power limit was tried to its end: {self.unlimited}" if self.unlimited else ""
        return tuple(filter(None, (cut, shallow, unlimited)))

    @property
    def after(self) -> Standing | None:
        """The best candidate in the final rounds; the best other one if the declared keys are the result."""
        wanted = None if self.found == self.declared else self.found
        others = [each for each in self.standings if each.candidate != self.declared]
        return next((each for each in others if each.candidate == wanted), others[0] if others else None)

    @property
    def before(self) -> Standing | None:
        """The declared keys, in the final rounds."""
        return next((each for each in self.standings if each.candidate == self.declared), None)


def search_result(search: Search, declared: Candidate | None = None, shares: Shares | None = None) -> SearchResult:
    """Return the result of a search, or its state so far, compared with the keys that were `declared` when it began."""
    base = candidate_of(search.head.declared) if declared is None else declared
    known, rounds = search.known, standings(search, base)
    tried, found = len(known), candidate_of(search.found.keys) if search.found else None
    for each in rounds:
        # Three starts are more reliable than the measurement that made it one of the best.
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
    """Return the result as JSON."""
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
        "importance": [asdict(each) for each in end.importances],
        "front": [{"keys": dict(each.candidate.keys), "figures": dict(each.figures)} for each in end.front.candidates],
        "failed": dict(Counter(each.why for each in end.failed)),
        "failures": [
            {"number": each.number, "keys": dict(each.candidate.keys), "why": each.why, "says": each.says}
            for each in end.failed
        ],
        **({"judged": [each.model_dump(exclude={"line"}) for each in end.judged]} if end.judged else {}),
    }


def yaml_lines(end: SearchResult) -> str:
    """Return the changes to the inventory, as lines; empty without any."""
    return "" if end.found is None else yaml_of(end.found, end.declared)


def yaml_of(candidate: Candidate, declared: Candidate) -> str:
    """Return a candidate's keys that differ from the declared ones, as lines of an instance."""
    data: dict[str, Any] = {}
    for each in settings_of(candidate, declared):
        at = data
        for key in each.path[:-1]:
            at = at.setdefault(key, {})
        at[each.path[-1]] = each.value
    return yaml.safe_dump(data, sort_keys=False) if data else ""


def _standing(each: Standing) -> dict[str, Any]:
    found = each.estimate
    return {
        "keys": dict(each.candidate.keys),
        "score": each.score,
        "interval": [found.low, found.high] if found and not found.too_few else None,
        "beside": ratio_json(each.ratio),
        "verdict": each.judgement.verdict if each.judgement else None,
    }


def _depth(end: SearchResult) -> dict[str, Any]:
    """Return the comparison at the full depth as JSON; or why there is none."""
    deeper = end.deeper
    if deeper is None:
        return {"left_out": end.shallow} if end.shallow else {}
    judgement = deeper.judgement
    return {
        "tokens": deeper.after.depth,
        "declared": deeper.before.model_dump(mode="json", include=_AT_DEPTH),
        "found": deeper.after.model_dump(mode="json", include=_AT_DEPTH),
        "beside": ratio_json(deeper.ratio),
        "verdict": judgement.verdict if judgement else None,
    }


MOST = 3
"""Searches that are shown."""
_GIB = 1 << 30


@dataclass(frozen=True)
class PriorResult:
    """The result of one search: the best keys, their score, and its file."""

    rig: str
    instance: str
    aim: Objective
    likeness: Fingerprint
    standing: Standing
    declared: bool
    """True if the best keys are those that were declared there."""
    day: str
    file: Path
    cost: str = ""
    """The loss of quality by its cache, if that is coarser than the declared one."""

    @property
    def score(self) -> float:
        """Its score, higher is better."""
        return self.standing.score

    @property
    def lines(self) -> list[str]:
        """All of its keys, as lines of an instance."""
        return yaml_of(self.standing.candidate, Candidate()).splitlines()


def prior_results(results: Path) -> list[PriorResult]:
    """Return the newest finished search of each instance for each objective, if it contains its fingerprint."""
    found: dict[tuple[str, str, str], PriorResult] = {}
    for path in newest_searches(results):
        with suppress(UserError):
            search = read_search(path)
            head = search.head
            place = (head.rig, head.instance, head.aim.purpose)
            if place not in found and (each := _prior_result(search, head, path.relative_to(results.parent))):
                found[place] = each
    return list(found.values())


def _prior_result(search: Search, head: Head, file: Path) -> PriorResult | None:
    if search.found is None or head.likeness is None:
        return None
    base, best = candidate_of(head.declared), candidate_of(search.found.keys)
    standing = next((each for each in standings(search, base) if each.candidate == best), None)
    deeper = deeper_of(search, base, best)
    # The name of a model means nothing on another rig.
    if standing is None or (deeper and deeper.doubt) or best[MODEL] != base[MODEL]:
        return None
    ended, cost = search.found.ended[:10], search.cost(best)
    return PriorResult(
        *(head.rig, head.instance, head.aim, head.likeness, standing, best == base, ended, file),
        cost=str(cost) if cost else "",
    )


def results_of_model(
    every: Iterable[PriorResult], engine: str, header: str, gpus: Sequence[int], context: int, parallel: int
) -> list[PriorResult]:
    """Return the best result for each objective of this model, engine, context and slots on GPUs of these bytes.

    Sizes are equal if they round to the same GiB. Cores are not compared, so results without a GPU are left out.
    """
    return _best(
        each
        for each in every
        if gpus
        and (each.likeness.engine, each.likeness.header) == (engine, header)
        and (each.likeness.context, each.likeness.parallel) == (context, parallel)
        and _rounded_sizes([gpu.memory_bytes for gpu in each.likeness.gpus]) == _rounded_sizes(gpus)
    )


def results_of_machine(every: Iterable[PriorResult], gpus: Sequence[tuple[str, int]], cores: int) -> list[PriorResult]:
    """Return the best result for each model and objective on these GPUs, each a model and its bytes, and as many cores.

    Results without a GPU are left out: as many cores may be of any speed.
    """
    there = Counter((model, round(memory / _GIB)) for model, memory in gpus)

    def alike(used: Sequence[FingerprintGpu]) -> bool:
        wanted = Counter((gpu.model, round((gpu.memory_bytes or 0) / _GIB)) for gpu in used)
        return bool(wanted) and wanted <= there

    return _best(each for each in every if each.likeness.cores == cores and alike(each.likeness.gpus))


def _best(every: Iterable[PriorResult]) -> list[PriorResult]:
    """Return the best result of each model, context and objective, the newest first."""
    found: dict[tuple[str, int, Objective], PriorResult] = {}
    for each in every:
        what = (each.likeness.model, each.likeness.context, each.aim)
        if what not in found or each.score > found[what].score:
            found[what] = each
    return sorted(found.values(), key=lambda each: (each.day, str(each.file)), reverse=True)[:MOST]


def _rounded_sizes(sizes: Sequence[int | None]) -> list[int]:
    return sorted(round((size or 0) / _GIB) for size in sizes)


def prior_result_lines(each: PriorResult) -> Iterator[str]:
    """Yield the measured score, its rig and its file; then the keys, as lines of an instance."""
    like = each.likeness
    gpus = ", ".join(f"{count} {name}" if count > 1 else name for name, count in _counted(like))
    on = f"{gpus}, {like.cores} cores" if gpus else f"{like.cores} cores"
    ratio = "as declared there" if each.declared else f"{ratio_text(each.standing.ratio)} vs declared there"
    yield f"{each.aim.shown(each.score)} ({each.aim}) on {each.rig}/{each.instance} ({on}): {ratio}"
    yield f"{like.model}, {like.context} tokens; found by `herd tune` on {each.day}, {each.file}; with"
    yield from (f"  {line}" for line in each.lines)
    if each.cost:
        yield each.cost


def _counted(like: Fingerprint) -> Iterable[tuple[str, int]]:
    return Counter(gpu.model for gpu in like.gpus).items()


def prior_result_json(each: PriorResult) -> dict[str, Any]:
    """Return a result as JSON."""
    return {
        "rig": each.rig,
        "instance": each.instance,
        "for": each.aim.purpose,
        "score": each.score,
        "beside": ratio_json(each.standing.ratio),
        "keys": dict(each.standing.candidate.keys),
        "on": each.likeness.model_dump(mode="json"),
        "found": each.day,
        "file": str(each.file),
    }
