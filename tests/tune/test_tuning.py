"""A whole search, on a host that plays the times of a law (`tests/tune/played.py`)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.tune import start_of
from benchmarks.tune_law import DRAFTED, KV, THREADS, UBATCH, LawRig
from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.client.http_client import Failure, StreamedResponse
from llamaherd.measure.client.requests import RequestSpec
from llamaherd.measure.tune.candidate import Candidate, Purpose
from llamaherd.measure.tune.final_measurements import standings, steps
from llamaherd.measure.tune.journal import (
    Found,
    Search,
    SearchJournal,
    candidate_of,
    found_by_twins,
    read_search,
    searches,
)
from llamaherd.measure.tune.journal import keys_of as keys_of_candidate
from llamaherd.measure.tune.result import result_json, search_result, yaml_lines
from tests.tune.played import BEGAN, LOAD, Played, head_of, search_on


class _KilledError(BaseException):
    """The program is gone."""


def only(folder: Path) -> Search:
    (path,) = searches(folder, "box", "chat")
    return read_search(path)


def failed(folder: Path) -> Mapping[str, int]:
    """Return the number of failed candidates by their reason."""
    counts: dict[str, int] = result_json(search_result(only(folder)))["failed"]
    return counts


def keys_of(folder: Path) -> Candidate:
    found = only(folder).found
    assert found
    return candidate_of(found.keys)


def test_it_comes_to_something_that_is_better(tmp_path: Path) -> None:
    rig = LawRig.drawn(1)
    found, tuning = search_on(tmp_path, Played(rig))
    chosen = candidate_of(found.keys)
    assert rig.score(chosen) > 0.95 * rig.best()
    best = tuning.standings()[0]
    assert best.judgement
    assert (best.candidate, best.judgement.verdict) == (chosen, "faster")
    assert best.ratio
    assert best.ratio.low
    assert best.ratio.low < rig.score(chosen) / rig.score(start_of(rig)) * 1.05
    said = result_json(search_result(only(tmp_path)))
    assert said["found"] == found.keys
    assert "threads" in said["changes"]


def test_the_declared_one_is_first_and_comes_back_in_every_round(tmp_path: Path) -> None:
    servers = Played(LawRig.drawn(1))
    search_on(tmp_path, servers)
    assert servers.started[0] == start_of(servers.rig)
    last = [trial for trial in only(tmp_path).trials if trial.round is not None]
    declared = [trial.round for trial in last if candidate_of(trial.keys) == start_of(servers.rig)]
    assert sorted(declared, key=str) == [0, 1, 2]
    assert not servers.running


def test_where_all_are_alike_nothing_is_changed(tmp_path: Path) -> None:
    class Flat(LawRig):
        def decode(self, _candidate: Candidate) -> float:
            return 50.0

        def prefill(self, _candidate: Candidate) -> float:
            return 800.0

    rig = Flat(**LawRig.drawn(2).__dict__)
    found, _ = search_on(tmp_path, Played(rig))
    assert candidate_of(found.keys) == start_of(rig)
    assert yaml_lines(search_result(only(tmp_path))) == ""


class Terse(Played):
    """A model that ends its answers after nine tokens, unless it is told to go on."""

    def request(self, wanted: RequestSpec) -> StreamedResponse | Failure:
        continues = wanted.more.get("ignore_eos")
        return super().request(wanted if continues else replace(wanted, tokens=min(9, wanted.tokens)))


@pytest.mark.parametrize("purpose", ["turn", "decode"])
def test_answers_that_end_too_soon_go_on_past_their_ends(tmp_path: Path, purpose: Purpose) -> None:
    found, _ = search_on(tmp_path / "terse", Terse(LawRig.drawn(1)), purpose=purpose)
    search = only(tmp_path / "terse")
    assert not [trial for trial in search.trials if trial.why == "answer"]
    assert search.sizes
    assert search.sizes.past_end
    assert candidate_of(found.keys) != start_of(LawRig.drawn(1))
    search_on(tmp_path / "usual", Played(LawRig.drawn(1)), purpose=purpose)
    usual = only(tmp_path / "usual").sizes
    assert usual
    assert not usual.past_end


@pytest.mark.parametrize("budget", [200, 400, 1200])
def test_it_keeps_to_its_budget(tmp_path: Path, budget: float) -> None:
    servers = Played(LawRig.drawn(1))
    _, tuning = search_on(tmp_path, servers, budget)
    trials = tuning.journal.search.trials
    assert servers.now < budget + max(trial.seconds for trial in trials)
    assert len(trials) >= 6


def test_a_budget_that_ends_within_the_pass_is_told(tmp_path: Path) -> None:
    short, _ = search_on(tmp_path / "short", Played(LawRig.drawn(1)), 100)
    assert "a candidate takes about " in short.cut
    (note,) = search_result(only(tmp_path / "short")).notes
    assert note.startswith("not every key was tried: a candidate takes about ")
    long, _ = search_on(tmp_path / "long", Played(LawRig.drawn(1)), 1200)
    assert long.cut == ""
    assert search_result(only(tmp_path / "long")).notes == ()


class Slow(Played):
    """What is declared has all experts in RAM and one slow thread: all others are many times faster."""

    def request(self, wanted: RequestSpec) -> StreamedResponse | Failure:
        before, found = self.now, super().request(wanted)
        if self.placed == start_of(self.rig):
            self.now += SLOWER * (self.now - before)
            found = slowed(found, 1 + SLOWER)
        return found


SLOWER = 4
"""How many times as long again the declared server takes."""


def slowed(found: StreamedResponse | Failure, times: float) -> StreamedResponse | Failure:
    """An answer that took so many times as long."""
    assert isinstance(found, StreamedResponse)
    assert found.timings
    prompt_ms, predicted_ms = found.timings.prompt_ms, found.timings.predicted_ms
    assert prompt_ms
    assert predicted_ms
    timings = replace(found.timings, prompt_ms=times * prompt_ms, predicted_ms=times * predicted_ms)
    return replace(found, timings=timings)


@pytest.mark.parametrize("budget", [300, 600])
def test_where_what_is_declared_is_slow_the_next_step_is_tried_and_proposed(tmp_path: Path, budget: float) -> None:
    servers = Slow(LawRig.drawn(1))
    found, tuning = search_on(tmp_path, servers, budget)
    search = tuning.journal.search
    first = next(each for each in search.trials if candidate_of(each.keys) == start_of(servers.rig))
    assert first.seconds > 3 * max(each.seconds for each in search.trials[1:] if each.round is None)
    assert len(search.known) >= 2
    assert candidate_of(found.keys) != start_of(servers.rig)
    assert servers.now < budget + first.seconds


def test_a_budget_that_one_candidate_takes_still_tries_the_next_one(tmp_path: Path) -> None:
    servers = Slow(LawRig.drawn(1))
    search_on(tmp_path, servers, 120)
    first, second = only(tmp_path).trials
    assert second.seconds < first.seconds / 3
    assert first.seconds + second.seconds > 120


def test_killed_twenty_times_it_measures_nothing_twice(tmp_path: Path) -> None:
    rig = LawRig.drawn(5)
    servers, lot, kills = Played(rig), random.Random(7), 0

    while kills < 20:
        left = lot.randint(1, 60)

        def before() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise _KilledError

        servers.before = before
        try:
            search_on(tmp_path, servers, 900)
        except _KilledError:
            kills += 1
            servers.running = False
        else:
            break
    assert kills == 20
    servers.before = lambda: None
    search_on(tmp_path, servers, 900)
    search = only(tmp_path)
    assert rig.score(keys_of(tmp_path)) > 0.93 * rig.best()
    seen = [(candidate_of(trial.keys), trial.round) for trial in search.trials]
    assert len(set(seen)) == len(seen)
    assert len(servers.started) <= len(seen) + 20


def test_without_noise_one_that_was_killed_comes_to_the_same(tmp_path: Path) -> None:
    rig = LawRig.drawn(4, noise=0.0)
    whole, _ = search_on(tmp_path / "whole", Played(rig))
    servers = Played(rig)

    def before() -> None:
        if len(servers.started) == 11:
            raise _KilledError

    servers.before = before
    with pytest.raises(_KilledError):
        search_on(tmp_path / "killed", servers)
    servers.before, servers.running = (lambda: None), False
    part, _ = search_on(tmp_path / "killed", servers)
    assert part.keys == whole.keys


def test_a_server_that_does_not_start_ends_nothing(tmp_path: Path) -> None:
    rig = LawRig.drawn(1)

    def fails(candidate: Candidate) -> str | None:
        return "error: invalid argument" if candidate[DRAFTED] else None

    found, _ = search_on(tmp_path, Played(rig, fails=fails))
    assert candidate_of(found.keys)[DRAFTED] is None
    assert failed(tmp_path)["load"] > 1


def test_where_the_declared_one_does_not_start_the_best_one_is_taken(tmp_path: Path) -> None:
    rig = LawRig.drawn(1)

    def fails(candidate: Candidate) -> str | None:
        return "it ended" if candidate[THREADS] == rig.cores else None

    found, _ = search_on(tmp_path, Played(rig, fails=fails))
    assert candidate_of(found.keys)[THREADS] != rig.cores
    assert standings(only(tmp_path), start_of(rig))


def test_one_that_was_told_to_draft_and_does_not_is_no_candidate(tmp_path: Path) -> None:
    found, _ = search_on(tmp_path, Played(LawRig.drawn(2), drafts=False))
    assert candidate_of(found.keys)[DRAFTED] is None
    assert set(failed(tmp_path)) == {"draft"}


def test_what_ran_out_of_memory_is_told(tmp_path: Path) -> None:
    rig = LawRig.drawn(1)

    def fails(candidate: Candidate) -> str | None:
        return "the system ended it for lack of RAM; killed" if candidate[UBATCH] == 4096 else None

    search_on(tmp_path, Played(rig, fails=fails))
    assert failed(tmp_path)["memory"] >= 1


def test_steps_say_what_each_gave(tmp_path: Path) -> None:
    rig = LawRig.drawn(1)
    search_on(tmp_path, Played(rig))
    found = list(steps(only(tmp_path)))
    assert all(step.gain > 0 for step in found)
    assert found[0].keys


def test_several_at_once(tmp_path: Path) -> None:
    rig = LawRig.drawn(1)
    found, _ = search_on(tmp_path, Played(rig), purpose="throughput", budget=500)
    assert candidate_of(found.keys)[THREADS] != rig.cores
    assert all(trial.figures.total for trial in only(tmp_path).trials if not trial.why)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "it is empty"),
        (b"{}\n", "line 1 is no line of a search"),
        (b'{"line": "found", "keys": {}, "ended": "x"}\n', "line 1 does not belong there"),
        (b"[" * 100_000 + b"\n", "line 1 is no line of a search"),
    ],
    ids=["empty", "nothing", "the end first", "deep"],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "tune-20261124T150000Z.jsonl"
    path.write_bytes(data)
    with pytest.raises(UserError, match=says):
        read_search(path)


def test_a_line_that_was_cut_off_is_not_believed(tmp_path: Path) -> None:
    search_on(tmp_path, Played(LawRig.drawn(1)), 200)
    (path,) = searches(tmp_path, "box", "chat")
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert read_search(path).found is None
    assert len(read_search(path).trials) == len(only(tmp_path).trials) > 0
    assert LOAD > 0


def test_what_a_twin_has_found_is_tried_early(tmp_path: Path) -> None:
    rig = LawRig.drawn(6)
    found, tuning = search_on(tmp_path / "first", Played(rig))
    twin = Played(rig, seed=1)
    hint = candidate_of(found.keys)
    search_on(tmp_path / "second", twin, hints=(hint,))
    assert hint in twin.started[:3]
    assert tuning.journal.search.head.rig == "box"


@pytest.mark.parametrize(
    ("identity", "kind", "known"),
    [("1" * 16, "a" * 16, True), ("0" * 16, "a" * 16, False), ("1" * 16, "b" * 16, False)],
    ids=["of its kind", "the very same", "of another kind"],
)
def test_twins_are_of_one_kind(tmp_path: Path, identity: str, kind: str, known: bool) -> None:
    rig = LawRig.drawn(6)
    head = head_of(rig).model_copy(update={"rig": "other", "identity": identity, "kind": kind})
    with SearchJournal.begin(tmp_path, head) as journal:
        journal.add(Found(keys=keys_of_candidate(start_of(rig)), ended=BEGAN))
    (tmp_path / "other/chat/tune-20260101T000000Z.jsonl").write_bytes(b"no search\n")
    own = head_of(rig).model_copy(update={"kind": "a" * 16})
    assert found_by_twins(tmp_path, own) == ([start_of(rig)] if known else [])
    assert found_by_twins(tmp_path / "nowhere", own) == []


def test_the_best_one_goes_on_until_it_is_known(tmp_path: Path) -> None:
    class Slight(LawRig):
        def decode(self, candidate: Candidate) -> float:
            return 54.0 if candidate[KV] == "q8_0" else 50.0

        def prefill(self, _candidate: Candidate) -> float:
            return 4000.0

    rig = Slight(**LawRig.drawn(2, noise=0.08).__dict__)
    _, tuning = search_on(tmp_path, Played(rig, seed=2), 500)
    rounds = [trial.round for trial in tuning.journal.search.trials if trial.round is not None]
    more = [number for number in rounds if number > 2]
    assert more
    assert all(rounds.count(number) == 2 for number in set(more) - {max(more)})
    assert max(rounds) < 12
