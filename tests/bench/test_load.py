"""Several requests at once: what is asked of a real HTTP server, and what their runs say together, by exact times."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.bench.job import WorkloadContext
from llamaherd.measure.bench.workloads import Load, queue_note, total_lines, total_speed
from llamaherd.measure.client.http_client import Patience, Target
from llamaherd.measure.client.requests import Served, suite
from llamaherd.measure.results.result import Cell, Condition, Run
from tests.bench.made import result
from tests.bench.played import CHUNKED, END, answer, chunk, last
from tests.bench.site import CHAT, Reply, Site, page

PROMPTS = suite().prompts["code"]
USAGE = {"prompt_tokens": 50, "completion_tokens": 8}


def chatting(body: dict[str, Any]) -> Any:
    """Eight tokens, 10 ms apart."""
    assert body["stream"]
    return answer(8, 0.02, 0.01, usage=USAGE)


def loaded(load: Load, chat: Reply = chatting) -> tuple[Site, list[tuple[int, Run]]]:
    with Site({CHAT: chat}) as site:
        target, began = Target(site.url), time.monotonic()
        road = WorkloadContext(Served(target, target, CHAT, "gemma"), "session", lambda: time.monotonic() - began)
        return site, list(load.runs(road))


def test_as_many_are_asked_at_once_as_was_said() -> None:
    load = Load((1, 3), PROMPTS, seconds=0.6, tokens=8)
    site, runs = loaded(load)
    assert site.most_at_once == 3
    of_each = [[run for cell, run in runs if cell == number] for number in (0, 1)]
    assert len(of_each[1]) > 2 * len(of_each[0]) > 4
    assert {run.excluded for _, run in runs} == {None}
    assert [str(each) for each in load.conditions] == ["code, 8 out", "code, 8 out, 3 at once"]
    # Nothing is begun when the time is over, and what was begun is waited for.
    begun = [run.at or 0 for run in of_each[0]]
    assert max(begun) < 0.6
    for level, part in zip((1, 3), of_each, strict=True):
        found = total_speed(part, level)
        assert found
        assert found.requests == len(part)
        assert 0.2 < found.seconds < 0.75


def test_no_two_prompts_begin_alike() -> None:
    site, runs = loaded(Load((4,), PROMPTS, seconds=0.4, tokens=8))
    texts = [body["messages"][0]["content"] for _, _, body in site.asked]
    assert len({text[:20] for text in texts}) == len(texts) == len(runs)
    assert {body["cache_prompt"] for _, _, body in site.asked} == {False}


def test_an_empty_answer_does_not_count() -> None:
    empty = [(0.0, CHUNKED), (0.01, chunk(last("stop")) + chunk(END) + b"0\r\n\r\n")]
    _, runs = loaded(Load((2,), PROMPTS, seconds=0.2, tokens=8), lambda _: empty)
    assert {run.excluded for _, run in runs} == {"the server's response has no token"}


def test_a_server_that_fails_under_a_load_ends_it() -> None:
    many = threading.Semaphore(6)

    def chat(body: dict[str, Any]) -> Any:
        gone = not many.acquire(blocking=False)
        return page({"error": {"message": "out of memory"}}, "500 Oh")(body) if gone else chatting(body)

    before = threading.active_count()
    with pytest.raises(UserError, match="with 4 requests at once: the server returns 500: out of memory") as error:
        loaded(Load((4,), PROMPTS, seconds=60, tokens=8), chat)
    assert error.value.help
    time.sleep(0.5)
    assert threading.active_count() <= before + 4


def test_a_server_that_is_silent_is_not_waited_for() -> None:
    load = Load((2,), PROMPTS, seconds=60, tokens=8, patience=Patience(first=0.3, silence=0.3, total=1))
    with pytest.raises(UserError, match="stopped sending"):
        loaded(load, lambda _: [(3.0, b"")])


def run(at: float, tokens: int = 10, first: float = 0.0, each: float = 0.1, **more: Any) -> Run:
    """A request whose first token comes after `first` seconds, and the others `each` seconds apart."""
    return Run(
        at=at,
        predicted_n=tokens,
        first_token_ms=1000 * first or 1e-6,
        total_ms=1000 * (first + each * (tokens - 1)) + 1e-6,
        pieces_ms=(1000 * each,) * (tokens - 1),
        **more,
    )


def test_a_total_is_of_the_time_in_which_all_were_asked() -> None:
    """Two streams of ten tokens a second; the second begins half a second late, and ends so."""
    runs = [run(0.0, 100), run(0.5, 100)]
    found = total_speed(runs, 2)
    assert found
    assert found.seconds == pytest.approx(9.4, abs=0.01)
    assert found.tokens_per_second.value == pytest.approx(20, rel=0.02)
    assert found.tokens_per_second.n == 5


def test_what_came_in_one_piece_came_at_once() -> None:
    """Drafts: ten pieces of three tokens."""
    drafted = Run(at=0.0, predicted_n=30, first_token_ms=1e-6, total_ms=1000.0, pieces_ms=(100.0,) * 9)
    found = total_speed([drafted], 1)
    assert found
    assert found.tokens_per_second.value == pytest.approx(30)


def test_where_pieces_are_not_kept_tokens_came_evenly() -> None:
    bare = Run(at=0.0, predicted_n=100, predicted_ms=9900.0, first_token_ms=1e-6, total_ms=9900.0)
    pieces = total_speed([run(0.0, 100)], 1)
    evenly = total_speed([bare], 1)
    assert pieces
    assert evenly
    assert evenly.tokens_per_second.value == pytest.approx(pieces.tokens_per_second.value, rel=0.02)


def test_no_more_pieces_are_kept_than_a_result_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamaherd.measure.bench.workloads.MOST_PIECES", 20)
    _, runs = loaded(Load((2,), PROMPTS, seconds=0.4, tokens=8))
    assert [len(each.pieces_ms) for _, each in runs][:3] == [7, 7, 0]


def test_waiting_for_the_first_token() -> None:
    runs = [run(0.1 * number, first=0.01 * (number + 1)) for number in range(100)]
    found = total_speed(runs, 1)
    assert found
    assert (found.requests, found.late_is_longest) == (100, False)
    assert found.waited == pytest.approx(510)
    assert found.late == pytest.approx(950)
    few = total_speed(runs[:20], 1)
    assert few
    assert few.late == pytest.approx(200)
    assert few.late_is_longest


def test_where_they_never_were_asked_at_once_there_is_no_total() -> None:
    assert total_speed([], 1) is None
    assert total_speed([run(0.0), run(5.0)], 2) is None
    assert total_speed([run(0.0), run(0.0, excluded="it ended early")], 2) is None
    assert total_speed([Run(at=0.0, predicted_n=4)], 1) is None


def test_more_than_there_are_slots_is_told() -> None:
    assert queue_note((1, 4), 4) is None
    assert queue_note((1, 8), None) is None
    assert queue_note((), 4) is None
    assert queue_note((1, 8), 4) == (
        "the server has 4 slots: of 8 requests at once, 4 wait, and their first tokens too"
    )


def test_what_people_are_told() -> None:
    two = Condition(kind="code", concurrency=2)
    cells = (Cell(condition=two, runs=(run(0.0, 100), run(0.5, 100))), Cell(condition=Condition(kind="code")))
    (line,) = total_lines(result().model_copy(update={"cells": cells}))
    assert line.startswith("2 at once: 20")
    assert "of all together over 9 s; first token after 0 ms, at most 0 ms, of 2 requests" in line
