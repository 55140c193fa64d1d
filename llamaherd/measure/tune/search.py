"""The search: one pass over all axes, then proposals of a model, until the budget is spent. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from llamaherd.measure.tune.candidate import Candidate, Outcome, Outcomes, Value
from llamaherd.measure.tune.space import Axis, Space

Tried = Generator[Candidate, Outcome, Outcome]
Walk = Generator[Candidate, Outcome, None]

BETTER = 1.003
"""A candidate replaces the best one if it is better by this factor: less is usually noise."""
_TIRED = 2
"""Steps without a gain after which an axis is left: one of them may be noise, or a dent."""
CLIFF = 0.25
"""A step to less than this share of the best score is a cliff, as with threads when no core is left.

Its value is not measured again with other keys.
"""
_UNPACKS = 3
"""Steps back from an edge of memory that the estimate did not predict."""


@dataclass
class Best:
    """The best candidate by now."""

    candidate: Candidate
    score: float | None
    cliffs: set[tuple[str, Value]] = field(default_factory=set)
    """Values that fell off a cliff, each where its key alone was changed."""


def coordinate_search(space: Space, start: Candidate, hints: Sequence[Candidate] = ()) -> Walk:
    """Try the start as it is, then packed by the memory arithmetic, then `hints`, then one axis after another.

    Axes of which another one was changed since they were walked are walked once more.
    """
    best = Best(start, (yield start).score)
    for each in (start, *hints):
        packed = space.pack(space.tidy(each))
        if packed is not None:
            yield from _try(space, best, packed)
    before: Candidate | None = None
    while before != best.candidate:
        first, before = before is None, best.candidate
        for axis in space.axes:
            if axis.among(best.candidate) and (first or axis.how == "climb"):
                yield from _walk(space, best, axis, patient=first)


def _walk(space: Space, best: Best, axis: Axis, *, patient: bool) -> Walk:
    """Try values of one axis, with the other keys of the best candidate."""
    if axis.leaps:
        leaps = axis.leaps
        if best.candidate[axis.key] is not None:
            # Off is far from anything that is on, and a draft that pays with no number is soon known.
            off = patient and (yield from _try_keys(space, best, {axis.key: None}))
            leaps = axis.leaps[:1] if off else ()
        for leap in leaps:
            yield from _try_keys(space, best, leap)
        if best.candidate[axis.key] is None:
            return
    if axis.how == "each":
        here = best.candidate[axis.key]
        for value in axis.values:
            if value != here:
                yield from _try_keys(space, best, {axis.key: value})
        return
    place = axis.near(best.candidate[axis.key])
    ways = [range(place + 1, len(axis.values)), range(place - 1, -1, -1)]
    for way in reversed(ways) if axis.down_first else ways:
        if (yield from _climb(space, best, axis, way, patient=patient)):
            break


def _climb(
    space: Space, best: Best, axis: Axis, places: Iterable[int], *, patient: bool
) -> Generator[Candidate, Outcome, bool]:
    """Try values in one direction until the score stops rising. Return whether it rose."""
    tired, gained = 0, False
    for place in places:
        if (axis.key, axis.values[place]) in best.cliffs:
            break
        if (yield from _try_keys(space, best, {axis.key: axis.values[place]})):
            tired, gained = 0, True
        else:
            tired += 1
            if tired >= (_TIRED if patient and gained else 1):
                break
    return gained


def _try_keys(space: Space, best: Best, keys: Mapping[str, Value]) -> Generator[Candidate, Outcome, bool]:
    """Try the best candidate with these keys, packed anew. Return whether it is better."""
    changed = space.pack(space.tidy(best.candidate.with_keys(keys)))
    if changed is None:
        return False
    return (yield from _try(space, best, changed))


def _try(space: Space, best: Best, candidate: Candidate) -> Generator[Candidate, Outcome, bool]:
    """Try a candidate, with less on its GPUs if it runs out of memory. Return whether it is the best one now."""
    outcome = yield candidate
    for _ in range(_UNPACKS):
        if outcome.why != "memory":
            break
        smaller = space.unpack(candidate)
        if smaller is None:
            break
        candidate = smaller
        outcome = yield candidate
    if (fell := cliff(space, candidate, outcome.score, best.candidate, best.score)) is not None:
        best.cliffs.add(fell)
    if outcome.score is None or (best.score is not None and outcome.score < best.score * BETTER):
        return False
    best.candidate, best.score = candidate, outcome.score
    return True


def cliff(
    space: Space, candidate: Candidate, score: float | None, other: Candidate, others: float | None
) -> tuple[str, Value] | None:
    """Return the key and the value by which a candidate fell off a cliff compared with another one.

    None if more than one key differs, or if the key is a draft's, which may pay with other keys.
    """
    if score is None or others is None or score >= CLIFF * others:
        return None
    changed = [*candidate.besides(other).items()]
    climbed = {axis.key for axis in space.axes if axis.how == "climb" and not axis.needs and not axis.leaps}
    return changed[0] if len(changed) == 1 and changed[0][0] in climbed else None


def cliffs(space: Space, trials: Outcomes) -> set[tuple[str, Value]]:
    """Return all values that fell off a cliff compared with the best candidate with the same other keys."""
    known = [(candidate, outcome.score) for candidate, outcome in trials]
    found = (cliff(space, *one, *other) for one in known for other in known)
    return {each for each in found if each is not None}


Model = Callable[[Space, Outcomes], Walk]
"""Proposes candidates by all trials so far, without end."""

_MOST_KNOWN = 50
"""Successive proposals that are known already, after which the search ends."""


def search(
    space: Space,
    start: Candidate,
    trials: Outcomes,
    evaluate: Callable[[Candidate], Outcome],
    more: Callable[[], bool],
    model: Model | None = None,
    hints: Sequence[Candidate] = (),
) -> bool:
    """Try candidates as long as there is `more` budget, `hints` early. What is in `trials` is not tried again.

    Whether the pass over the axes came to its end.
    """
    through = _drive(coordinate_search(space, start, hints), trials, evaluate, more)
    if through and model:
        _drive(model(space, trials), trials, evaluate, more)
    return through


def _drive(walk: Walk, trials: Outcomes, evaluate: Callable[[Candidate], Outcome], more: Callable[[], bool]) -> bool:
    """Follow a walk to its end. Return whether budget is left."""
    known = 0
    try:
        candidate = next(walk)
        while True:
            known += 1
            if candidate not in trials.outcomes:
                if not more():
                    return False
                trials.add(candidate, evaluate(candidate))
                known = 0
            if known > _MOST_KNOWN:
                return True
            candidate = walk.send(trials.outcomes[candidate])
    except StopIteration:
        return True
