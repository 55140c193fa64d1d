"""What a search ends in: steps, importance, the front and failures, of real searches on a law (`played.py`)."""

from __future__ import annotations

import io
import json
from functools import cache
from math import prod
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import pytest
import yaml
from rich.console import Console

from benchmarks.tune import start_of
from benchmarks.tune_law import DRAFTED, KV, THREADS, UBATCH, LawRig
from llamaherd.measure.report.charts import rounded
from llamaherd.measure.report.searches import FinishedSearch, search_tables
from llamaherd.measure.tune.candidate import Candidate, Figures, Outcome, Outcomes, Purpose
from llamaherd.measure.tune.journal import Search, TriedCandidate, keys_of
from llamaherd.measure.tune.optuna_model import ped_anova
from llamaherd.measure.tune.result import (
    FOLLOW,
    SearchResult,
    importances,
    optuna_shares,
    pareto_front,
    result_json,
    search_result,
    yaml_lines,
)
from llamaherd.measure.tune.search import BETTER
from llamaherd.measure.tune.show import print_result
from tests.tune.played import Played, head_of, search_on


@cache
def searched(seed: int = 1, purpose: Purpose = "turn", budget: float = 900) -> Search:
    with TemporaryDirectory() as folder:
        return search_on(Path(folder), Played(LawRig.drawn(seed)), budget, purpose)[1].journal.search


def ended(seed: int = 1) -> SearchResult:
    return search_result(searched(seed), shares=optuna_shares())


def printed(end: SearchResult) -> str:
    to = io.StringIO()
    print_result(end, "chat", Console(file=to, width=140))
    return to.getvalue()


# --- steps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 5])
def test_steps_together_lead_from_the_first_reading_to_the_best(seed: int) -> None:
    search, steps = searched(seed), ended(seed).steps
    first = search.outcome(search.trials[0]).score
    best = max(each.score for _, each in search.known if each.score is not None)
    assert first
    reached = first * prod(1 + step.gain for step in steps)
    assert reached == pytest.approx(steps[-1].score)
    assert best < reached * BETTER
    assert all(step.gain >= BETTER - 1 for step in steps)
    assert [step.number for step in steps] == sorted(step.number for step in steps)
    assert search.outcome(search.trials[steps[0].number - 1]).score == steps[0].score


# --- importance ----------------------------------------------------------------------------------------------


def test_each_key_that_was_searched_for_has_its_importance() -> None:
    found = {each.key: each for each in ended().importances}
    assert {THREADS, UBATCH, KV, DRAFTED} <= set(found)
    assert not set(found) & set(FOLLOW)
    assert sum(each.share or 0.0 for each in found.values()) == pytest.approx(1)
    # All processors are the cliff of this law: whatever else is the same, it is at least three times slower.
    assert (found[THREADS].alone or 0.0) > 2
    chosen = ended().found
    assert chosen
    assert all(each.value == chosen[key] != each.other for key, each in found.items())
    # What was started three times counts by its mean there: it is the best one, or as good as.
    assert min(each.gain for each in found.values()) > -0.01
    assert max(each.best_with for each in found.values()) == pytest.approx(ended().standings[0].score)


def test_without_optuna_the_best_with_and_without_is_what_there_is() -> None:
    found = importances(searched().known, None)
    assert len(found) >= 4
    assert all(each.share is None for each in found)
    assert [each.gain for each in found] == sorted((each.gain for each in found), reverse=True)


def test_what_the_best_ones_have_in_common_is_what_matters() -> None:
    """Forty candidates, of which those with many threads are the best, whatever their ubatch."""
    trials = Outcomes()
    for threads in range(1, 11):
        for ubatch in (64, 128, 256, 512):
            trials.add(Candidate.of({THREADS: threads, UBATCH: ubatch}), Outcome(10.0 * threads + ubatch / 1000))
    share = ped_anova(trials, (THREADS, UBATCH))
    assert share[THREADS] > 0.8
    assert share[THREADS] + share[UBATCH] == pytest.approx(1)


def test_of_a_key_that_never_changed_alone_nobody_knows_what_it_gave_alone() -> None:
    trials = Outcomes()
    trials.add(Candidate.of({THREADS: 1, UBATCH: 64}), Outcome(1.0))
    trials.add(Candidate.of({THREADS: 2, UBATCH: 128}), Outcome(2.0))
    assert [(each.key, each.alone, each.gain) for each in importances(trials, None)] == [
        (THREADS, None, 1.0),
        (UBATCH, None, 1.0),
    ]


def test_of_one_candidate_or_none_there_is_no_importance() -> None:
    trials = Outcomes()
    assert importances(trials, ped_anova) == ()
    trials.add(Candidate.of({THREADS: 1}), Outcome(1.0))
    assert importances(trials, ped_anova) == ()


# --- the front -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 5])
def test_none_on_the_front_is_worse_than_another_in_everything(seed: int) -> None:
    search = searched(seed)
    front = pareto_front(search)
    assert [each.name for each in front.measures] == ["decode", "prefill", "cache"]
    assert len(front.candidates) > 1
    for one in front.candidates:
        for other in front.candidates:
            gains = [each.gain(other.figures[each.name], one.figures[each.name]) for each in front.measures]
            assert one is other or min(gains) < 1
    best = ended(seed).standings[0].candidate
    assert front.candidates[0].candidate == best


def test_a_smaller_cache_is_worth_its_place() -> None:
    search = Search(head_of(LawRig.drawn(1)))
    for kv, speed, prefill in (
        ("f16", 50.0, 900.0),
        ("q8_0", 48.0, 900.0),
        ("q4_0", 20.0, 901.0),
        ("q4_0", 47.0, 10.0),
    ):
        keys = keys_of(start_of(LawRig.drawn(1)).with_keys({KV: kv, UBATCH: round(prefill)}))
        search.take(TriedCandidate(keys=keys, figures=Figures(decode={"code": speed, "prose": speed}, prefill=prefill)))
    front = pareto_front(search)
    assert [(each.figures["cache"], round(each.figures["decode"])) for each in front.candidates] == [
        (16.0, 50),
        (8.5, 48),
        (4.5, 20),
        (4.5, 47),
    ]


def test_where_one_thing_alone_is_known_there_is_no_front() -> None:
    search = Search(head_of(LawRig.drawn(1), "decode"))
    for threads in (1, 2):
        keys = keys_of(start_of(LawRig.drawn(1)).with_keys({THREADS: threads}))
        search.take(TriedCandidate(keys=keys, figures=Figures(decode={"code": 9.0 * threads, "prose": 9.0})))
    assert pareto_front(search).candidates == ()


# --- the end as text -----------------------------------------------------------------------------------------


def test_a_person_is_shown_before_and_after_the_steps_and_lines_that_are_yaml() -> None:
    end = ended()
    text = printed(end)
    assert text.count("s a turn ") == 2 + len(end.steps)
    assert "as declared" in text
    assert "faster" in text
    lines = text.split("under `chat`:\n")[1]
    assert yaml.safe_load(lines) == yaml.safe_load(yaml_lines(end))
    assert "draft" in yaml.safe_load(lines)
    assert len(text.splitlines()) < 30


def test_speeds_are_means_over_all_rounds_as_the_score_is() -> None:
    end = ended()
    text = printed(end)
    search = searched()
    tables = search_tables(
        FinishedSearch(search.head, "2026-11-24T15:30:00Z", "tune.jsonl", end, tuple(search.measurements))
    )
    (table,) = [each for each in tables if "code, t/s" in each.headings]
    last = 0
    for each in filter(None, (end.before, end.after)):
        every = [(trial.figures.decode["code"], trial.figures.prefill or 0.0) for trial in each.trials]
        code, prefill = (fmean(column) for column in zip(*every, strict=True))
        assert f" {code:.1f} " in text
        assert f" {prefill:,.0f} " in text
        assert rounded(code) in table.rows[0] + table.rows[1]
        last += f"{code:.1f}" == f"{every[-1][0]:.1f}"
    assert last < 2, "the last round would do as well here"


def test_what_failed_is_told_with_its_number_and_its_words(tmp_path: Path) -> None:
    def fails(candidate: Candidate) -> str | None:
        return "error: no [such] kernel" if candidate[KV] == "q8_0" else None

    _, tuning = search_on(tmp_path, Played(LawRig.drawn(1), fails=fails))
    end = search_result(tuning.journal.search)
    assert end.failed
    assert {(each.why, each.says, each.candidate[KV]) for each in end.failed} == {
        ("load", "error: no [such] kernel", "q8_0")
    }
    assert all(tuning.journal.search.trials[each.number - 1].why for each in end.failed)
    assert f"note: {len(end.failed)} did not start: error: no [such] kernel" in printed(end)
    assert result_json(end)["failed"] == {"load": len(end.failed)}


def test_all_of_it_is_json() -> None:
    said = json.loads(json.dumps(result_json(ended())))
    assert said["declared"][THREADS] == start_of(LawRig.drawn(1))[THREADS]
    assert len(said["steps"]) == len(ended().steps)
    assert {"key", "share", "alone", "best_with", "best_without"} <= set(said["importance"][0])
    assert said["front"][0]["figures"]["decode"] > 0


def test_one_that_was_cut_off_has_found_nothing_yet() -> None:
    whole = searched()
    part = Search(whole.head)
    for each in whole.trials[:9]:
        part.take(each)
    end = search_result(part)
    assert (end.found, end.before, end.after, yaml_lines(end)) == (None, None, None, "")
    assert end.steps
    assert "no candidate is significantly better" in printed(end)


def test_before_and_after_is_the_best_other_one_where_nothing_was_found(tmp_path: Path) -> None:
    class Flat(LawRig):
        def decode(self, _candidate: Candidate) -> float:
            return 50.0

        def prefill(self, _candidate: Candidate) -> float:
            return 800.0

    rig = Flat(**LawRig.drawn(2).__dict__)
    _, tuning = search_on(tmp_path, Played(rig))
    end = search_result(tuning.journal.search)
    assert end.found == end.declared
    assert end.after
    assert end.after.candidate != end.declared
    assert end.before
    assert end.before.candidate == end.declared
