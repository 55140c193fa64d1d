"""Who is refused by the gateway: the real HAProxy, by the configuration of a host, is sent what must not pass.

What stands behind it is a plain server that records what reaches it: nothing may. A real one would answer as much, and
could not say what it was sent.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest

from tests.support.gateway import KEYS, REVOKED, SERVERS_KEY, Running, Upstream, free_port, made, rig_at, running, until

TOM, ANN = KEYS["tom"], KEYS["ann"]
BODY = b'{"messages":[],"model":"coder"}'
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def server() -> Iterator[Upstream]:
    upstream = Upstream()
    yield upstream
    upstream.stop()


@pytest.fixture(scope="module")
def gateway(server: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Tom may use both models, Ann the small one alone."""
    text = f"""
    gateway:
      on: [box]
      port: {free_port()}
      body: 100KB
      users:
        tom: {{key: {{env: A}}, streams: 50}}
        ann: {{key: {{env: B}}, models: [small]}}
      models:
        coder: {{serve: [box.one], aliases: [gpt-4o]}}
        small: {{serve: [box.one]}}
    """
    plan = made(text, [rig_at({"one": server.port})])
    with running(plan, tmp_path_factory.mktemp("gateway")) as gateway:
        until(lambda: gateway.ask().status == 200)
        server.seen.clear()
        yield gateway


@pytest.fixture(autouse=True)
def _nothing_reaches_a_server(server: Upstream, gateway: Running) -> Iterator[None]:
    server.seen.clear()
    yield
    assert server.seen == []
    assert gateway.process.poll() is None


def request(*headers: str, body: bytes = BODY, line: str = f"POST {CHAT} HTTP/1.1", length: bool = True) -> bytes:
    """A request with Tom's key as bytes, and these headers beside."""
    lines = [line, "Host: gateway", f"Authorization: Bearer {TOM}", "Connection: close", *headers]
    lines += [f"Content-Length: {len(body)}"] if length else []
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


WRONG_KEYS = {
    "none": {},
    "an empty one": {"Authorization": "Bearer "},
    "an empty header": {"Authorization": ""},
    "a wrong one": {"Authorization": "Bearer sk-wrong"},
    "a revoked one": {"Authorization": f"Bearer {REVOKED}"},
    "half of one": {"Authorization": f"Bearer {TOM[:-1]}"},
    "one with more behind it": {"Authorization": f"Bearer {TOM}x"},
    "one twice": {"Authorization": f"Bearer {TOM}{TOM}"},
    "one in capitals": {"Authorization": f"Bearer {TOM.upper()}"},
    "two in one header": {"Authorization": f"Bearer {TOM}, Bearer {ANN}"},
    "another scheme": {"Authorization": f"Basic {TOM}"},
    "the user's name": {"Authorization": "Bearer tom"},
    "the servers' own": {"Authorization": f"Bearer {SERVERS_KEY}"},
    "a wrong one in X-Api-Key": {"X-Api-Key": "sk-wrong"},
    "a wrong one, and a right one beside it": {"Authorization": "Bearer sk-wrong", "X-Api-Key": TOM},
    "in a cookie": {"Cookie": f"key={TOM}"},
    "in another header": {"Api-Key": TOM},
    "in a proxy's header": {"Proxy-Authorization": f"Bearer {TOM}"},
    "a name with an underscore": {"X_Api_Key": TOM},
    "a very long one": {"Authorization": f"Bearer {'a' * 20_000}"},
}


@pytest.mark.parametrize("headers", WRONG_KEYS.values(), ids=WRONG_KEYS)
def test_who_has_no_key_of_a_user_is_told_so(gateway: Running, headers: dict[str, str]) -> None:
    answer = gateway.ask(key=None, headers=headers)
    assert (answer.status, answer.code, answer.headers["www-authenticate"]) == (401, "invalid_api_key", "Bearer")


@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/slots", "/", "/v1/nothing"])
def test_without_a_key_nobody_learns_what_there_is(gateway: Running, path: str) -> None:
    assert gateway.ask(path, key=None, method="GET").status == 401


def test_a_key_in_the_address_is_none(gateway: Running) -> None:
    assert gateway.ask(f"{CHAT}?key={TOM}&api_key={TOM}", key=None).status == 401


def test_the_hash_of_a_key_is_none(gateway: Running) -> None:
    assert gateway.ask(key=gateway.keys.users["tom"]).status == 401


OTHER_PATHS = [
    *("/metrics", "/slots", "/props", "/models/load", "/v1/models/coder", "/completion", "/health", "/", "/tokenize"),
    *("/v1//chat/completions", "//v1/chat/completions", "/v1/chat/completions/", "/v1/chat/../../slots"),
    *("/v1/chat/./completions", "/v1/chat%2Fcompletions", "/v1/chat/completions%00", "/v1/chat/completions;a"),
    *("/V1/chat/completions", "/v1/chat/completions%20", "/v1/%63hat/completions", "\\v1\\chat\\completions"),
    *("/lora-adapters", "/slots/0?action=erase", "/v1/audio/transcriptions", "/api/chat", "/infill"),
]


@pytest.mark.parametrize("path", OTHER_PATHS)
def test_what_is_not_listed_is_not_there(gateway: Running, path: str) -> None:
    answer = gateway.raw(request(line=f"POST {path} HTTP/1.1"))
    assert answer.split(b" ")[1] in (b"404", b"400")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "BREW", "post"])
def test_other_methods_are_refused(gateway: Running, method: str) -> None:
    answer = gateway.raw(request(line=f"{method} {CHAT} HTTP/1.1"))
    assert answer.split(b" ")[1] in (b"404", b"400")


def test_nobody_connects_through_it(gateway: Running) -> None:
    answer = gateway.raw(request(line="CONNECT 127.0.0.1:22 HTTP/1.1", body=b""))
    assert answer.split(b" ")[1] in (b"404", b"400", b"405")


OTHERS_MODELS = {
    "one of another user": b'{"model":"coder"}',
    "an alias of that": b'{"model":"gpt-4o"}',
    "a backend's name": b'{"model":"m_small"}',
    "with a user before it": b'{"model":"tom/coder"}',
    "none that there is": b'{"model":"nothing"}',
    "in other letters": b'{"model":"SMALL"}',
    "an empty one": b'{"model":""}',
    "with a blank": b'{"model":"small "}',
    "a very long one": b'{"model":"' + b"a" * 50_000 + b'"}',
    "a number": b'{"model":7}',
    "two in a list": b'{"model":["small"]}',
    "a mapping": b'{"model":{"a":"small"}}',
    "null": b'{"model":null}',
    "none at all": b'{"messages":[]}',
    "deeper down": b'{"a":{"model":"small"}}',
}
"""Bodies that name no model, or none of Ann's. What is no JSON object is in `test_one_model.py`."""


@pytest.mark.parametrize("body", OTHERS_MODELS.values(), ids=OTHERS_MODELS)
def test_models_that_are_not_a_users_are_refused(gateway: Running, body: bytes) -> None:
    answer = gateway.ask(key=ANN, body=body)
    assert (answer.status, answer.code) in ((404, "model_not_found"), (400, "model_required"))


CHUNKED = b"1f\r\n" + BODY + b"\r\n0\r\n\r\n"
SMUGGLED = b"0\r\n\r\nPOST " + CHAT.encode() + b" HTTP/1.1\r\nHost: a\r\nContent-Length: 31\r\n\r\n" + BODY
UNCLEAR = {
    "chunks": request("Transfer-Encoding: chunked", body=CHUNKED, length=False),
    "chunks and a length": request("Transfer-Encoding: chunked", "Content-Length: 4", body=SMUGGLED, length=False),
    "a length and chunks": request("Content-Length: 200", "Transfer-Encoding: chunked", body=SMUGGLED, length=False),
    "chunks that are hidden": request("Transfer-Encoding: xchunked", body=SMUGGLED, length=False),
    "chunks behind a tab": request("Transfer-Encoding:\tchunked", body=SMUGGLED, length=False),
    "chunks in two headers": request("Transfer-Encoding: identity", "Transfer-Encoding: chunked", body=SMUGGLED),
    "chunks in a folded header": request("X: a\r\n Transfer-Encoding: chunked", body=SMUGGLED, length=False),
    "chunks before a blank": request("Transfer-Encoding : chunked", body=SMUGGLED, length=False),
    "two lengths": request("Content-Length: 0", body=BODY),
    "two lengths in one": request("Content-Length: 31, 0", length=False),
    "a negative length": request("Content-Length: -1", length=False),
    "a length with a sign": request("Content-Length: +31", length=False),
    "a length in hex": request("Content-Length: 0x1f", length=False),
    "a length with a word": request("Content-Length: 31 bytes", length=False),
    "two lengths in two headers": request("Content-Length: 30", "Content-Length: 31", length=False),
    "chunks behind a comma": request("Transfer-Encoding: gzip, chunked", body=CHUNKED, length=False),
    "chunks and trailers": request("Transfer-Encoding: chunked", body=CHUNKED[:-2] + b"X: a\r\n\r\n", length=False),
    "a length beyond counting": request("Content-Length: 99999999999999999999", length=False),
    "no length": request(length=False),
    "a key twice": request(f"Authorization: Bearer {ANN}"),
    "a key of another in X-Api-Key twice": request(f"X-Api-Key: {ANN}", f"X-Api-Key: {TOM}"),
    "two hosts": request("Host: other"),
    "two types": request("Content-Type: application/json", "Content-Type: text/plain"),
    "an upgrade": request("Upgrade: websocket"),
    "a fragment": request(line=f"POST {CHAT}#x HTTP/1.1"),
    "a fragment behind a query": request(line=f"POST {CHAT}?a#x HTTP/1.1"),
    "an address with another host": request(line=f"POST http://other{CHAT} HTTP/1.1"),
    "all of a server": request(line="OPTIONS * HTTP/1.1", body=b""),
    "a version of two digits": request(line=f"POST {CHAT} HTTP/11.1"),
    "keys in both headers, twice": request(f"X-Api-Key: {TOM}", f"X-Api-Key: {ANN}"),
    "compressed": request("Content-Encoding: gzip"),
    "a header without a name": request(": nothing"),
    "a header with a blank in its name": request("Content Length: 31"),
    "no host": b"POST " + CHAT.encode() + b" HTTP/1.1\r\nContent-Length: 31\r\n\r\n" + BODY,
    "HTTP/0.9": f"GET {CHAT}\r\n\r\n".encode(),
    "HTTP/2 at once": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "TLS at once": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,
    "a hundred headers": request(*(f"X-{n}: a" for n in range(100))),
    "headers without an end": request(f"X-A: {'a' * 400_000}"),
    "an address with a blank": request(line=f"POST {CHAT} /slots HTTP/1.1"),
    "another server's address": request(line="POST http://other/slots HTTP/1.1"),
    "lines that end otherwise": request("X: a\rTransfer-Encoding: chunked", body=SMUGGLED, length=False),
}


@pytest.mark.parametrize("data", UNCLEAR.values(), ids=UNCLEAR)
def test_what_can_be_read_in_two_ways_is_read_in_none(gateway: Running, data: bytes) -> None:
    answer = gateway.raw(data)
    assert answer == b"" or answer.split(b" ")[1] in (b"400", b"401", b"404", b"408", b"411", b"413", b"415", b"422")
    assert answer.count(b"HTTP/1.1 200") == 0


@pytest.mark.parametrize("name", ["chunks", "no length"])
def test_a_request_without_a_length_gets_an_error_in_json(gateway: Running, name: str) -> None:
    head, _, body = gateway.raw(UNCLEAR[name]).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 411 ")
    assert b"content-type: application/json" in head
    assert json.loads(body)["error"]["code"] == "length_required"


@pytest.mark.parametrize("size", [100_001, 1_000_000, 20_000_000])
def test_what_is_too_large_is_refused_before_it_is_read(gateway: Running, size: int) -> None:
    answer = gateway.raw(request(f"Content-Length: {size}", length=False, body=b"{"))
    assert b"413" in answer.split(b"\r\n")[0]


def test_who_sends_no_whole_request_is_let_go(gateway: Running) -> None:
    """A hundred clients that begin and do not go on: others are answered meanwhile, and those are let go in time."""
    lines = [socket.create_connection(("127.0.0.1", gateway.plan.port), timeout=20) for _ in range(100)]
    for line in lines:
        line.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nX-A: ".encode())
    began = time.monotonic()
    assert gateway.ask("/healthz", method="GET", key=None).status == 200
    assert time.monotonic() - began < 2
    for line in lines:
        assert line.recv(100).split(b" ")[1] == b"408"
        line.close()
    assert time.monotonic() - began < 14


def test_no_key_is_in_the_log(gateway: Running) -> None:
    assert "status=401" in gateway.log
    assert not [key for key in (TOM, ANN, SERVERS_KEY, REVOKED, "sk-wrong") if key in gateway.log]
    assert "nothing" not in gateway.log, "what clients send is no line of a log"


def test_only_hashes_of_keys_are_in_its_files(gateway: Running) -> None:
    held = "".join(
        file.read_text(encoding="utf-8", errors="replace") for file in gateway.folder.iterdir() if file.is_file()
    )
    assert gateway.keys.users["tom"] in held
    assert TOM not in held
    assert ANN not in held
