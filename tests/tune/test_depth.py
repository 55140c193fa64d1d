"""What a search finds, at the full depth of the context, on a host that plays a law (`played.py`)."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.tune import start_of
from benchmarks.tune_law import LawRig
from llamaherd.measure.bench.workloads import DEPTH_TIMES, DEPTH_TOKENS
from llamaherd.measure.report.page import gather_results, page
from llamaherd.measure.tune.candidate import Candidate, Objective
from llamaherd.measure.tune.final_measurements import Deeper, depth_of
from llamaherd.measure.tune.journal import Deep, candidate_of, read_search, searches
from llamaherd.measure.tune.result import SearchResult, result_json, search_result
from llamaherd.measure.tune.show import print_result
from tests.tune.played import Played, search_on

RIG = LawRig.drawn(1)
CONTEXT = 16_384


def searched(folder: Path, servers: Played, budget: float = 900, context: int = CONTEXT) -> SearchResult:
    _, tuning = search_on(folder, servers, budget, climbs=True, context=context)
    (path,) = searches(folder, "box", "chat")
    search = read_search(path)
    assert search.found == tuning.journal.search.found
    return search_result(search)


def printed(end: SearchResult) -> str:
    to = io.StringIO()
    print_result(end, "chat", Console(file=to, width=160))
    return to.getvalue()


def slower_than_declared(share: float) -> Played:
    return Played(RIG, at_depth=lambda each: 1.0 if each == start_of(RIG) else share)


def test_both_are_measured_once_at_the_full_depth(tmp_path: Path) -> None:
    servers = Played(RIG)
    end = searched(tmp_path, servers)
    assert end.found
    assert {each for each, _ in servers.deep} == {start_of(RIG), end.found}
    assert [depth for _, depth in servers.deep] == [CONTEXT - DEPTH_TIMES * DEPTH_TOKENS - 16] * 2
    assert (end.doubt, end.shallow) == ("", "")
    assert f"at the full depth of a request, {depth_of(CONTEXT):,} tokens, in one start of each" in printed(end)
    said = result_json(end)["depth"]
    assert said["verdict"] == "faster"
    assert len(said["found"]["decode"]) == DEPTH_TIMES
    assert said["beside"][1] < said["beside"][0] < said["beside"][2]
    assert servers.now < 900


def test_what_is_slower_there_is_said(tmp_path: Path) -> None:
    end = searched(tmp_path, slower_than_declared(0.1))
    assert end.found != end.declared, "it is the best one where nothing is in the cache"
    told = " ".join(printed(end).split())
    assert f"warning: at a depth of {depth_of(CONTEXT):,} tokens it is slower than the declared keys: -" in told
    assert result_json(end)["depth"]["verdict"] == "slower"
    (group,) = page(gather_results((), tmp_path)).groups
    assert end.doubt in group.parts[0].notes
    assert any(table.caption.startswith("At the full depth of a request") for table in group.parts[0].tables)


def test_what_gives_no_answer_there_is_said(tmp_path: Path) -> None:
    end = searched(tmp_path, slower_than_declared(0.0))
    assert end.doubt.endswith("it gave no figures: at a depth of 65,000 tokens: it went away")
    assert result_json(end)["depth"]["verdict"] is None


@pytest.mark.parametrize(
    ("budget", "context", "why"),
    [
        (400, 262_144, "reading 261,744 tokens with both takes about "),
        (400, 2048, "the context of a request is no longer than the other prompts"),
    ],
    ids=["too long", "too short"],
)
def test_it_is_left_out_and_said_so(tmp_path: Path, budget: float, context: int, why: str) -> None:
    servers = Played(RIG)
    end = searched(tmp_path, servers, budget, context)
    assert servers.deep == []
    assert end.shallow.startswith(why)
    assert why in " ".join(printed(end).split())
    assert result_json(end)["depth"] == {"left_out": end.shallow}


class _KilledError(BaseException):
    """The program is gone."""


def test_killed_between_the_two_it_measures_the_other_one(tmp_path: Path) -> None:
    servers = Played(RIG)

    def before() -> None:
        if servers.deep:
            raise _KilledError

    servers.before = before
    with pytest.raises(_KilledError):
        search_on(tmp_path, servers, 900, climbs=True, context=CONTEXT)
    servers.before, servers.running = (lambda: None), False
    end = searched(tmp_path, servers)
    assert end.found
    assert sorted(str(each) for each, _ in servers.deep) == sorted(map(str, (start_of(RIG), end.found)))


def deeper(purpose: str, before: Deep, after: Deep) -> Deeper:
    return Deeper(Objective.model_validate({"purpose": purpose}), before, after)


def test_what_counts_there_is_what_the_aim_hangs_on() -> None:
    """Decode is 5 % faster, and a prompt is read at a third of the speed."""
    before = Deep(keys={}, depth=30_000, prefill=900.0, decode=(40.0, 40.1, 39.9))
    after = Deep(keys={"ubatch": 64}, depth=30_000, prefill=300.0, decode=(42.0, 42.1, 41.9))
    said = {each: deeper(each, before, after).judgement for each in ("turn", "efficiency", "decode", "throughput")}
    assert {each: judged.verdict for each, judged in said.items() if judged} == {
        "turn": "slower",
        "efficiency": "slower",
        "decode": "faster",
        "throughput": "faster",
    }


def test_a_line_of_a_file_is_read_within_bounds(tmp_path: Path) -> None:
    searched(tmp_path, Played(RIG))
    (path,) = searches(tmp_path, "box", "chat")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    (one, _) = [each for each in lines if each["line"] == "deep"]
    assert isinstance(candidate_of(one["keys"]), Candidate)
    many = {**one, "decode": [1.0] * 17}
    with pytest.raises(ValueError, match="at most 16"):
        Deep.model_validate_json(json.dumps(many))
