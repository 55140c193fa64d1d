"""How fast a server decodes after a switch, compared with known speeds: a scripted server reports the times here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.serve.onhost.speed import GOOD, Proof, parse_speeds
from tests.support.proofs import proof
from tests.support.proving import Scripted, says, scripted


@pytest.fixture
def server() -> Iterator[Scripted]:
    with scripted() as made:
        yield made


def at(speed: float, tokens: int = 64) -> dict[str, float]:
    """Return the times of a response."""
    return {"predicted_n": tokens, "predicted_ms": 1000 * (tokens - 1) / speed}


def known(*speeds: float, **other: object) -> str:
    """Return the file of known speeds of the scripted model, the newest last."""
    return json.dumps([{"same": "a", "drafts": False, "rate": speed} | other for speed in speeds])


def kept(found: Proof) -> list[tuple[str | None, float]] | None:
    """Return what is known from now on."""
    assert found.outcome == "good"
    return [(each.same, each.rate) for each in parse_speeds(found.speeds)] if found.speeds else None


def test_a_second_prompt_measures_the_speed(server: Scripted, tmp_path: Path) -> None:
    """The first finds the model on the disk. Its speed decides how long the second is."""
    says(server)
    server.timings = [at(5, tokens=8), at(20, tokens=15)]
    assert kept(proof(server, tmp_path)) == [("a", 20)]
    assert [each["max_tokens"] for each in server.told] == [8, 15]


@pytest.mark.parametrize(("speed", "tokens"), [(0.5, 8), (1000, 128)])
def test_it_is_bounded_on_slow_and_on_fast_hosts(server: Scripted, tmp_path: Path, speed: float, tokens: int) -> None:
    says(server)
    server.timings = [at(speed, tokens=8)]
    assert proof(server, tmp_path).outcome == "good"
    assert [each["max_tokens"] for each in server.told] == [8, tokens]


@pytest.mark.parametrize(
    "timings", [{}, at(10, tokens=7), at(500, tokens=64)], ids=["no times", "too few tokens", "too short a time"]
)
def test_what_measures_too_little_is_neither_judged_nor_kept(
    server: Scripted, tmp_path: Path, timings: dict[str, float]
) -> None:
    says(server, timings=timings)
    assert proof(server, tmp_path, speeds=known(1000)) == GOOD


SLOW = (
    "it decodes 13.9 tokens/s, and the same model decoded 20.0 here before: `expect: {decode: 13.9}` or "
    "`herd up --retry` has it so"
)


def test_a_server_that_is_slower_than_before_has_three_tries(server: Scripted, tmp_path: Path) -> None:
    says(server)
    server.timings = [at(19, tokens=8), at(2), at(13.9), at(9)]
    found = proof(server, tmp_path, speeds=known(20))
    assert (found.outcome, found.why, found.speeds) == ("undeclared", SLOW, "")
    assert found.slow == pytest.approx(13.9)
    assert len(server.told) == 4
    server.timings = [at(19, tokens=8), at(2), at(14.1), at(9)]
    assert kept(proof(server, tmp_path, speeds=known(20))) == [("a", 20), ("a", 14.1)]
    assert len(server.timings) == 1


@pytest.mark.parametrize(
    ("before", "accepted"),
    [
        ([20, 20, 20, 20, 100], True),
        ([20, 20, 100, 100, 100], False),
        ([100, 20], True),
        ([*[100] * 9, 20, 20, 20], True),
        ([], True),
    ],
    ids=["one fast", "most fast", "one of two", "long ago", "nothing known"],
)
def test_no_single_measurement_decides(server: Scripted, tmp_path: Path, before: list[float], accepted: bool) -> None:
    says(server)
    server.timings = [at(16)]
    assert proof(server, tmp_path, speeds=known(*before)).outcome == ("good" if accepted else "undeclared")


def test_another_model_or_one_that_drafted_is_not_compared(server: Scripted, tmp_path: Path) -> None:
    says(server)
    server.timings = [at(5)]
    assert kept(proof(server, tmp_path, speeds=known(100, same="b"))) == [("b", 100), ("a", 5)]
    assert proof(server, tmp_path, speeds=known(100, drafts=True)).outcome == "good"
    # One that drafts is compared with one that does not: drafting is to make it no slower.
    server.timings = [at(5) | {"draft_n": 40, "draft_n_accepted": 3}]
    assert proof(server, tmp_path, speeds=known(100), drafts=16).outcome == "undeclared"


def test_a_server_without_an_identity_is_not_judged(server: Scripted, tmp_path: Path) -> None:
    says(server)
    server.timings = [at(5)]
    assert proof(server, tmp_path, speeds=known(100), same=None) == GOOD


@pytest.mark.parametrize("in_flight", [[1], [0, 2]], ids=["before", "meanwhile"])
def test_a_server_that_responds_to_others_is_not_judged(server: Scripted, tmp_path: Path, in_flight: list[int]) -> None:
    says(server)
    server.timings, server.in_flight = [at(5, tokens=8)], in_flight
    assert proof(server, tmp_path, speeds=known(100)) == GOOD


def test_what_is_measured_on_a_host_that_computes_for_others_does_not_count(server: Scripted, tmp_path: Path) -> None:
    """As while it builds an engine; a processor that is taken away for moments has its tries."""
    says(server)
    server.timings, server.others = [at(5)], [21]
    assert proof(server, tmp_path, speeds=known(100)) == GOOD
    assert len(server.told) == 4
    server.timings, server.others = [at(5), at(5), at(90)], [90, 90, 19]
    assert kept(proof(server, tmp_path, speeds=known(100))) == [("a", 100), ("a", 90)]


def test_what_the_server_itself_computes_is_not_for_others(server: Scripted, tmp_path: Path) -> None:
    says(server)
    server.timings, server.others, server.own = [at(5)], [15], 85
    assert kept(proof(server, tmp_path)) == [("a", 5)]


def test_what_is_expected_beats_what_was_measured(server: Scripted, tmp_path: Path) -> None:
    """That is how to declare that slower will do; and what was measured before is outdated then."""
    says(server)
    server.timings = [at(5)]
    assert kept(proof(server, tmp_path, speeds=known(100), floor=4)) == [("a", 5)]
    server.timings = [at(95)]
    assert kept(proof(server, tmp_path, speeds=known(100), floor=4)) == [("a", 100), ("a", 95)]


def test_where_any_speed_will_do_it_is_what_counts_from_now_on(server: Scripted, tmp_path: Path) -> None:
    """As for a retry, and for a rollback to an earlier release."""
    says(server)
    server.timings = [at(5)]
    assert kept(proof(server, tmp_path, "any", speeds=known(100))) == [("a", 5)]


def test_what_served_here_before_is_not_measured_again(server: Scripted, tmp_path: Path) -> None:
    """A rollback sends one prompt, where it is known how fast that server was: this is what counts from now on."""
    says(server)
    spec = "0123456789ab"
    server.timings = [at(5)]
    first = proof(server, tmp_path, spec=spec).speeds
    server.timings = [at(20)]
    second = proof(server, tmp_path, speeds=first, spec="another").speeds
    server.told.clear()
    assert kept(proof(server, tmp_path, "any", speeds=second, spec=spec)) == [("a", 5)]
    assert [each["max_tokens"] for each in server.told] == [8]
    # One that never served here is measured; so is one that drafts, where the same one did not.
    for other in ({"spec": "a third"}, {"spec": spec, "drafts": 16}):
        server.told.clear()
        server.timings = [each | {"draft_n": 40, "draft_n_accepted": 3} for each in (at(20, tokens=8), at(20))]
        assert proof(server, tmp_path, "any", speeds=second, **other).outcome == "good"
        assert len(server.told) == 2


def test_a_rollback_is_compared_with_what_is_expected(server: Scripted, tmp_path: Path) -> None:
    says(server)
    server.timings = [at(5)]
    speeds = known(20, spec="0123456789ab")
    found = proof(server, tmp_path, "any", speeds=speeds, spec="0123456789ab", floor=10)
    assert found == Proof("undeclared", "it decodes 5.0 tokens/s, and `expect` allows no less than 10")


@pytest.mark.parametrize("how", ["", "beside"])
def test_what_is_started_as_before_or_as_a_candidate_is_not_judged(server: Scripted, tmp_path: Path, how: str) -> None:
    says(server)
    server.timings = [at(5)]
    assert proof(server, tmp_path, "" if not how else "beside", speeds=known(100)) == GOOD


@pytest.mark.parametrize(("before_now", "slow"), [(19.0, None), (14.0, [("b", 7), ("a", 14.0)])])
def test_a_restored_server_shows_whether_the_host_is_slow(
    server: Scripted, tmp_path: Path, before_now: float, slow: list[tuple[str, float]] | None
) -> None:
    """It was restored because the new one decoded 13 tokens/s: is it faster itself?"""
    says(server)
    speeds = json.dumps([{"same": s, "drafts": False, "rate": r} for s, r in (("a", 20), ("b", 7))])
    server.timings = [at(before_now)]
    assert kept(proof(server, tmp_path, "back", speeds=speeds, slow=13)) == slow
    assert proof(server, tmp_path, "back", speeds=speeds) == GOOD


def test_a_second_prompt_that_fails_is_a_failure(server: Scripted, tmp_path: Path) -> None:
    says(server)
    server.timings, server.later = [at(10, tokens=8)], 500
    found = proof(server, tmp_path)
    assert (found.outcome, found.why[:27]) == ("bad", "a prompt returns HTTP 500: ")


@pytest.mark.parametrize("timings", [{"predicted_n": "many"}, {"predicted_ms": []}, [], None])
def test_times_that_are_none_are_no_completion(server: Scripted, tmp_path: Path, timings: object) -> None:
    says(server, timings=timings)
    assert proof(server, tmp_path) == Proof("bad", "a prompt returns no chat completion")


@pytest.mark.parametrize(("requests", "outcome"), [(1, "good"), (0, "undeclared")])
def test_a_server_side_by_side_may_have_its_gpu(server: Scripted, tmp_path: Path, requests: int, outcome: str) -> None:
    says(server)
    server.timings = [at(10)]
    with scripted() as other:
        other.in_flight = [requests]
        question = {"metrics": f"http://127.0.0.1:{other.server_port}/metrics", "key": None}
        found = proof(server, tmp_path, speeds=known(100), other=question)
    assert (found.outcome, found.speeds) == (outcome, "")


@pytest.mark.parametrize("text", ["", "{", "{}", "7", '["a", {}, {"same": "a", "drafts": 1, "rate": 2}]', "[" * 10**5])
def test_a_damaged_file_of_speeds_contains_none(text: str) -> None:
    assert parse_speeds(text) == ()


def test_a_file_of_speeds_keeps_the_last_ones(server: Scripted, tmp_path: Path) -> None:
    says(server)
    server.timings = [at(5)]
    found = kept(proof(server, tmp_path, "any", speeds=known(*range(1, 30))))
    assert found == [("a", 5)]
    found = kept(proof(server, tmp_path, "any", speeds=known(*range(1, 30), same="b")))
    assert found == [*(("b", rate) for rate in range(11, 30)), ("a", 5)]
