"""The programs that wait for a server that starts, with a real socket: what it sends is what a test names."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from unittest.mock import patch

import pytest

from roles.serve.onhost import wait_programs

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n" + b'{"status":"ok"}'
"""The connection stays open, as servers leave it."""
LOADING = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
UNLOADED = '{"data":[{"id":"gemma","status":{"value":"unloaded"}}]}'
LOADED = '{"data":[{"id":"gemma","status":{"value":"loaded"}}]}'
FAILED = '{"data":[{"id":"gemma","status":{"value":"unloaded","exit_code":1,"failed":true}}]}'


def page(body: str, status: str = "200 OK") -> bytes:
    """Return a response of several chunks."""
    half = len(body) // 2
    chunks = "".join(f"{len(each):x}\r\n{each}\r\n" for each in (body[:half], body[half:], ""))
    return f"HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}".encode()


class Server:
    """Sends one text after another, the last one again and again, and keeps connections open but where a text is empty.

    `pause`: seconds between two bytes.
    """

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.sends: list[bytes] = [OK]
        self.pause = 0.0
        self.received: list[bytes] = []
        self._open: list[socket.socket] = []
        Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self._open.append(connection)
            self.received.append(connection.recv(65536))
            text = self.sends.pop(0) if len(self.sends) > 1 else self.sends[0]
            try:
                for piece in [text[at : at + 1] for at in range(len(text))] if self.pause else [text]:
                    connection.sendall(piece)
                    time.sleep(self.pause)
            except OSError:
                continue
            if not text:
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close all connections."""
        self.listener.shutdown(socket.SHUT_RDWR)
        for each in (self.listener, *self._open):
            each.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def gone() -> str:
    """Return the id of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return str(process.pid)


def run(name: str, *arguments: str, pid: str | None = None) -> int:
    """Run a program in this process; the server is this process, unless its id is given."""
    with patch.dict(os.environ, {"MAINPID": str(os.getpid()) if pid is None else pid}):
        return wait_programs.main(name, arguments)


def test_a_server_is_healthy_once_it_returns_no_error(server: Server) -> None:
    server.sends = [b"", LOADING, b"no HTTP\r\n\r\n", page("", "500 Oh"), page('{"status":"ok"}')]
    assert run("wait-healthy", f"{server.url}/health?a=b") == 0
    assert len(server.received) == 5
    assert server.received[0].startswith(b"GET /health?a=b HTTP/1.1\r\n")


def test_a_connection_that_stays_open_delays_nothing(server: Server) -> None:
    began = time.monotonic()
    assert run("wait-healthy", server.url) == 0
    assert time.monotonic() - began < wait_programs.REQUEST_SECONDS


@pytest.mark.parametrize("pid", ["gone", "", "-1", "9" * 40, "$(id)"])
def test_a_server_that_is_gone_is_not_awaited(gone: str, pid: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nothing = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    pid = gone if pid == "gone" else pid
    assert run("wait-healthy", nothing, pid=pid) == 1
    assert run("wait-loaded", nothing, "-", pid=pid) == 1


@pytest.mark.parametrize("pause", [0.0, 0.05], ids=["silent", "byte by byte"])
def test_a_response_without_end_is_given_up(
    server: Server, pause: float, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes in time, and all of them do not."""
    server.sends, server.pause = [OK[:30] + b"X-Long: " + b"x" * 60000 if pause else b"HTTP/1.1 200 OK\r\n"], pause
    monkeypatch.setattr(wait_programs, "REQUEST_SECONDS", 0.5)
    began = time.monotonic()
    assert run("wait-healthy", server.url, pid=gone) == 1
    assert time.monotonic() - began < 20


def test_a_page_of_any_size_is_read_up_to_a_limit(server: Server) -> None:
    server.sends = [b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + b"x" * (3 << 20)]
    found = wait_programs.fetch(server.url, {})
    assert found is not None
    assert (found[0], len(found[1])) == (200, 1 << 20)


def test_no_proxy_and_no_redirect_is_followed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server.sends = [b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"]
    assert run("wait-healthy", server.url) == 0
    assert len(server.received) == 1


@pytest.mark.parametrize(("body", "code"), [(LOADED, 0), (FAILED, 1)])
def test_a_unit_has_started_when_the_first_model_is_loaded(
    server: Server, tmp_path: Path, body: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "key-'\"$(id)`\\ \N{LATIN SMALL LETTER E WITH ACUTE}"
    (tmp_path / "key").write_text(f"{key}\nanother line\n", encoding="utf-8")
    server.sends = [b"", page("loading", "503 Loading"), page(UNLOADED), page(body)]
    assert run("wait-loaded", f"{server.url}/models", str(tmp_path / "key")) == code
    reason = "the model that is to be loaded first does not load\n"
    assert capsys.readouterr() == ("", reason if code else "")
    assert all(f"\r\nAuthorization: Bearer {key}\r\n".encode() in each for each in server.received)


def test_a_server_without_a_key_is_sent_none(server: Server) -> None:
    server.sends = [page(LOADED)]
    assert run("wait-loaded", f"{server.url}/models", "-") == 0
    assert b"Authorization" not in server.received[0]


def test_a_key_that_cannot_be_sent_is_reported_without_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "key").write_bytes(b"secret\rkey\n")
    assert run("wait-loaded", "http://127.0.0.1:9/", str(tmp_path / "key")) == 1
    assert capsys.readouterr() == ("", f"the key in {tmp_path}/key contains a control character\n")
    assert run("wait-loaded", "http://127.0.0.1:9/", str(tmp_path / "none")) == 1
    assert "the server's key cannot be read: [Errno 2]" in capsys.readouterr().err


def test_the_file_itself_waits(server: Server, tmp_path: Path) -> None:
    """As a unit starts it: by its path, with nothing that a list of processes shows but a URL and a path."""
    (tmp_path / "key").write_text("secret\n")
    server.sends = [LOADING, OK, page(UNLOADED), page(LOADED)]
    for name, arguments in (("wait-healthy", ["/health"]), ("wait-loaded", ["/models", str(tmp_path / "key")])):
        program = tmp_path / name
        program.write_text(Path(wait_programs.__file__).read_text())
        program.chmod(0o755)
        env = {"PATH": "/usr/bin:/bin", "MAINPID": str(os.getpid())}
        command = [str(program), server.url + arguments[0], *arguments[1:]]
        done = subprocess.run(command, env=env, capture_output=True, timeout=120, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert len(server.received) == 4


def test_anything_else_prints_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("wait-healthy",), ("wait-loaded", "http://x"), ("wait", "http://x")):
        assert run(*words) == 1
        assert capsys.readouterr().err == f"{wait_programs.USAGE}\n"
