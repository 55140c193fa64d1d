"""A scripted server's response to one prompt decides whether the server is proved."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roles.serve.onhost.proof import probe, prove
from roles.serve.onhost.session import Limits
from roles.serve.onhost.speed import GOOD, Proof, ProofInput
from tests.support.proofs import proof, question
from tests.support.proving import Handler, Scripted, says, scripted


@pytest.fixture
def server() -> Iterator[Scripted]:
    with scripted() as made:
        yield made


def test_a_server_that_responds_is_proved(server: Scripted, tmp_path: Path) -> None:
    says(server)
    assert proof(server, tmp_path) == GOOD
    assert server.keys == [None]
    assert server.told[0]["max_tokens"] == 8


def test_requests_have_the_key(server: Scripted, tmp_path: Path) -> None:
    says(server)
    assert proof(server, tmp_path, key="canary\n") == GOOD
    assert server.keys == ["Bearer canary"]


def test_a_key_that_no_header_can_have_is_in_no_message(server: Scripted, tmp_path: Path) -> None:
    says(server)
    found = proof(server, tmp_path, key="canary\nX: y")
    assert found == Proof("bad", "a prompt returns something other than HTTP: ValueError")


def test_a_server_that_only_thinks_yet_is_proved(server: Scripted, tmp_path: Path) -> None:
    says(server, choices=[{"message": {"content": "", "reasoning_content": "hm"}, "finish_reason": "length"}])
    assert proof(server, tmp_path) == GOOD


NOTHING = b'{"choices": [{"message": {"content": ""}, "finish_reason": "stop"}], "usage": {"completion_tokens": 0}}'


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (500, b'{"error": {"message": "no\\n  template"}}', "a prompt returns HTTP 500: no template"),
        (500, b"out of\nmemory", "a prompt returns HTTP 500: out of memory"),
        (401, b"", "a prompt returns HTTP 401: "),
        (200, b"<html>", "a prompt returns no chat completion"),
        (200, b"[]", "a prompt returns no chat completion"),
        (200, b'{"choices": []}', "a prompt returns no chat completion"),
        (200, NOTHING, "a prompt returns nothing"),
        (200, NOTHING.replace(b'"stop"', b"[]"), "a prompt returns no chat completion"),
        (200, NOTHING.replace(b'n": ""', b'n": "", "role": "user"'), "a prompt returns nothing"),
        (0, b"", "a prompt gets no response: "),
        (200, b" " * (1 << 21), "a prompt returns more than 1048576 bytes"),
    ],
)
def test_a_server_that_does_not_respond(server: Scripted, tmp_path: Path, status: int, body: bytes, why: str) -> None:
    server.status, server.body = status, body
    found = proof(server, tmp_path)
    assert found.outcome == "bad"
    assert found.why.startswith(why)


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
def test_a_server_that_responds_otherwise_than_declared(
    server: Scripted, tmp_path: Path, declared: dict[str, Any], timings: dict[str, float], why: str
) -> None:
    says(server, timings=timings)
    found = proof(server, tmp_path, **declared)
    assert found.outcome == ("undeclared" if why else "good")
    assert found.why.startswith(why)


def test_a_question_of_an_earlier_version_has_the_prompt_alone(server: Scripted, tmp_path: Path) -> None:
    says(server)
    server.proc = tmp_path
    old = {name: value for name, value in question(server).items() if name in ("url", "metrics", "key", "body")}
    given = ProofInput(old | {"tomorrow": 1}, key=None, how="back", seconds=0.0, pids=())
    assert prove(given, lambda _: None) == GOOD
    assert probe(old, key=None, seconds=5) == (0, "")


@pytest.mark.parametrize("wrong", [{"url": 7}, {"metrics": {}}, {"body": None}, {"models": "a"}])
def test_a_question_that_cannot_be_read(server: Scripted, tmp_path: Path, wrong: dict[str, Any]) -> None:
    """It proves nothing; and it is no reason to roll a server back that was proved before."""
    found = proof(server, tmp_path, **wrong)
    assert found.outcome == "bad"
    assert found.why.startswith("what its proof compares cannot be read: DeclaredServer.")
    assert probe(question(server, **wrong), key=None, seconds=5) == (0, "")
    assert server.told == []


def test_a_server_that_is_not_there(server: Scripted, tmp_path: Path) -> None:
    gone: dict[str, Any] = {"url": "http://127.0.0.1:9/v1/chat/completions", "metrics": []}
    assert "Connection refused" in proof(server, tmp_path, **gone).why
    code, why = probe(question(server, **gone), key=None, seconds=5)
    assert (code, "Connection refused" in why) == (1, True)


def test_no_time_is_left(server: Scripted, tmp_path: Path) -> None:
    says(server)
    assert probe(question(server), key=None, seconds=-1) == (3, "a prompt gets no response: timed out")
    found = proof(server, tmp_path, seconds=-1)
    assert found == Proof("bad", "a prompt gets no response: timed out")


def proved_whole(server: Scripted, limits: Limits) -> tuple[Proof, list[str]]:
    """Prove a server by all steps. Return how that ended, and the lines of progress."""
    lines: list[str] = []
    given = ProofInput(question(server), key=None, how="", seconds=0, pids=())
    found = prove(given, lines.append, limits=limits)
    return found, lines


def test_a_proof_reports_steps_that_a_slow_server_has_no_time_for(
    server: Scripted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    says(server)
    server.proc = tmp_path
    monkeypatch.setattr("roles.serve.onhost.session._PROGRESS_SECONDS", -1)
    found, lines = proved_whole(server, Limits(steps=0))
    assert found == GOOD
    assert lines[0] == "still proving that it serves: its addresses"
    assert re.fullmatch(
        r"not tried, since it writes [0-9.]+ tokens/s: its key, a stream, several turns, a system message, "
        "a JSON schema, tools, two prompts at once, a long prompt, a client that leaves",
        lines[-1],
    )


class Stalls(Handler):
    """Streams nothing before a test has ended."""

    ended = threading.Event()

    def answers(self, status: int, body: bytes, kind: str = "application/json") -> None:
        if kind == "text/event-stream":
            self.ended.wait(30)
        else:
            super().answers(status, body, kind)


def test_a_server_that_responds_to_others_need_not_respond_in_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("roles.serve.onhost.session.LEAVING_SECONDS", 0.01)
    with scripted(Stalls) as server:
        server.proc = tmp_path
        says(server, choices=[{"message": {"content": '{"colour": "red"}'}, "finish_reason": "stop"}])
        server.in_flight = [1]
        found, lines = proved_whole(server, Limits(first=6, later=0.7, step=0.3))
        server.in_flight = [0]
        alone, _ = proved_whole(server, Limits(first=6, later=0.7, step=0.3))
        Stalls.ended.set()
    assert lines == ["not tried, since it responds to other clients: a stream, a system message, a client that leaves"]
    assert found == GOOD
    assert alone == Proof("bad", "a prompt that is streamed gets no response: timed out")
