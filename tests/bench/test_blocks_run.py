"""A comparison in blocks, played: two servers whose times are in the script, by a clock that it alone moves on.

What is played is no measurement of anything: it says how the loop, the journals and the verdicts go together.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.client.http_client import failure
from llamaherd.measure.results.comparison import Comparison, compare_results
from llamaherd.measure.results.metrics import DECODE, PREFILL, STEP
from llamaherd.measure.results.result import Condition, Result
from llamaherd.measure.results.store import read_result, result_files
from llamaherd.measure.trials.pair import (
    BlockDone,
    Blocks,
    Ended,
    JournalPair,
    block_requests,
    long_tokens,
    trial_conditions,
)
from tests.bench.played_arms import Played, begun

CODE = trial_conditions(["code"], 8192)
USUAL = trial_conditions(["code", "prose", "prefill"], 8192)


def the_next_day(asked: tuple[Condition, ...]) -> tuple[Result, Result]:
    """What the same command begins with a day later."""
    a, b = begun("A", asked, "new"), begun("B", asked, "new")
    at = {"began": "2026-11-24T00:00:01Z"}
    return a.model_copy(update=at), b.model_copy(update=at | {"began": "2026-11-24T00:00:00Z"})


def pair_of(folder: Path, asked: tuple[Condition, ...], session: str = "s") -> JournalPair:
    return JournalPair(folder / "results", begun("A", asked, session), begun("B", asked, session))


def measured(
    folder: Path, servers: Played, asked: tuple[Condition, ...] = CODE, budget: float = 36_000, session: str = "s"
) -> tuple[Ended, Comparison, list[BlockDone]]:
    pair, told = pair_of(folder, asked, session), list[BlockDone]()
    try:
        ended = Blocks(servers, pair.journals, asked, pair.session, budget, told.append).run()
        paths = pair.finish("2026-11-23T21:00:00Z")
    finally:
        pair.close()
    return ended, compare_results(*map(read_result, paths)), told


def verdicts(found: Comparison) -> dict[str, str]:
    return {row.metric.name: row.judgement.verdict for row in found.rows if row.judgement}


@pytest.mark.parametrize("seed", range(20))
def test_five_percent_slower_is_slower_within_eight_blocks(seed: int, tmp_path: Path) -> None:
    ended, found, told = measured(tmp_path, Played(seed, slower=0.05), session=f"s{seed}")
    assert ended == "known"
    assert verdicts(found)["decode"] == "slower"
    assert len(told) <= 8


@pytest.mark.parametrize("seed", range(20))
def test_one_percent_of_a_step_is_told_within_six_starts(seed: int, tmp_path: Path) -> None:
    """The speed itself goes with the text of each answer, by ten percent and more: a step does not."""
    servers = Played(seed, step=0.01, drafts=True, start_error=0.001, run_error=0.001)
    _, _, told = measured(tmp_path, servers, budget=200.0, session=f"s{seed}")
    said = [verdicts(each.so_far).get("step") for each in told]
    assert "slower" in said[:6]
    assert not {"faster", "same"} & set(said)


@pytest.mark.parametrize("seed", range(40))
def test_an_unchanged_server_is_never_slower(seed: int, tmp_path: Path) -> None:
    ended, found, _ = measured(tmp_path, Played(seed), USUAL, session=f"s{seed}")
    assert ended == "known"
    of = [row.judgement.verdict for row in found.rows if row.judgement and row.metric in (DECODE, PREFILL, STEP)]
    assert set(of) == {"same"}


def test_both_are_asked_the_same_and_nothing_is_asked_twice(tmp_path: Path) -> None:
    servers = Played(1)
    _, found, told = measured(tmp_path, servers, USUAL)
    assert servers.asked["A"] == servers.asked["B"]
    texts = [(each.text, each.salt) for each in servers.asked["A"]]
    assert len(set(texts)) == len(texts)
    assert not any(each.reuse for each in servers.asked["A"])
    assert [(each.a.n, each.a.unit) for each in found.rows[:1]] == [(len(told), "start")]


def test_each_comes_first_as_often(tmp_path: Path) -> None:
    """At the margin itself nothing is known for long."""
    servers = Played(3, slower=0.02)
    _, _, told = measured(tmp_path, servers, budget=8 * 30.0)
    assert len(told) >= 4
    assert sorted(each.order for each in told[:4]) == ["AB", "AB", "BA", "BA"]
    assert "".join(servers.starts) == "".join(each.order for each in told)


def test_the_budget_ends_it_before_a_block_that_would_not_fit(tmp_path: Path) -> None:
    servers = Played(5)
    ended, found, told = measured(tmp_path, servers, USUAL, budget=1.0)
    assert (ended, len(told)) == ("spent", 1)
    assert set(verdicts(found).values()) == {"not known yet"}


def test_a_run_that_was_cut_off_goes_on_with_its_blocks(tmp_path: Path) -> None:
    servers = Played(6)
    servers.fails = lambda number: failure("cut", "the connection was cut") if number == 13 else None
    with pytest.raises(UserError, match="the connection was cut"):
        measured(tmp_path, servers)
    assert servers.running is None
    kept = sorted((tmp_path / "results").rglob("*.jsonl"))
    before = {path.name: read_result(path) for path in kept}
    assert len(before) == 2
    ended, found, told = measured(tmp_path, Played(7), session="another")
    assert (ended, verdicts(found)["decode"]) == ("known", "same")
    assert told[0].number == 2
    assert not list((tmp_path / "results").rglob("*.jsonl"))
    after = read_result(next(iter((tmp_path / "results").rglob("*.json"))))
    assert after.method.series == "s"
    assert {run.block for cell in after.cells for run in cell.runs} >= {0, 1, 2}


@pytest.mark.parametrize("session", ["s", "t", "u", "v"])
def test_the_newest_result_is_that_of_what_is_declared(session: str, tmp_path: Path) -> None:
    """Also where only one arm had begun when it was cut off."""
    servers = Played(6)
    servers.fails = lambda number: failure("cut", "the connection was cut") if number == 3 else None
    with pytest.raises(UserError):
        measured(tmp_path, servers, session=session)
    assert len(list((tmp_path / "results").rglob("*.jsonl"))) == 1
    again = JournalPair(tmp_path / "results", *the_next_day(CODE))
    assert (again.resumed, again.session) == (True, session)
    Blocks(Played(6), again.journals, CODE, again.session, 36_000).run()
    again.finish("2026-11-23T21:00:00Z")
    again.close()
    newest, older = map(read_result, result_files(tmp_path / "results", "duo", "chat"))
    assert (newest.method.arm, older.method.arm) == ("A", "B")


def test_other_servers_begin_anew(tmp_path: Path) -> None:
    servers = Played(6)
    servers.fails = lambda number: failure("cut", "the connection was cut") if number == 13 else None
    with pytest.raises(UserError):
        measured(tmp_path, servers)
    pair = JournalPair(tmp_path / "results", *the_next_day(USUAL))
    assert (pair.resumed, pair.session) == (False, "new")
    pair.close()
    assert len(list((tmp_path / "results").rglob("*.jsonl"))) == 2, "those without a run are gone"


def test_an_answer_without_a_token_is_kept_and_does_not_count(tmp_path: Path) -> None:
    servers = Played(8)
    servers.fails = lambda number: failure("empty", "nothing came") if number == 3 else None
    _, found, _ = measured(tmp_path, servers)
    assert [each for each in (*found.notes_a, *found.notes_b) if "nothing came" in each] == [
        "1 run does not count: nothing came"
    ]


def test_what_is_asked_is_by_the_cells_that_were_chosen() -> None:
    assert [str(each) for each in USUAL] == ["code, 128 out", "prose, 128 out", "long, 1,024 in"]
    assert [str(each) for each in trial_conditions(["prefill", "prefill"], 512)] == ["long, 256 in"]
    assert long_tokens(CODE) is None
    assert [each.cell for each in block_requests(CODE, "", 0)] == [None, 0, 0, 0]
