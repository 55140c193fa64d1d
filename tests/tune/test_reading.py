"""How trials are read: an axis is judged by the figures that it can change."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from benchmarks.tune_law import THREADS, UBATCH, LawRig
from llamaherd.measure.tune.candidate import Candidate, Figures, Outcome, Outcomes, Purpose
from llamaherd.measure.tune.journal import Search, TriedCandidate, keys_of
from llamaherd.measure.tune.search import Axis, Space, search
from tests.tune.played import head_of

UBATCHES = (64, 128, 256, 512, 1024)


def trial(ubatch: int, decode: float, prefill: float, threads: int = 8) -> TriedCandidate:
    keys = keys_of(Candidate.of({UBATCH: ubatch, THREADS: threads}))
    return TriedCandidate(keys=keys, figures=Figures(decode={"code": decode, "prose": decode}, prefill=prefill))


def scores(*trials: TriedCandidate, purpose: Purpose = "turn") -> list[float]:
    known = Search(head_of(LawRig.drawn(1), purpose))
    for each in trials:
        known.take(each)
    return [outcome.score or 0.0 for _, outcome in known.read()]


def test_a_disturbed_answer_says_nothing_against_a_larger_ubatch() -> None:
    one, larger = scores(trial(64, 50, 400), trial(128, 30, 800))
    assert larger == scores(trial(128, 50, 800))[0] > one


def test_where_the_first_answer_was_disturbed_later_ones_count() -> None:
    _, larger, last = scores(trial(64, 30, 400), trial(128, 50, 800), trial(256, 49, 900))
    assert (larger, last) == (scores(trial(128, 50, 800))[0], scores(trial(256, 50, 900))[0])


def test_what_other_keys_change_is_their_own() -> None:
    _, other = scores(trial(64, 50, 400), trial(64, 30, 400, threads=4))
    assert other == scores(trial(64, 30, 400, threads=4))[0]
    _, written = scores(trial(64, 50, 400), trial(128, 30, 800), purpose="decode")
    assert written == pytest.approx(30)


@pytest.mark.parametrize("disturbed", [{128: 0.6}, {256: 0.6, 512: 0.8}, {64: 0.7}], ids=["one", "two", "the first"])
def test_one_disturbed_reading_ends_no_climb(disturbed: Mapping[int, float]) -> None:
    known = Search(head_of(LawRig.drawn(1)))

    def evaluate(candidate: Candidate) -> Outcome:
        ubatch = int(str(candidate[UBATCH]))
        known.take(trial(ubatch, 50 * disturbed.get(ubatch, 1.0), 10 * ubatch))
        return known.known.outcomes[candidate]

    trials = Outcomes()
    start = Candidate.of({UBATCH: 64, THREADS: 8})
    search(Space((Axis(UBATCH, UBATCHES),), lambda each: each), start, trials, evaluate, lambda: True)
    assert trials.best(1) == [Candidate.of({UBATCH: 1024, THREADS: 8})]
