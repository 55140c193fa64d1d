"""The one prompt after a switch: what a server says to it decides whether it stays. A scripted server says it here."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from llamaherd.resources import ROOT
from roles.serve.transaction import asked
from tests.support.rigs import cpu_rig, planned

WELL = {"choices": [{"message": {"content": "red"}}], "usage": {"completion_tokens": 1}, "timings": {}}


class Scripted(ThreadingHTTPServer):
    """Answers each request with this status and body, and keeps what it was asked."""

    daemon_threads = True
    status = 200
    body = b""
    keys: list[str | None]
    told: list[dict[str, Any]]


class Handler(BaseHTTPRequestHandler):
    """Of such a server."""

    server: Scripted

    def do_POST(self) -> None:
        told = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.told.append(json.loads(told))
        self.server.keys.append(self.headers["Authorization"])
        if not self.server.status:
            self.close_connection = True
            return
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted(("127.0.0.1", 0), Handler) as made:
        made.keys, made.told = [], []
        thread = threading.Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def prove(server: Scripted, folder: Path, **other: object) -> tuple[int, str]:
    """How the prompt ends, and what is said."""
    (instance,) = (each for each in planned(cpu_rig()).instances if each.name == "chat")
    url = f"http://127.0.0.1:{server.server_port}/v1/chat/completions"
    question = asked(instance) | {"url": url, "key": None} | other
    (folder / "asked").write_text(json.dumps(question))
    program = ROOT / "templates/serve/prove.py"
    ended = subprocess.run(
        [sys.executable, "-I", "-", folder / "asked"],
        input=program.read_text(),
        capture_output=True,
        text=True,
        timeout=60,
        env={"http_proxy": "http://127.0.0.1:9"},
    )
    assert ended.stderr == ""
    return ended.returncode, ended.stdout


def says(server: Scripted, *, status: int = 200, **other: object) -> None:
    server.status, server.body = status, json.dumps(WELL | other).encode()


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
    says(server, choices=[{"message": {"content": "", "reasoning_content": "hm"}}])
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
            b'{"choices": [{"message": {"content": ""}}], "usage": {"completion_tokens": 0}}',
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
        ({"floor": 10}, {"predicted_per_second": 9.94}, "it decodes 9.9 tokens/s, and `expect` allows no less than 10"),
        ({"floor": 10}, {"predicted_per_second": 10.0}, ""),
        ({"floor": 0}, {}, ""),
    ],
)
def test_one_that_answers_otherwise_than_declared(
    server: Scripted, tmp_path: Path, declared: dict[str, float], timings: dict[str, float], why: str
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
