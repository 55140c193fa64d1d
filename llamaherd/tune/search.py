"""The whole search: one pass over the axes, then a model of all that is known, until the budget is spent. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llamaherd.tune.candidate import Candidate
from llamaherd.tune.one_pass import Walk, one_pass
from llamaherd.tune.space import Space
from llamaherd.tune.trials import Outcome, Trials

Model = Callable[[Space, Trials], Walk]
"""What proposes candidates by all trials so far, without end."""

_KNOWN = 50
"""Proposals in a row that are known already: then there is nothing new to be had."""


def search(
    space: Space,
    start: Candidate,
    trials: Trials,
    evaluate: Callable[[Candidate], Outcome],
    more: Callable[[], bool],
    model: Model | None = None,
    hints: Sequence[Candidate] = (),
) -> bool:
    """Try candidates as long as there is `more` budget, `hints` early. What is in `trials` is not tried again.

    Whether the pass over the axes came to its end.
    """
    through = _drive(one_pass(space, start, hints), trials, evaluate, more)
    if through and model:
        _drive(model(space, trials), trials, evaluate, more)
    return through


def _drive(walk: Walk, trials: Trials, evaluate: Callable[[Candidate], Outcome], more: Callable[[], bool]) -> bool:
    """Follow a walk to its end; whether there is budget left."""
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
            if known > _KNOWN:
                return True
            candidate = walk.send(trials.outcomes[candidate])
    except StopIteration:
        return True
