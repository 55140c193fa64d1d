"""A search that may try coarser caches, on a host that plays a law: each is judged before it leads, and once."""

from __future__ import annotations

import json
import random
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.tune import start_of
from benchmarks.tune_law import LawRig
from llamaherd.cli.tune import SearchLines
from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.tune.candidate import KV, Candidate, Limits, Objective, Outcome, Precision
from llamaherd.measure.tune.final_measurements import standings, steps
from llamaherd.measure.tune.journal import TriedCandidate, candidate_of, read_search, searches
from llamaherd.measure.tune.result import pareto_front, result_json, search_result
from llamaherd.measure.tune.show import print_result
from tests.support.sample import ALL
from tests.tune.played import JUDGING, Played, search_on
from tests.tune.test_tuning import keys_of, only

LIMITS = Limits(kld=0.005, same_top=99)
CHEAP = {"q8_0": 0.001, "q4_0": 0.004}
DEAR = {"q8_0": 0.001, "q4_0": 0.02}


class _KilledError(BaseException):
    """The program is gone."""


def shown(folder: Path, rig: LawRig) -> str:
    text = StringIO()
    print_result(search_result(only(folder), start_of(rig)), "chat", Console(file=text, width=250))
    return text.getvalue()


def keys(trial: TriedCandidate) -> Candidate:
    return candidate_of(trial.keys)


@pytest.mark.parametrize(
    ("costs", "kv", "judged"),
    [(CHEAP, "q4_0", ["q8_0", "q4_0"]), (DEAR, "q8_0", ["q8_0", "q4_0"]), ({}, "f16", ["q8_0"])],
    ids=["both pass", "one costs too much", "nothing can be judged"],
)
def test_only_a_cache_that_keeps_to_the_limits_is_proposed(
    tmp_path: Path, costs: dict[str, float], kv: str, judged: list[str]
) -> None:
    servers = Played(LawRig.drawn(0), costs=costs)
    found, tuning = search_on(tmp_path, servers, 900, limits=LIMITS)
    assert found.keys[KV] == kv
    assert servers.judged == judged
    last = {keys(trial)[KV] for trial in tuning.journal.search.trials if trial.round is not None}
    assert last <= {"f16", kv, *(each for each in judged if costs.get(each, 1.0) <= LIMITS.kld)}


def test_without_limits_nobody_is_asked(tmp_path: Path) -> None:
    servers = Played(LawRig.drawn(0), costs=CHEAP)
    search_on(tmp_path, servers, 300)
    assert servers.judged == []
    assert '"judged"' not in searches(tmp_path, "box", "chat")[0].read_text()


def test_one_that_costs_too_much_is_not_measured_any_more(tmp_path: Path) -> None:
    servers = Played(LawRig.drawn(0))
    search_on(tmp_path, servers, 900, limits=LIMITS)
    tried = [each[KV] for each in servers.started]
    assert tried.count("q8_0") <= 3, "before it led, and while it did"
    refused = [trial for trial in only(tmp_path).trials if trial.why == "quality"]
    assert refused
    assert {trial.seconds for trial in refused} == {0.0}


def test_the_time_to_judge_is_of_the_budget(tmp_path: Path) -> None:
    servers = Played(LawRig.drawn(0), costs=CHEAP)
    _, tuning = search_on(tmp_path, servers, 600, limits=LIMITS)
    search = tuning.journal.search
    assert search.seconds == pytest.approx(sum(each.seconds for each in search.trials) + 2 * JUDGING)
    assert servers.now < 600 + JUDGING + max(trial.seconds for trial in search.trials)


def test_killed_twenty_times_it_judges_nothing_twice(tmp_path: Path) -> None:
    servers, lot, kills = Played(LawRig.drawn(0), costs=DEAR), random.Random(3), 0
    while kills < 20:
        left = lot.randint(1, 50)

        def before() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise _KilledError

        servers.before = before
        try:
            search_on(tmp_path, servers, 900, limits=LIMITS)
        except _KilledError:
            kills += 1
            servers.running = False
        else:
            break
    servers.before = lambda: None
    search_on(tmp_path, servers, 900, limits=LIMITS)
    assert kills > 5
    assert sorted(servers.judged) == ["q4_0", "q8_0"]
    seen = [(keys(trial), trial.round) for trial in only(tmp_path).trials]
    assert len(set(seen)) == len(seen)


def test_killed_before_it_was_judged_it_is_judged_before_it_leads(tmp_path: Path) -> None:
    """Its speed is in the journal by then, and the walk would go on from it."""
    whole, _ = search_on(tmp_path / "whole", Played(LawRig.drawn(4, noise=0.0), costs=DEAR), 900, limits=LIMITS)
    servers, died = Played(LawRig.drawn(4, noise=0.0), costs=DEAR), list[str]()

    def once(kv: str) -> None:
        if kv not in died:
            died.append(kv)
            raise _KilledError

    servers.before_judging = once
    for _ in DEAR:
        with pytest.raises(_KilledError):
            search_on(tmp_path / "killed", servers, 900, limits=LIMITS)
    part, _ = search_on(tmp_path / "killed", servers, 900, limits=LIMITS)
    assert servers.judged == ["q8_0", "q4_0"]
    assert part.keys == whole.keys


def test_the_end_says_what_a_cache_costs_and_what_was_lost(tmp_path: Path) -> None:
    rig = LawRig.drawn(0)
    search_on(tmp_path, Played(rig, costs=DEAR), 900, limits=LIMITS)
    said = shown(tmp_path, rig)
    assert "lost too much quality: kv=q4_0 vs f16: mean KLD 0.02000 ± 0.00010, same top 99.50 ± 0.10 %" in said
    assert "2 x 8,192 tokens, where mean KLD up to 0.005, same top from 99 % is declared" in said
    assert "\nkv=q8_0 vs f16: mean KLD 0.00100 ± 0.00010, same top 99.50 ± 0.10 %, 2 x 8,192 tokens\n" in said
    data: dict[str, Any] = json.loads(json.dumps(result_json(search_result(only(tmp_path), start_of(rig)))))
    assert data["standings"][0]["keys"][KV] == "q8_0"
    (passed,) = data["judged"]
    assert (passed["kv"], passed["quality"]["kld"]) == ("q8_0", {"value": 0.001, "error": 0.0001})
    assert any("mean KLD 0.02000" in each["says"] for each in data["failures"])


@pytest.mark.parametrize("costs", [CHEAP, DEAR, {}], ids=["both pass", "one costs too much", "nothing can be judged"])
@pytest.mark.parametrize("seed", [0, 3] if ALL else [0])
def test_no_speed_of_a_coarser_cache_stands_without_what_it_costs(
    tmp_path: Path, costs: dict[str, float], seed: int
) -> None:
    rig = LawRig.drawn(seed)
    search_on(tmp_path, Played(rig, costs=costs), 900, limits=LIMITS)
    search = only(tmp_path)
    for candidate in [
        *(each.candidate for each in standings(search, start_of(rig))),
        *(keys(search.trials[each.number - 1]) for each in steps(search)),
        *(each.candidate for each in pareto_front(search).candidates),
        *(keys(each) for each in search.measurements if each.figures.decode),
        keys_of(tmp_path),
    ]:
        cost = search.cost(candidate)
        assert cost is None or (cost.judged and cost.judged.passes(LIMITS))
    said = shown(tmp_path, rig)
    for kv in ("q8_0", "q4_0"):
        speeds = [line for line in said.splitlines() if f"kv={kv}" in line and "s a turn" in line]
        below = f"\nkv={kv} vs f16: mean KLD" in said
        assert all("mean KLD" in line or below for line in speeds)


def test_while_it_goes_on_no_speed_is_said_before_the_cost_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search_on(tmp_path, Played(LawRig.drawn(0), costs=DEAR), 900, limits=LIMITS)
    search, lines = only(tmp_path), SearchLines(Objective())
    coarse = Candidate.of({KV: "q8_0"})
    lines.began(1, 60)
    lines.ended(coarse, Outcome(50.0), 60.0, None)
    cost = search.cost(coarse)
    assert cost
    lines.ended(coarse, Outcome(50.0), 60.0, type(cost)(Precision("q8_0"), None))
    lines.ended(coarse, Outcome(50.0), 50.0, cost)
    lines.ended(coarse, Outcome(None, why="quality", says="it costs"), 50.0, cost)
    plain, unknown, known, lost = capsys.readouterr().err.splitlines()
    assert "72.00 s a turn" in plain
    assert ("a turn" in unknown, "kv=q8_0 is not judged" in unknown) == (False, True)
    assert "72.00 s a turn *" in known
    assert "mean KLD 0.00100 ± 0.00010" in known
    assert ("a turn" in lost, "mean KLD" in lost) == (False, True)


def test_a_journal_that_says_it_is_judged_by_nothing_is_none(tmp_path: Path) -> None:
    search_on(tmp_path, Played(LawRig.drawn(0), costs=CHEAP), 300, limits=LIMITS)
    (path,) = searches(tmp_path, "box", "chat")
    path.write_bytes(path.read_bytes() + b'{"line": "judged", "kv": "q8_0", "quality": {"kld": "low"}}\n')
    with pytest.raises(UserError, match="is no line of a search"):
        read_search(path)
