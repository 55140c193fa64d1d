"""The requests of an inspection, to real sockets: servers that respond in all ways, and a Docker of the test's own."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from llamaherd.onhost import docker_api
from roles.serve.onhost.containers import Probes

pytestmark = pytest.mark.usefixtures("starts_processes")


@contextmanager
def listening(respond: Callable[[socket.socket], None], at: str = "") -> Iterator[int]:
    """Listen at a port, or at a path, and respond to each connection."""
    with closing(socket.socket(socket.AF_UNIX if at else socket.AF_INET)) as server:
        server.bind(at or ("127.0.0.1", 0))
        server.listen()

        def serve() -> None:
            while True:
                try:
                    there, _ = server.accept()
                    respond(there)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield 0 if at else server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def send(*parts: bytes, pause: float = 0) -> Callable[[socket.socket], None]:
    """Respond with bytes, in parts."""

    def respond(there: socket.socket) -> None:
        with there:
            there.recv(1000)
            for part in parts:
                there.sendall(part)
                time.sleep(pause)

    return respond


KEPT: list[socket.socket] = []


@pytest.mark.parametrize(
    ("respond", "responds"),
    [
        (send(b"HTTP/1.0 200 OK\r\n\r\nok"), True),
        (send(b"HTTP/1.0 503 Loading\r\n\r\n"), True),
        (send(b"SSH-2.0-OpenSSH\r\n"), True),
        (send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut off"), True),
        (send(), False),
        (KEPT.append, False),
        (send(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", *[b"x"] * 90, pause=0.1), False),
    ],
    ids=["ok", "error", "not HTTP", "cut off", "empty", "silent", "too slow"],
)
def test_a_server_responds_with_anything_in_time(respond: Callable[[socket.socket], None], responds: bool) -> None:
    with listening(respond) as port:
        assert Probes().responds(f"http://127.0.0.1:{port}/health", 1) is responds


def test_nobody_listens() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        assert not Probes().responds(f"http://127.0.0.1:{held.getsockname()[1]}/health", 1)


@pytest.mark.parametrize("url", ["http://a b:80/health", "http://nowhere.invalid:80/", "http://x:port/", "http://:1/"])
def test_an_address_that_is_none_proves_nothing(url: str) -> None:
    assert Probes().responds(url, 1) or url == "http://:1/"


def responses(*bodies: tuple[int, str]) -> Callable[[socket.socket], None]:
    """Respond to requests on one connection, in their order."""

    def respond(there: socket.socket) -> None:
        with there:
            for status, body in bodies:
                REQUESTED.append(there.recv(4000).decode().split(" ")[1])
                head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n"
                there.sendall(f"{head}{body}".encode())

    return respond


REQUESTED: list[str] = []


def query(
    folder: Path, monkeypatch: pytest.MonkeyPatch, respond: Callable[[socket.socket], None], paths: Sequence[str]
) -> list[object]:
    """Query a Docker that responds like this."""
    at = str(folder / "docker.sock")
    monkeypatch.setattr(docker_api, "DOCKER_SOCKET", at)
    REQUESTED.clear()
    with listening(respond, at):
        return Probes().query_docker(paths, 1)


def test_docker_is_queried_on_one_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    respond = responses((200, '[{"Id": "a"}]'), (404, '{"message": "No such image"}'), (200, '{"Id": "b"}'))
    paths = ["/containers/json?all=1", "/images/a:b/json", "/images/c:d/json"]
    assert query(tmp_path, monkeypatch, respond, paths) == [[{"Id": "a"}], None, {"Id": "b"}]
    assert paths == REQUESTED


def test_a_docker_that_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TimeoutError):
        query(tmp_path, monkeypatch, KEPT.append, ["/x"])


@pytest.mark.parametrize(
    "respond",
    [send(b"SSH-2.0\r\n"), responses((200, "{")), responses((200, json.dumps("x" * (1 << 20)))), send()],
    ids=["not HTTP", "not JSON", "too much", "empty"],
)
def test_a_socket_that_is_not_dockers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, respond: Callable[[socket.socket], None]
) -> None:
    with pytest.raises(OSError, match=r".") as caught:
        query(tmp_path, monkeypatch, respond, ["/x"])
    assert not isinstance(caught.value, TimeoutError)


def test_there_is_no_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_api, "DOCKER_SOCKET", str(tmp_path / "docker.sock"))
    with pytest.raises(FileNotFoundError):
        Probes().query_docker(["/x"], 1)
