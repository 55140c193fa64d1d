"""How fast a server decodes after a switch, beside what was known: a scripted server tells the times here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.serve.transaction import same
from tests.support.proving import Scripted, prove, says, scripted
from tests.support.rigs import cpu_rig, gpu_rig, planned


@pytest.fixture
def server() -> Iterator[Scripted]:
    with scripted() as made:
        yield made


def at(speed: float, tokens: int = 64) -> dict[str, float]:
    """The times of an answer."""
    return {"predicted_n": tokens, "predicted_ms": 1000 * (tokens - 1) / speed}


def known(folder: Path, *speeds: float, **other: object) -> None:
    """Speeds of the model that is asked, the newest last."""
    entries = [{"same": "a", "drafts": False, "rate": speed} | other for speed in speeds]
    (folder / "record").write_text(json.dumps(entries))


def kept(folder: Path) -> list[tuple[str, float]] | None:
    """What is known from now on."""
    out = folder / "out"
    return [(each["same"], each["rate"]) for each in json.loads(out.read_text())] if out.exists() else None


def test_a_second_prompt_says_how_fast_it_is(server: Scripted, tmp_path: Path) -> None:
    """The first finds the model on the disk. How long the second is, the first says."""
    says(server)
    server.timings = [at(5, tokens=8), at(20, tokens=15)]
    assert prove(server, tmp_path) == (0, "")
    assert [each["max_tokens"] for each in server.told] == [8, 15]
    assert kept(tmp_path) == [("a", 20)]


@pytest.mark.parametrize(("speed", "tokens"), [(0.5, 8), (1000, 128)])
def test_it_is_bounded_on_slow_and_on_fast_hosts(server: Scripted, tmp_path: Path, speed: float, tokens: int) -> None:
    says(server)
    server.timings = [at(speed, tokens=8)]
    assert prove(server, tmp_path) == (0, "")
    assert [each["max_tokens"] for each in server.told] == [8, tokens]


@pytest.mark.parametrize(
    "timings", [{}, at(10, tokens=7), at(500, tokens=64)], ids=["no times", "too few tokens", "too short a time"]
)
def test_what_says_too_little_is_neither_judged_nor_kept(
    server: Scripted, tmp_path: Path, timings: dict[str, float]
) -> None:
    says(server, timings=timings)
    known(tmp_path, 1000)
    assert prove(server, tmp_path) == (0, "")
    assert kept(tmp_path) is None


SLOW = (
    "it decodes 13.9 tokens/s, and the same model decoded 20.0 here before: `expect: {decode: 13.9}` or "
    "`herd up --retry` has it so",
    "it decodes 14.1 tokens/s",
)


def test_one_that_is_slower_than_before_has_three_tries(server: Scripted, tmp_path: Path) -> None:
    says(server)
    known(tmp_path, 20)
    server.timings = [at(19, tokens=8), at(2), at(13.9), at(9)]
    assert prove(server, tmp_path) == (2, SLOW[0])
    assert len(server.told) == 4
    assert kept(tmp_path) is None
    assert float((tmp_path / "out.slow").read_text()) == pytest.approx(13.9)
    server.timings = [at(19, tokens=8), at(2), at(14.1), at(9)]
    assert prove(server, tmp_path) == (0, "")
    assert len(server.timings) == 1
    assert kept(tmp_path) == [("a", 20), ("a", 14.1)]


@pytest.mark.parametrize(
    ("before", "taken"),
    [
        ([20, 20, 20, 20, 100], True),
        ([20, 20, 100, 100, 100], False),
        ([100, 20], True),
        ([*[100] * 9, 20, 20, 20], True),
        ([], True),
    ],
    ids=["a lucky one", "no luck", "one of two", "long ago", "nothing known"],
)
def test_no_single_measurement_is_what_it_is_held_to(
    server: Scripted, tmp_path: Path, before: list[float], taken: bool
) -> None:
    says(server)
    known(tmp_path, *before)
    server.timings = [at(16)]
    assert prove(server, tmp_path)[0] == (0 if taken else 2)


def test_another_model_or_one_that_drafted_is_no_measure(server: Scripted, tmp_path: Path) -> None:
    says(server)
    server.timings = [at(5)]
    known(tmp_path, 100, same="b")
    assert prove(server, tmp_path) == (0, "")
    assert kept(tmp_path) == [("b", 100), ("a", 5)]
    known(tmp_path, 100, drafts=True)
    assert prove(server, tmp_path) == (0, "")
    # One that drafts is held to one that does not: it is to be no slower for it.
    server.timings = [at(5) | {"draft_n": 40, "draft_n_accepted": 3}]
    known(tmp_path, 100)
    assert prove(server, tmp_path, drafts=16)[0] == 2


@pytest.mark.parametrize("in_flight", [[1], [0, 2]], ids=["before", "meanwhile"])
def test_one_that_answers_others_is_not_judged(server: Scripted, tmp_path: Path, in_flight: list[int]) -> None:
    says(server)
    known(tmp_path, 100)
    server.timings, server.in_flight = [at(5, tokens=8)], in_flight
    assert prove(server, tmp_path) == (0, "")
    assert kept(tmp_path) is None


def test_what_is_measured_on_a_host_that_computes_for_others_does_not_count(server: Scripted, tmp_path: Path) -> None:
    """As while it builds an engine; a processor that is taken away for moments has its tries."""
    says(server)
    known(tmp_path, 100)
    server.timings, server.others = [at(5)], [21]
    assert prove(server, tmp_path) == (0, "")
    assert kept(tmp_path) is None
    assert len(server.told) == 4
    server.timings, server.others = [at(5), at(5), at(90)], [90, 90, 19]
    assert prove(server, tmp_path) == (0, "")
    assert kept(tmp_path) == [("a", 100), ("a", 90)]


def test_what_the_server_itself_computes_is_not_for_others(server: Scripted, tmp_path: Path) -> None:
    says(server)
    server.timings, server.others, server.own = [at(5)], [15], 85
    assert prove(server, tmp_path) == (0, "")
    assert kept(tmp_path) == [("a", 5)]


def test_what_is_expected_beats_what_was_measured(server: Scripted, tmp_path: Path) -> None:
    """That is the way to say that slower will do; and what was measured before is so no more."""
    says(server)
    known(tmp_path, 100)
    server.timings = [at(5)]
    assert prove(server, tmp_path, floor=4) == (0, "")
    assert kept(tmp_path) == [("a", 5)]
    server.timings = [at(95)]
    assert prove(server, tmp_path, floor=4) == (0, "")
    assert kept(tmp_path) == [("a", 100), ("a", 95)]


def test_where_any_speed_will_do_it_is_what_counts_from_now_on(server: Scripted, tmp_path: Path) -> None:
    """As for a try again that was asked for, and for a way back to an earlier release."""
    says(server)
    known(tmp_path, 100)
    server.timings = [at(5)]
    assert prove(server, tmp_path, how="any") == (0, "")
    assert kept(tmp_path) == [("a", 5)]


def test_what_served_here_before_is_not_measured_again(server: Scripted, tmp_path: Path) -> None:
    """A way back asks one prompt, where it is known how fast that server was: this is what counts from now on."""
    says(server)
    spec = "0123456789ab"
    server.timings = [at(5)]
    assert prove(server, tmp_path, spec=spec) == (0, "")
    (tmp_path / "out").rename(tmp_path / "record")
    server.timings = [at(20)]
    assert prove(server, tmp_path, spec="another") == (0, "")
    (tmp_path / "out").rename(tmp_path / "record")
    server.told.clear()
    assert prove(server, tmp_path, how="any", spec=spec) == (0, "")
    assert [each["max_tokens"] for each in server.told] == [8]
    assert kept(tmp_path) == [("a", 5)]
    # One that never served here is measured; so is one that drafts, beside the same one that did not.
    for other in ({"spec": "a third"}, {"spec": spec, "drafts": 16}):
        server.told.clear()
        server.timings = [each | {"draft_n": 40, "draft_n_accepted": 3} for each in (at(20, tokens=8), at(20))]
        assert prove(server, tmp_path, how="any", **other) == (0, "")
        assert len(server.told) == 2


def test_a_way_back_is_held_to_what_is_expected(server: Scripted, tmp_path: Path) -> None:
    says(server)
    known(tmp_path, 20, spec="0123456789ab")
    server.timings = [at(5)]
    code, why = prove(server, tmp_path, how="any", spec="0123456789ab", floor=10)
    assert (code, why) == (2, "it decodes 5.0 tokens/s, and `expect` allows no less than 10")


def test_what_is_started_as_before_is_not_judged(server: Scripted, tmp_path: Path) -> None:
    says(server)
    known(tmp_path, 100)
    server.timings = [at(5)]
    assert prove(server, tmp_path, how="") == (0, "")
    assert kept(tmp_path) is None


@pytest.mark.parametrize(("before_now", "slow"), [(19.0, None), (14.0, [("b", 7), ("a", 14.0)])])
def test_what_was_put_back_says_whether_it_is_the_host(
    server: Scripted, tmp_path: Path, before_now: float, slow: list[tuple[str, float]] | None
) -> None:
    """It was put back for one that decoded 13 tokens/s: is it faster itself?"""
    says(server)
    (tmp_path / "record").write_text(
        json.dumps([{"same": s, "drafts": False, "rate": r} for s, r in (("a", 20), ("b", 7))])
    )
    (tmp_path / "out.slow").write_text("13")
    server.timings = [at(before_now)]
    assert prove(server, tmp_path, how="back") == (0, "")
    assert kept(tmp_path) == slow


def test_a_second_prompt_that_fails_is_a_failure(server: Scripted, tmp_path: Path) -> None:
    says(server)
    server.timings, server.later = [at(10, tokens=8)], 500
    code, why = prove(server, tmp_path)
    assert (code, why[:36]) == (1, "a prompt is answered with HTTP 500: ")


@pytest.mark.parametrize("timings", [{"predicted_n": "many"}, {"predicted_ms": []}, [], None])
def test_times_that_are_none_are_no_answer(server: Scripted, tmp_path: Path, timings: object) -> None:
    says(server, timings=timings)
    assert prove(server, tmp_path) == (1, "a prompt is answered with what is no chat completion")


def test_the_same_model_has_one_speed() -> None:
    chat, drafter = planned(cpu_rig()).instances
    context = planned(cpu_rig(), {"instances/chat/context": 512}).instances[0]
    assert same(chat) == same(context) != same(drafter)
    small, *_ = planned(gpu_rig()).instances
    assert same(small) != same(small.model_copy(update={"server": small.server.model_copy(update={"gpus": None})}))


@pytest.mark.parametrize(("requests", "code"), [(1, 0), (0, 2)])
def test_what_runs_beside_it_may_have_its_gpu(server: Scripted, tmp_path: Path, requests: int, code: int) -> None:
    says(server)
    known(tmp_path, 100)
    server.timings = [at(10)]
    with scripted() as other:
        other.in_flight = [requests]
        how = tmp_path / "beside"
        how.write_text(json.dumps({"metrics": f"http://127.0.0.1:{other.server_port}/metrics", "key": None}))
        assert prove(server, tmp_path, beside=how)[0] == code
    assert kept(tmp_path) is None
