"""The search, on rigs that are a law alone (`benchmarks/tune_law.py`): what it tries, and what it comes to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.tune import evaluation, parzen_of, start_of
from benchmarks.tune_law import DRAFTED, EXPERTS, KV, SURE, THREADS, UBATCH, LawRig
from llamaherd.measure.tune.candidate import Candidate, Outcome, Outcomes, Value
from llamaherd.measure.tune.optuna_model import parzen
from llamaherd.measure.tune.search import Axis, Space, cliffs, search

TRIED = 30


def searched(rig: LawRig, seed: int, most: int = TRIED, known: Outcomes | None = None) -> Outcomes:
    trials = known or Outcomes()
    search(rig.space(), start_of(rig), trials, evaluation(rig, seed), lambda: len(trials) < most, parzen_of(seed))
    return trials


@pytest.mark.parametrize("seed", range(20, 26))
def test_it_comes_near_the_best_of_all(seed: int) -> None:
    rig = LawRig.drawn(seed)
    assert rig.score(searched(rig, seed).best(1)[0]) > 0.93 * rig.best()


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_tried_that_cannot_fit(seed: int) -> None:
    rig = LawRig.drawn(seed)
    assert all(rig.fits(candidate) for candidate, _ in searched(rig, seed, 60))


@pytest.mark.parametrize("killed", [0, 1, 7, 20, 29])
def test_one_that_was_killed_ends_as_if_it_had_not_been(killed: int) -> None:
    rig = LawRig.drawn(3, noise=0.0)
    whole = searched(rig, 3)
    part = Outcomes(dict(list(whole)[:killed]))
    asked: list[Candidate] = []

    def evaluate(candidate: Candidate) -> Outcome:
        asked.append(candidate)
        return Outcome(rig.score(candidate))

    search(rig.space(), start_of(rig), part, evaluate, lambda: len(part) < TRIED, parzen_of(3))
    assert list(part) == list(whole)
    assert asked == [candidate for candidate, _ in list(whole)[killed:]]


def test_the_first_one_is_what_is_declared() -> None:
    rig = LawRig.drawn(1)
    first, _ = next(iter(searched(rig, 1, 1)))
    assert first == start_of(rig)


def test_a_draft_that_needs_two_keys_is_found() -> None:
    """One drafted token is a loss here, two sure ones are a gain."""

    known: dict[tuple[Value, Value], float] = {(None, None): 10.0, (2, 0.75): 12.0, (2, 0.9): 13.0}

    def score(candidate: Candidate) -> float:
        return known.get((candidate[DRAFTED], candidate[SURE]), 9.0)

    space = Space(
        (
            Axis(DRAFTED, (None, 1, 2, 3), leaps=({DRAFTED: 1}, {DRAFTED: 2, SURE: 0.75})),
            Axis(SURE, (None, 0.5, 0.75, 0.9), needs=DRAFTED),
        ),
        lambda candidate: candidate,
    )
    trials = Outcomes()
    start = space.tidy(Candidate())
    search(space, start, trials, lambda candidate: Outcome(score(candidate)), lambda: True)
    assert trials.best(1) == [Candidate.of({DRAFTED: 2, SURE: 0.9})]
    assert all(candidate[SURE] is None for candidate, _ in trials if candidate[DRAFTED] is None)


def test_where_arithmetic_was_wrong_by_a_little_less_is_put_on_the_gpu() -> None:
    def step(by: int) -> Callable[[Candidate], Candidate | None]:
        return lambda candidate: candidate.with_keys({EXPERTS: int(str(candidate[EXPERTS] or 5)) + by})

    space = Space((Axis(UBATCH, (512, 1024)),), step(0), (EXPERTS,), step(1))

    def evaluate(candidate: Candidate) -> Outcome:
        needed = 7 if candidate[UBATCH] == 1024 else 5
        lost = int(str(candidate[EXPERTS])) < needed
        return Outcome(None, why="memory") if lost else Outcome(float(int(str(candidate[UBATCH]))))

    trials = Outcomes()
    search(space, Candidate.of({UBATCH: 512, EXPERTS: 5}), trials, evaluate, lambda: True)
    assert trials.best(1) == [Candidate.of({UBATCH: 1024, EXPERTS: 7})]


def test_a_cliff_is_read_once_and_not_again_with_other_keys() -> None:
    """All processors are ten times slower, whatever else is set: neither the second walk nor the model goes there."""

    def score(candidate: Candidate) -> float:
        threads, ubatch = int(str(candidate[THREADS])), int(str(candidate[UBATCH]))
        return (ubatch + (100 if candidate[KV] == "f16" else 90)) * (threads if threads < 48 else 4.8)

    space = Space(
        (
            Axis(THREADS, (12, 24, 47, 63, 64), down_first=True),
            Axis(UBATCH, (64, 128, 256, 512, 1024)),
            Axis(KV, ("f16", "q8_0"), "each"),
        ),
        lambda candidate: candidate,
    )
    start = Candidate.of({THREADS: 24, UBATCH: 64, KV: "f16"})
    passed, trials = Outcomes(), Outcomes()
    for known, model in ((passed, None), (trials, parzen_of(1))):
        search(space, start, known, lambda each: Outcome(score(each)), lambda: True, model)
        assert known.best(1) == [Candidate.of({THREADS: 47, UBATCH: 1024, KV: "f16"})]
        assert [each[THREADS] for each, _ in known].count(63) == 1
        assert [each[THREADS] for each, _ in known].count(64) <= 1
    assert len(trials) > len(passed), "the model has proposed others"


def test_a_draft_that_did_not_pay_may_pay_with_other_keys() -> None:
    space = Space((Axis(DRAFTED, (None, 1, 2), leaps=({DRAFTED: 1},)), Axis(UBATCH, (64, 128))), lambda each: each)
    slow, fast = Candidate.of({DRAFTED: 1, UBATCH: 64}), Candidate.of({DRAFTED: None, UBATCH: 64})
    assert cliffs(space, Outcomes({slow: Outcome(1.0), fast: Outcome(10.0)})) == set()
    of_batch = Candidate.of({DRAFTED: None, UBATCH: 128})
    assert cliffs(space, Outcomes({of_batch: Outcome(1.0), fast: Outcome(10.0)})) == {(UBATCH, 128)}


def test_it_ends_where_there_is_nothing_new() -> None:
    space = Space((Axis(KV, ("f16", "q8_0"), "each"),), lambda candidate: candidate)
    trials = Outcomes()
    search(space, Candidate.of({KV: "f16"}), trials, lambda _: Outcome(1.0), lambda: True, parzen_of(0))
    assert len(trials) == 2


def test_a_failure_ends_nothing() -> None:
    space = Space((Axis(THREADS, (1, 2, 3, 4)),), lambda candidate: candidate)
    trials = Outcomes()

    def evaluate(candidate: Candidate) -> Outcome:
        value = int(str(candidate[THREADS]))
        return Outcome(None, why="load", says="it ended") if value == 3 else Outcome(float(value))

    search(space, Candidate.of({THREADS: 2}), trials, evaluate, lambda: True, lambda space, known: parzen(space, known))
    assert len(trials) == 4
    assert trials.best(1) == [Candidate.of({THREADS: 4})]


def test_two_that_differ_in_a_key_that_means_nothing_are_one() -> None:
    space = LawRig.drawn(0).space()
    one, other = (space.tidy(Candidate.of({DRAFTED: None, SURE: sure})) for sure in (0.5, 0.9))
    assert one == other
    assert str(Candidate.of({UBATCH: 512, SURE: 0.5, KV: None})) == "draft.p_min=0.5, ubatch=512"
