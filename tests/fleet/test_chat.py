"""Chat with a scripted server behind a real sshd: what is sent, what arrives, and each failure with its fix."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.fleet.chat import (
    Chat,
    ChatServer,
    Reply,
    chat_server,
    explain_refusal,
    image_url,
    user_message,
)
from llamaherd.host.remote import RemoteError
from llamaherd.host.tunnel import NotListeningError
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.measure.client.http_client import Patience
from llamaherd.onhost.server_control import Pauses
from tests.bench.played import CHUNKED, END, PLAIN, Part, Played, chunk, delta, event, last
from tests.support.gateway import free_port
from tests.support.rigs import changed, cpu_rig, planned
from tests.support.sshd import running_sshd

KEY = "sk-canary-chat-77aa"
TIMINGS = {"predicted_n": 42, "predicted_ms": 764.0}
SOON = Patience(connect=5, first=2, silence=0.5, total=5)


def said(*texts: str, finish: str = "stop") -> list[Part]:
    return [(0, PLAIN), *((0.0, delta(text)) for text in texts), (0, last(finish, timings=TIMINGS) + END)]


HELLO = said("Hel", "lo")
THOUGHT = event({"choices": [{"delta": {"reasoning_content": "hm"}}]})


@pytest.fixture(scope="module")
def connect() -> Iterator[Connect]:
    with running_sshd() as found:
        yield found.connect


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT_KEY", KEY)


@pytest.fixture
def server() -> Iterator[Played]:
    """A server that streams `Hello`. A test may give it another script."""
    with Played(lambda _: HELLO) as played:
        yield played


def port_of(server: Played) -> int:
    return int(server.url.rsplit(":", 1)[1])


def at(connect: Connect, port: int, name: str = "chat", **instances: Any) -> ChatServer:
    """A planned instance whose server listens on this port of the host."""
    rig = changed(cpu_rig(), {"instances/chat/port": port, **instances})
    return chat_server(connect, planned(rig), name)


def sent(server: ChatServer, text: str = "Hi", most: int | None = None) -> tuple[Reply, list[tuple[str, str]]]:
    """Send a message. Return the reply, and its pieces as they arrived."""
    pieces: list[tuple[str, str]] = []
    with Chat(server, SOON) as chat:
        reply = chat.send([user_message(text)], most, lambda thought, text: pieces.append((thought, text)))
    return reply, pieces


@pytest.mark.parametrize("task", ["embeddings", "rerank"])
def test_a_server_for_something_else_gets_no_chat(connect: Connect, task: str) -> None:
    with pytest.raises(UserError, match=f"chat is a server of {task}") as raised:
        at(connect, 8080, **{"instances/chat/serve": task})
    assert raised.value.help == "test it with `herd verify`, or measure it with `herd bench chat`"


def test_a_response_comes_through_the_tunnel_piece_by_piece(connect: Connect, server: Played) -> None:
    server.script = lambda _: [(0, PLAIN), (0, THOUGHT), *HELLO[1:]]
    reply, pieces = sent(at(connect, port_of(server)), most=9)
    assert (reply.text, reply.thoughts, reply.finish, reply.tokens, reply.cut_off) == ("Hello", "hm", "stop", 42, False)
    assert reply.speed == pytest.approx(54.97, abs=0.01)
    assert pieces == [("hm", ""), ("", "Hel"), ("", "lo")]
    ((path, headers, body),) = server.requests
    assert (path, headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert (body["model"], body["max_tokens"], body["stream"]) == ("gemma", 9, True)
    assert body["messages"] == [{"role": "user", "content": "Hi"}]


def test_a_server_on_this_machine_needs_no_ssh(server: Played) -> None:
    assert sent(at(Connect(host=LOCAL), port_of(server)))[0].text == "Hello"


def test_without_figures_of_the_engine_the_client_counts(connect: Connect, server: Played) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 3}
    server.script = lambda _: [
        (0, PLAIN),
        (0, delta("a")),
        (0.2, delta("b")),
        (0.4, delta("c") + last("length", usage=usage) + END),
    ]
    reply, _ = sent(at(connect, port_of(server)))
    assert (reply.tokens, reply.cut_off) == (3, True)
    assert reply.speed == pytest.approx(5, rel=0.5)


def test_the_second_request_uses_the_same_connection(connect: Connect, server: Played) -> None:
    with Chat(at(connect, port_of(server)), SOON) as chat:
        chat.send([user_message("one")], None, lambda *_: None)
        first = chat._tunnel
        chat.send([user_message("two")], None, lambda *_: None)
        assert chat._tunnel is first
    assert len(server.requests) == 2


def test_after_a_failure_the_next_request_connects_again(connect: Connect, server: Played) -> None:
    scripts = iter([[(0.0, PLAIN), (0.0, delta("Hel"))], HELLO])
    server.script = lambda _: next(scripts)
    with Chat(at(connect, port_of(server)), SOON) as chat:
        with pytest.raises(UserError, match="ends in the middle"):
            chat.send([user_message("one")], None, lambda *_: None)
        assert chat.send([user_message("two")], None, lambda *_: None).text == "Hello"


INVALID_KEY = b'{"error":{"message":"Invalid API Key","code":401}}'
LOADING = b'{"error":{"message":"Loading model","code":503}}'


def refusal(status: bytes, body: bytes) -> list[Part]:
    return [(0, b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(body), body))]


@pytest.mark.parametrize(
    ("parts", "message", "help_"),
    [
        (refusal(b"401 No", INVALID_KEY), "the server returns 401: Invalid API Key", "run `herd up box`"),
        (refusal(b"503 Busy", LOADING), "the server returns 503: Loading model", "wait until it has loaded"),
        ([(0, PLAIN), (0, delta("Hel"))], "the response ends in the middle", "see the server's log"),
        ([(0, CHUNKED), (0, chunk(delta("Hel")))], "the connection was cut", "see the server's log"),
        ([(0, PLAIN), (0, b"data: nonsense\n\n")], "the server sends an event that is no JSON", "server of models"),
        ([(0, PLAIN), (0, b"x" * (2 << 20))], "a line of more than 1 MiB", "server of models"),
        ([(0, PLAIN), (0, last() + END)], "the server's response has no token", "--max-tokens"),
        ([(0, PLAIN), (0, delta("Hel")), (9, b"")], "the server stopped sending", "stuck"),
        ([(0, PLAIN), *((n / 5, delta("x")) for n in range(99))], "incomplete after 5 s", "stuck"),
    ],
    ids=["key", "loading", "cut", "cut in a chunk", "nonsense", "huge line", "empty", "silent", "endless"],
)
def test_a_failure_is_one_sentence_with_a_fix(
    connect: Connect, server: Played, parts: list[Part], message: str, help_: str
) -> None:
    server.script = lambda _: parts
    with pytest.raises(UserError) as raised:
        sent(at(connect, port_of(server)))
    assert raised.value.message.startswith("box/chat: ")
    assert message in raised.value.message
    assert help_ in raised.value.help
    assert KEY not in str(raised.value)


def test_without_a_server_the_port_is_named(connect: Connect) -> None:
    port = free_port()
    with pytest.raises(UserError, match=rf"no server on 127.0.0.1 port \d+ listens on port {port}"):
        sent(at(connect, port))
    with pytest.raises(UserError, match="box/chat: the server cannot be reached: Connection refused"):
        sent(at(Connect(host=LOCAL), port))


@pytest.mark.parametrize(("left", "shown"), [(600.0, r"\d\d:\d\d"), (200_000.0, r"\d{4}-\d\d-\d\d \d\d:\d\d")])
def test_a_paused_server_is_no_server_to_repair(left: float, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamaherd.fleet.chat.query_verb", lambda *_: Pauses({"chat": left}))
    server, refused = at(Connect(host="box.lan"), 8080), NotListeningError("no server listens", "start it")
    found = explain_refusal(server, refused)
    assert found
    assert re.fullmatch(f"box/chat is paused until {shown}", found.message)
    assert found.help == "start it now with `herd resume box/chat`"
    assert explain_refusal(at(Connect(host="box.lan"), 8080, "drafter"), refused) is refused
    other = UserError("the SSH server forwards no ports", "allow it")
    assert explain_refusal(server, other) is other


def test_a_host_that_reports_no_pauses_does_not_hide_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def query(*_: object) -> NoReturn:
        raise RemoteError("box.lan cannot be reached", "is it on?")

    monkeypatch.setattr("llamaherd.fleet.chat.query_verb", query)
    refused = NotListeningError("no server listens", "start it")
    assert explain_refusal(at(Connect(host="box.lan"), 8080), refused) is refused


def test_an_ssh_server_that_forwards_no_ports_is_named(server: Played) -> None:
    with (
        running_sshd("AllowTcpForwarding no") as found,
        pytest.raises(UserError, match="forwards no ports") as raised,
    ):
        sent(at(found.connect, port_of(server)))
    assert "AllowTcpForwarding local" in raised.value.help
    assert server.requests == []


def test_a_host_that_is_off_is_named(connect: Connect) -> None:
    off = connect.model_copy(update={"port": free_port()})
    with pytest.raises(UserError, match=f"nothing listens for SSH at 127.0.0.1 port {off.port}"):
        sent(at(off, 8080))


def test_a_key_that_is_not_here_is_named(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHAT_KEY")
    with pytest.raises(UserError, match="there is no API key in the environment variable CHAT_KEY"):
        sent(at(connect, 8080))


@pytest.mark.parametrize("sees", [True, False, None])
def test_images_need_a_model_that_reads_them(connect: Connect, server: Played, sees: bool | None) -> None:
    props = json.dumps({"modalities": {"vision": sees}} if sees is not None else {}).encode()
    header = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(props)
    server.script = lambda _: [(0, header + props)]
    with Chat(at(connect, port_of(server)), SOON) as chat:
        if sees is False:
            with pytest.raises(UserError, match="the model of box/chat reads no images"):
                chat.require_vision()
        else:
            chat.require_vision()
    assert [path for path, _, _ in server.requests] == ["/props"]


def test_an_image_is_sent_before_the_text(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    (tmp_path / "cat.webp").write_bytes(b"RIFF\0\0\0\0WEBPVP8 ")
    png, webp = image_url(tmp_path / "cat.png"), image_url(tmp_path / "cat.webp")
    assert (png[:33], webp[:23]) == ("data:image/png;base64,iVBORw0KGgo", "data:image/webp;base64,")
    assert user_message("What is this?", [png]) == {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": png}}, {"type": "text", "text": "What is this?"}],
    }
    (tmp_path / "cat.exe").write_bytes(b"MZ")
    with pytest.raises(UserError, match=r"cat\.exe is not an image of a known type"):
        image_url(tmp_path / "cat.exe")
    with pytest.raises(UserError, match=r"cannot read the image .*cat\.gif"):
        image_url(tmp_path / "cat.gif")


@pytest.mark.parametrize(("name", "model"), [("two", "moe"), ("one", "gemma"), ("card", "gemma")])
def test_an_instance_of_a_group_is_named_in_the_request(
    connect: Connect, server: Played, name: str, model: str
) -> None:
    shared = {"engine": "main", "port": port_of(server), "group": "card", "context": 4096}
    both = {"instances/one": {**shared, "model": "gemma"}, "instances/two": {**shared, "model": "moe"}}
    sent(at(connect, 8080, name, **both))
    assert [body["model"] for _, _, body in server.requests] == [model]
