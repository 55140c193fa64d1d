"""The Pareto front of a search: candidates of which none is better in everything that is known of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from llamaherd.gguf.header import BLOCKS
from llamaherd.tune.aim import Aim
from llamaherd.tune.candidate import Candidate
from llamaherd.tune.journal import Search
from llamaherd.tune.lines import Trial, candidate_of
from llamaherd.tune.quality import KV

_ALIKE = 0.03
"""The share within which two are the same."""


@dataclass(frozen=True)
class Measure:
    """Something that a candidate is better or worse in, beside all others; `of` is None where it is not known."""

    name: str
    unit: str
    of: Callable[[Trial], float | None]
    less: bool = False
    """Whether less of it is better."""

    def gain(self, one: float, other: float) -> float:
        """How much better one value is than another: above 1 is better."""
        return other / one if self.less else one / other


@dataclass(frozen=True)
class OnFront:
    """A candidate of the front with its figures, by the names of the measures."""

    candidate: Candidate
    figures: Mapping[str, float]


@dataclass(frozen=True)
class Front:
    """The candidates of which none is better in every measure, the best one for the aim first."""

    measures: tuple[Measure, ...] = ()
    candidates: tuple[OnFront, ...] = ()


def _decode(trial: Trial) -> float | None:
    return Aim(purpose="decode").score(trial.figures)


def _energy(trial: Trial) -> float | None:
    score = Aim(purpose="efficiency").score(trial.figures)
    return 1 / score if score else None


def _cache_bits(trial: Trial) -> float | None:
    """Bits of a value of the cache, which memory of a context goes with: its type says it, and nothing is measured."""
    block = BLOCKS.get(str(trial.keys.get(KV)).upper())
    return None if block is None else 8 * block[0] / block[1]


MEASURES = (
    Measure("decode", "t/s", _decode),
    Measure("prefill", "t/s", lambda trial: trial.figures.prefill),
    Measure("together", "t/s", lambda trial: trial.figures.total),
    Measure("energy", "J a token", _energy, less=True),
    Measure("cache", "bits a value", _cache_bits, less=True),
)
"""In which candidates are held against each other, where all of them have it and it is not the same for all."""


def front_of(search: Search) -> Front:
    """The front of a search; an empty one where fewer than two things are known of all its candidates.

    Of those that are alike in everything, within 3 %, the best one for the aim stands for all.
    """
    known = _known(search)
    measures = tuple(each for each in MEASURES if _tells(each, known))
    if len(measures) < 2:
        return Front()
    every = [OnFront(candidate, _figures(measures, trials)) for candidate, trials in known.items()]
    # Whoever is better than another in everything comes before it: each is held against the front alone.
    every.sort(key=lambda each: [-one.gain(each.figures[one.name], 1.0) for one in measures])
    whole: list[OnFront] = []
    for each in every:
        if not any(_dominates(measures, other, each) for other in whole):
            whole.append(each)
    kept: list[OnFront] = []
    for each in sorted(whole, key=lambda one: -_score(search, known[one.candidate])):
        if not any(_as_good(measures, other, each, 1 - _ALIKE) for other in kept):
            kept.append(each)
    return Front(measures, tuple(kept))


def _known(search: Search) -> dict[Candidate, list[Trial]]:
    """The readings of each candidate that has a score: those of the rounds of the end, where there are some."""
    found: dict[Candidate, list[Trial]] = {}
    for each in search.told:
        if search.outcome(each).score is not None:
            found.setdefault(candidate_of(each.keys), []).append(each)
    return {candidate: [each for each in its if each.round is not None] or its for candidate, its in found.items()}


def _score(search: Search, trials: Sequence[Trial]) -> float:
    return fmean(search.outcome(each).score or 0.0 for each in trials)


def _tells(measure: Measure, known: Mapping[Candidate, Sequence[Trial]]) -> bool:
    values = [measure.of(each) for trials in known.values() for each in trials]
    return None not in values and len(set(values)) > 1


def _figures(measures: Sequence[Measure], trials: Sequence[Trial]) -> dict[str, float]:
    return {each.name: fmean(value for trial in trials if (value := each.of(trial)) is not None) for each in measures}


def _as_good(measures: Sequence[Measure], one: OnFront, other: OnFront, least: float) -> bool:
    return all(each.gain(one.figures[each.name], other.figures[each.name]) >= least for each in measures)


def _dominates(measures: Sequence[Measure], one: OnFront, other: OnFront) -> bool:
    return one.figures != other.figures and _as_good(measures, one, other, 1.0)
