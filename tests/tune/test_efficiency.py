"""A search for less energy, on a host that plays a law: no GPU is asked, and its watts are made up (`played.py`)."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.tune import start_of
from benchmarks.tune_law import READ, UBATCH, WRITTEN, LawRig
from llamaherd.measure.bench.series import SECONDS
from llamaherd.measure.tune.candidate import Candidate, Figures, Objective, Sizes
from llamaherd.measure.tune.journal import candidate_of
from llamaherd.measure.tune.result import pareto_front, result_json, search_result
from llamaherd.measure.tune.show import print_result
from tests.tune.played import Played, pass_alone, search_on, watts

EFFICIENCY = Objective(purpose="efficiency")


def joules_a_token(rig: LawRig, candidate: Candidate) -> float:
    """Of a turn, in truth."""
    seconds = READ / rig.prefill(candidate) + WRITTEN / rig.decode(candidate)
    return watts(candidate) * seconds / (READ + WRITTEN)


def test_it_finds_what_takes_less_and_not_what_is_fastest(tmp_path: Path) -> None:
    rig = LawRig.drawn(1)
    thrifty, tuning = search_on(tmp_path / "joules", Played(rig), 3600, "efficiency", pass_alone)
    fast, _ = search_on(tmp_path / "turn", Played(rig), 3600, "turn", pass_alone)
    least, quick = candidate_of(thrifty.keys), candidate_of(fast.keys)
    assert least[UBATCH] != quick[UBATCH]
    assert joules_a_token(rig, least) < 0.97 * joules_a_token(rig, quick)
    assert joules_a_token(rig, least) < 0.97 * joules_a_token(rig, start_of(rig))
    best = tuning.standings()[0]
    assert 1 / best.score == pytest.approx(joules_a_token(rig, least), rel=0.03)


def test_the_end_tells_joules_with_their_interval(tmp_path: Path) -> None:
    _, tuning = search_on(tmp_path, Played(LawRig.drawn(1)), 3600, "efficiency", pass_alone)
    end = search_result(tuning.journal.search)
    to = io.StringIO()
    print_result(end, "chat", Console(file=to, width=180))
    told = end.after.estimate if end.after else None
    assert told
    assert told.low
    assert told.high
    assert f"{1 / told.value:.3g} J a token ({1 / told.high:.3g} to {1 / told.low:.3g})" in to.getvalue()
    assert "takes less" in to.getvalue()
    assert "faster" not in to.getvalue()
    assert result_json(end)["standings"][0]["interval"] == [told.low, told.high]
    assert "energy" in [each.name for each in pareto_front(tuning.journal.search).measures]


def test_where_no_energy_is_told_nothing_is_found(tmp_path: Path) -> None:
    rig = LawRig.drawn(1)
    found, tuning = search_on(tmp_path, Played(rig, tells=False), 600, "efficiency")
    assert candidate_of(found.keys) == start_of(rig)
    search = tuning.journal.search
    assert {why for each in search.trials if (why := search.outcome(each).why)} <= {"answer", "memory"}
    assert search.trials[0].says == "its GPUs reported no energy"


def test_a_token_of_a_turn_is_one_that_is_read_or_written() -> None:
    figures = Figures(written={"code": 1.0, "prose": 2.0}, read=0.1)
    assert EFFICIENCY.score(figures) == pytest.approx(2500 / (2000 * 0.1 + 500 * (0.6 * 1 + 0.4 * 2)))
    assert EFFICIENCY.shown(2.5) == "0.4 J a token"
    assert EFFICIENCY.score(figures.model_copy(update={"read": None})) is None
    assert EFFICIENCY.score(figures.model_copy(update={"written": {"code": 1.0}})) is None


@pytest.mark.parametrize(("decode", "prefill"), [(8.0, 150.0), (80.0, 2500.0), (250.0, 9000.0)])
def test_all_takes_long_enough_for_a_counter(decode: float, prefill: float) -> None:
    sizes = Sizes.of(decode, prefill, 32_768, energy=True)
    assert sizes.written / decode >= SECONDS
    assert sizes.prompts * sizes.read / prefill >= min(SECONDS, 16 * sizes.read / prefill)
    assert Sizes.of(decode, prefill, 32_768).prompts == 1
