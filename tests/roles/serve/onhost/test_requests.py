"""Requests to servers by the real curl: what a server receives, and what becomes of one that does not end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import monotonic

import pytest

from llamaherd.host.responses import parse_chat, parse_reply
from llamaherd.onhost.system import Host
from roles.serve.onhost.model import ChatRequest, ProbeResult, Requests
from roles.serve.onhost.verification import MOST_BYTES, send_requests

pytestmark = pytest.mark.usefixtures("starts_processes")
KEY = 'it\'s "secret" $(id)'
EVENTS = 'data: {"choices":[{"delta":{"content":"red"}}]}\n\ndata: [DONE]\n\n'


class Server(BaseHTTPRequestHandler):
    """A server with a key. `/endless` never ends, and `/much` declares that it is too long."""

    received: list[tuple[str, str, str]]
    arguments: list[str]
    """Command lines of processes while a chat is sent."""

    def handle_one_request(self) -> None:
        """Read a request, record it, and respond."""
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        length = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(length).decode()
        self.received.append((self.path, self.headers.get("Authorization", ""), body))
        if body:  # the one request that has time for it
            self.arguments += [_command_line(each) for each in Path("/proc").iterdir() if each.name.isdecimal()]
        if self.path in ("/endless", "/much"):
            self._write_much()
            return
        right = self.path == "/health" or self.headers.get("Authorization") == f"Bearer {KEY}"
        text = EVENTS if body else f"it is {self.path}"
        self._respond(200 if right else 401, text if right else '{"error":{"message":"no key"}}')

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def _respond(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def _write_much(self) -> None:
        self.send_response(200)
        if self.path == "/much":
            self.send_header("Content-Length", str(1 << 30))
        self.end_headers()
        with suppress(OSError):
            while True:
                self.wfile.write(b"x" * 65536)


def _command_line(process: Path) -> str:
    with suppress(OSError):
        return (process / "cmdline").read_text(encoding="utf-8", errors="replace")
    return ""


@pytest.fixture
def url() -> Iterator[str]:
    """Return the URL of a server."""
    Server.received, Server.arguments = [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def given(url: str, tmp_path: Path) -> Requests:
    """Return requests to it."""
    (tmp_path / "key").write_text(f"{KEY}\nanother line\n")
    chats = (ChatRequest("a", f"{url}/chat", '{"model":"[a-b]{c}","it\'s":"@/etc/hostname"}', ""),)
    return Requests(f"{url}/health", f"{url}/props", f"{url}/models", f"{url}/props", chats, 60, str(tmp_path / "key"))


def unprobed(_: object, __: str | None) -> tuple[ProbeResult, ...]:
    """Return no result: the requests are those of curl alone."""
    return ()


def host() -> Host:
    """Return this machine."""
    return Host(lambda _: None, lambda _: None)


def test_what_a_server_receives_and_returns(given: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    found = send_requests("a", given, host(), unprobed)
    texts = [found.health, found.models, found.props["a"]]
    assert texts == ["it is /health\n200", "it is /models\n200", "it is /props\n200"]
    assert (parse_reply(found.keyless).status, parse_reply(found.keyless).problem) == (401, "HTTP 401: no key")
    assert parse_chat(parse_reply(found.chats["a"]).body).answer == "red"
    sent = f"Bearer {KEY}"
    assert Server.received == [
        ("/health", "", ""),
        ("/props", "", ""),
        ("/models", sent, ""),
        ("/props", sent, ""),
        ("/chat", sent, given.chats[0].body),
    ]
    lines = [line for line in Server.arguments if "curl" in line and given.chats[0].url.rpartition("/")[0] in line]
    assert lines
    assert not any("secret" in line for line in lines), "a key is for no list of processes"


@pytest.mark.parametrize("path", ["/endless", "/much"])
def test_a_response_that_does_not_end_is_bounded(given: Requests, url: str, path: str) -> None:
    began = monotonic()
    found = send_requests("a", replace(given, models_url=f"{url}{path}"), host(), unprobed)
    assert monotonic() - began < 60
    assert len(found.models) <= MOST_BYTES + 1000
    assert parse_reply(found.models).problem
    assert parse_reply(found.props["a"]).status == 200, "the next request is sent nevertheless"


def test_one_that_listens_nowhere(given: Requests) -> None:
    found = send_requests("a", replace(given, health_url="http://127.0.0.1:9/health"), host(), unprobed)
    assert parse_reply(found.health).problem.startswith("curl: (7) Failed to connect to 127.0.0.1 port 9")
