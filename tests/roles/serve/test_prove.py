"""The one prompt after a switch: what a server says to it decides whether it stays. A scripted server says it here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llamaherd.plan import digest
from roles.serve.transaction import asked, tried
from tests.support.proving import Scripted, prove, says, scripted
from tests.support.rigs import cpu_rig, planned


@pytest.fixture
def server() -> Iterator[Scripted]:
    with scripted() as made:
        yield made


def test_one_that_answers_is_proved(server: Scripted, tmp_path: Path) -> None:
    says(server)
    assert prove(server, tmp_path) == (0, "")
    assert server.keys == [None]
    assert server.told[0]["max_tokens"] == 8


def test_the_key_is_read_from_its_file(server: Scripted, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("canary\n")
    says(server)
    assert prove(server, tmp_path, key=str(tmp_path / "key")) == (0, "")
    assert server.keys == ["Bearer canary"]


def test_one_that_only_thinks_yet_answers(server: Scripted, tmp_path: Path) -> None:
    says(server, choices=[{"message": {"content": "", "reasoning_content": "hm"}, "finish_reason": "length"}])
    assert prove(server, tmp_path) == (0, "")


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (500, b'{"error": {"message": "no\\n  template"}}', "a prompt is answered with HTTP 500: no template"),
        (500, b"out of\nmemory", "a prompt is answered with HTTP 500: out of memory"),
        (401, b"", "a prompt is answered with HTTP 401: "),
        (200, b"<html>", "a prompt is answered with what is no chat completion"),
        (200, b"[]", "a prompt is answered with what is no chat completion"),
        (200, b'{"choices": []}', "a prompt is answered with what is no chat completion"),
        (
            200,
            b'{"choices": [{"message": {"content": ""}, "finish_reason": "stop"}], "usage": {"completion_tokens": 0}}',
            "a prompt is answered with nothing",
        ),
        (0, b"", "a prompt is not answered: "),
    ],
)
def test_one_that_does_not_answer(server: Scripted, tmp_path: Path, status: int, body: bytes, why: str) -> None:
    server.status, server.body = status, body
    code, said = prove(server, tmp_path)
    assert code == 1
    assert said.startswith(why)


@pytest.mark.parametrize(
    ("declared", "timings", "why"),
    [
        ({"drafts": 16}, {}, "no token was drafted, though drafting is declared"),
        ({"drafts": 16}, {"draft_n": 40, "draft_n_accepted": 0}, "none of 40 drafted tokens was accepted"),
        ({"drafts": 16}, {"draft_n": 15, "draft_n_accepted": 0}, ""),
        ({"drafts": 16}, {"draft_n": 40, "draft_n_accepted": 3}, ""),
        (
            {"floor": 10},
            {"predicted_n": 64, "predicted_ms": 6340, "predicted_per_second": 10.1},
            "it decodes 9.9 tokens/s, and `expect` allows no less than 10",
        ),
        ({"floor": 10}, {"predicted_n": 64, "predicted_ms": 6300}, ""),
        ({"floor": 10}, {}, "it decodes 0.0 tokens/s, and `expect` allows no less than 10"),
        ({"floor": 0}, {}, ""),
    ],
)
def test_one_that_answers_otherwise_than_declared(
    server: Scripted, tmp_path: Path, declared: dict[str, Any], timings: dict[str, float], why: str
) -> None:
    says(server, timings=timings)
    code, said = prove(server, tmp_path, **declared)
    assert code == (2 if why else 0)
    assert said.startswith(why)


def test_what_is_asked_where_drafts_or_speed_are_declared() -> None:
    plan = planned(cpu_rig(), {"instances/chat/expect": {"decode": 30}})
    found = {each.name: asked(each) for each in plan.instances}
    assert [(each["floor"], each["drafts"]) for each in found.values()] == [(15, 0), (0, 16)]
    assert all('"max_tokens": 64' in json.dumps(each) for each in found.values())


def test_what_was_refused_before_stays_refused() -> None:
    """What tells one try from another says nothing of speeds: nothing is tried again because more is measured."""
    chat = planned(cpu_rig()).instances[0]
    assert set(asked(chat)) == {"url", "metrics", "key", "seconds", "drafts", "floor", "body"}
    assert tried(chat) == digest(chat.spec, asked(chat))
