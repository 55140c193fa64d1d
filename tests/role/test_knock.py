"""What servers say to whoever has no key, asked over real connections to scripted ones."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from llamaherd.inventory.schema import Secret
from llamaherd.plan import Endpoint
from llamaherd.role.dial import SECONDS, dial
from llamaherd.role.reach import Door, Reach, RigAddress, Tried, WayThere, judge_reach, judge_wall, walls
from tests.support.rigs import cpu_rig, planned

HERE = RigAddress("127.0.0.1", "127.0.0.1")
KEY = Secret.model_validate({"env": "K"})
MODELS = b'HTTP/1.0 200 OK\r\n\r\n{"data": [{"id": "gemma"}]}'


@contextmanager
def server(answers: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port where each connection is answered so."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    threading.Thread(target=one, args=(connection,), daemon=True).start()

        def one(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                answers(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def says(text: bytes, asked: list[bytes] | None = None) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        said = connection.recv(4096)
        if asked is not None and said:
            asked.append(said)
        connection.sendall(text)

    return answer


def door(port: int, *, key: bool = True) -> Door:
    return Door("chat", Endpoint(listen="0.0.0.0", port=port, models=("m",), streams=1, key=KEY if key else None))


def wall(port: int) -> Door:
    return Door("chat", Endpoint(listen="127.0.0.1", port=port, models=("gemma",), streams=1, key=KEY), "gemma")


def tried(asked: Door) -> Tried:
    return dial(WayThere((HERE,)), [asked])["chat"]


def judged(asked: Door) -> Reach:
    return judge_reach(WayThere((HERE,)), tried(asked), asked, [])


@pytest.mark.parametrize(
    ("status", "ok", "words"),
    [
        ("401 Unauthorized", True, ", with the key"),
        ("403 Forbidden", True, ", with the key"),
        ("200 OK", False, "without the API key that is declared (HTTP 200)"),
        ("400 Bad Request", False, "without the API key that is declared (HTTP 400)"),
        ("503 Loading model", True, ""),
        ("no status", True, ""),
    ],
)
def test_a_key_that_is_declared_is_asked_for(status: str, ok: bool, words: str) -> None:
    asked: list[bytes] = []
    with server(says(f"HTTP/1.1 {status}\r\n\r\n".encode(), asked)) as port:
        found = judged(door(port))
    assert (found.ok, found.doubt, found.detail.endswith(words)) == (ok, False, True), found.detail
    (request,) = asked
    assert request.startswith(b"POST /v1/chat/completions HTTP/1.0\r\n")
    assert b"uthorization" not in request


def test_where_no_key_is_declared_nothing_is_asked() -> None:
    asked: list[bytes] = []
    with server(says(b"", asked)) as port:
        assert judged(door(port, key=False)).ok
    assert asked == []


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        (MODELS, True),
        (MODELS.replace(b"gemma", b"other"), False),
        (MODELS.replace(b"200 OK", b"401 No"), False),
        (b"SSH-2.0-OpenSSH\r\n", False),
    ],
    ids=["ours", "another's", "it wants a key", "no HTTP"],
)
def test_one_for_its_host_alone_that_is_found_elsewhere(answer: bytes, seen: bool) -> None:
    with server(says(answer)) as port:
        found = judge_wall(tried(wall(port)), wall(port))
    assert found.ok is not seen
    assert (f"127.0.0.1:{port}, and listens on 127.0.0.1 alone" in found.detail) is seen
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    assert judge_wall(tried(wall(port)), wall(port)) == Reach(
        True, f"takes no connections of this machine at port {port}"
    )


def trickles(connection: socket.socket) -> None:
    for _ in range(600):
        connection.sendall(b"H")
        time.sleep(0.1)


def floods(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"HTTP/1.0 200 OK\r\n" + b"x" * 65536)


@pytest.mark.parametrize("answers", [trickles, floods, lambda _: time.sleep(60)], ids=["trickles", "floods", "silent"])
def test_no_server_takes_more_than_its_time(answers: Callable[[socket.socket], None]) -> None:
    with server(answers) as port:
        began = time.monotonic()
        tried(door(port))
        assert time.monotonic() - began < 2 * SECONDS + 1


def test_which_instances_are_for_their_host_alone() -> None:
    plan = planned(cpu_rig(), {"instances/chat/listen": "0.0.0.0"})
    assert [each.name for each in walls(plan, ["chat", "drafter"])] == ["drafter"]
    assert walls(plan, ["chat"]) == []
