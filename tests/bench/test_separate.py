"""Depths in requests of their own, of a server that is scripted over real HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.bench.job import WorkloadContext
from llamaherd.measure.bench.workloads import Ladder, SeparateDepths
from llamaherd.measure.client.http_client import Target
from llamaherd.measure.client.requests import Served
from llamaherd.measure.results.result import Run
from tests.bench.site import CHAT, Reply, Site, page
from tests.bench.test_foreign import chatting

DEEP = SeparateDepths((1024, 4096))


def measured(chat: Reply, engine: str | None = None) -> tuple[list[tuple[int, Run]], Site]:
    with Site({CHAT: chat}) as site:
        target = Target(site.url)
        road = WorkloadContext(Served(target, target, CHAT, "qwen", engine), "session", lambda: 1.0)
        return list(DEEP.runs(road)), site


def test_each_answer_is_two_runs() -> None:
    runs, site = measured(chatting)
    assert [cell for cell, _ in runs] == [0, 1, 0, 1, 2, 3, 2, 3]
    assert {run.excluded for _, run in runs} == {None}
    for cell, run in runs:
        assert (run.predicted_n is None, run.prompt_n is None) == (cell % 2 == 0, cell % 2 == 1)
    decode = [each for each in DEEP.conditions if each.depth]
    assert decode == [each for each in Ladder(DEEP.depths).conditions if each.generated]
    texts = [body["messages"][0]["content"] for _, _, body in site.asked]
    assert len({text[:30] for text in texts}) == 4
    assert not any("ignore_eos" in body for _, _, body in site.asked)
    assert all(body["ignore_eos"] for _, _, body in measured(chatting, "vllm")[1].asked)


def test_a_prompt_of_another_length_does_not_count() -> None:
    def chat(body: dict[str, Any]) -> Any:
        return chatting(body | {"messages": [{"content": "x" * 4000}]})

    runs, _ = measured(chat)
    assert {run.excluded for cell, run in runs if cell < 2} == {None}
    assert {run.excluded for cell, run in runs if cell > 1} == {"of a prompt of 4,096 tokens it read 1,000"}


def test_a_context_that_is_too_short_is_told() -> None:
    def chat(body: dict[str, Any]) -> Any:
        long = len(body["messages"][0]["content"]) > 8000
        return page({"error": {"message": "too long"}}, "400 Bad Request")(body) if long else chatting(body)

    runs, site = measured(chat)
    assert [(cell, run.excluded) for cell, run in runs[4:]] == [(3, "the server returns 400: too long")]
    assert len(site.asked) == 3


def test_a_server_that_is_gone_ends_it() -> None:
    with pytest.raises(UserError, match="at a depth of 1,024 tokens: the server returns 401"):
        measured(page({"error": "no"}, "401 Unauthorized"))
