"""Requests in flight end before a server does: what it says of them is scripted here, and nft is a fake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from llamaherd.resources import ROOT
from tests.support.liar import OK, Liar, raw

LLAMA = """# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing {busy}
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 0
llamacpp:tokens_predicted_total 4711
"""
VLLM = """vllm:num_requests_running{{model_name="m"}} {busy}.0
vllm:num_requests_waiting{{model_name="m"}} 0.0
"""


class Scripted(ThreadingHTTPServer):
    """Says of so many questions that requests are in flight; the first takes so long to be answered."""

    daemon_threads = True
    text = LLAMA
    status = 200
    questions = 0
    busy = 0
    busy_at: frozenset[int] = frozenset()
    late = 0.0
    key: str | None = None


class Handler(BaseHTTPRequestHandler):
    """Of such a server."""

    server: Scripted

    def do_GET(self) -> None:
        self.server.questions += 1
        self.server.key = self.headers["Authorization"]
        if self.server.questions == 1:
            time.sleep(self.server.late)
        busy = self.server.questions <= self.server.busy or self.server.questions in self.server.busy_at
        body = self.server.text.format(busy=2 if busy else 0).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[Scripted]:
    """Which listens."""
    with Scripted(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@dataclass(frozen=True)
class Nft:
    """A program in the place of nft, which writes down what it is told, and ends with this code."""

    folder: Path
    code: int = 0

    @property
    def path(self) -> Path:
        return self.folder / "nft"

    @property
    def told(self) -> list[str]:
        """The last line of all that it was told, each time."""
        heard = self.folder / "heard"
        return heard.read_text().splitlines() if heard.exists() else []

    def __post_init__(self) -> None:
        self.path.write_text(f"#!/bin/sh\ntail -n 1 >>'{self.folder}/heard'\nexit {self.code}\n")
        self.path.chmod(0o755)


def drained(folder: Path, port: int, seconds: float = 30, *words: str, key: Path | None = None) -> tuple[str, float]:
    """What the script says, and how long it takes."""
    (folder / "key").write_text("secret\n")
    asked = {"metrics": f"http://127.0.0.1:{port}/metrics", "key": str(key or folder / "key")}
    (folder / "asked").write_text(json.dumps(asked))
    program = (ROOT / "templates" / "serve" / "drain.py").read_text()
    assert '"/usr/sbin/nft"' in program
    program = program.replace("/usr/sbin/nft", str(folder / "nft"))
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-I", "-", str(folder / "asked"), str(seconds), str(os.getgid()), *words],
        input=program,
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout, time.monotonic() - began


@pytest.mark.parametrize("text", [LLAMA, VLLM])
def test_it_waits_until_all_are_answered(server: Scripted, tmp_path: Path, text: str) -> None:
    server.text, server.busy = text, 3
    said, _ = drained(tmp_path, server.server_port)
    assert said == "waiting for 2 requests in flight, for up to 30 s\n"
    assert server.questions == 4
    assert server.key == "Bearer secret"


def test_one_with_nothing_to_do_is_not_waited_for(server: Scripted, tmp_path: Path) -> None:
    assert drained(tmp_path, server.server_port)[0] == ""
    assert server.questions == 1


def test_it_waits_no_longer_than_it_may(server: Scripted, tmp_path: Path) -> None:
    server.busy = 1000
    said, seconds = drained(tmp_path, server.server_port, 1)
    assert server.questions < server.busy
    assert said.endswith("2 of them did not end in time, and are cut off\n")
    assert seconds >= 1


def test_one_that_computes_too_hard_to_say_is_waited_for(server: Scripted, tmp_path: Path) -> None:
    server.late = 3
    said, _ = drained(tmp_path, server.server_port)
    assert said == "waiting for 1 request in flight, for up to 30 s\n"


@pytest.mark.parametrize("status", [404, 501])
def test_one_that_does_not_say_is_not_waited_for(server: Scripted, tmp_path: Path, status: int) -> None:
    server.status, server.busy = status, 1000
    assert drained(tmp_path, server.server_port)[0] == ""


def test_one_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    assert drained(tmp_path, 9)[0] == ""


def test_one_that_drips_is_not_waited_for_without_end(tmp_path: Path) -> None:
    """Each of its bytes comes in time, and the last never: it is busy, as far as anyone knows."""
    with Liar(raw(OK + b"\r\n", then=b" ", drip=True)) as liar:
        said, seconds = drained(tmp_path, int(liar.host.rpartition(":")[2]), 1)
    assert said.endswith("1 of them did not end in time, and is cut off\n")
    assert seconds < 12


def test_the_key_of_the_server_that_runs_is_kept_with_what_is_asked(server: Scripted, tmp_path: Path) -> None:
    """A switch has written the new key by then, which the old server does not take."""
    server.busy = 1
    new = tmp_path / "new" / "key"
    new.parent.mkdir()
    new.write_text("another\n")
    drained(tmp_path, server.server_port, key=new)
    assert server.key == "Bearer secret"


def test_connections_are_refused_from_the_last_look_on(server: Scripted, tmp_path: Path) -> None:
    nft = Nft(tmp_path)
    assert drained(tmp_path, server.server_port)[0] == ""
    assert (server.questions, nft.told) == (2, ["}"])


def test_who_came_between_two_looks_is_waited_for_with_the_door_open(server: Scripted, tmp_path: Path) -> None:
    nft = Nft(tmp_path)
    server.busy_at = frozenset({2, 3})
    said, _ = drained(tmp_path, server.server_port)
    assert said == "waiting for 2 requests in flight, for up to 30 s\n"
    assert nft.told == ["}", "delete table inet llamaherd-shut", "}"]
    assert server.questions == 5


def test_nobody_is_refused_while_connections_are_led_elsewhere(server: Scripted, tmp_path: Path) -> None:
    nft = Nft(tmp_path)
    drained(tmp_path, server.server_port, 30, "led")
    assert (server.questions, nft.told) == (1, [])


def test_a_host_whose_kernel_cannot_refuse_them(server: Scripted, tmp_path: Path) -> None:
    nft = Nft(tmp_path, code=1)
    assert drained(tmp_path, server.server_port)[0] == ""
    assert (server.questions, nft.told) == (1, ["}"])
