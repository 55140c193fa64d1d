"""A user reaches the servers of that user's models alone, however a request is written: the real HAProxy, by the
configuration of a host, before a server for each model that records what reaches it.

Bodies are drawn by a seed. What a server would read from them is read by llama.cpp's own parser, and by Python's, which
vLLM uses.
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pytest

from tests.conftest import SEARCH
from tests.support.ambiguous_json import REFUSED, bodies, engine_reader, is_ambiguous, python_model
from tests.support.gateway import KEYS, SERVERS_KEY, Running, Seen, Upstream, free_port, made, rig_at, running, until

TOM, ANN = KEYS["tom"], KEYS["ann"]
CHAT = "/v1/chat/completions"
NAMES = {"coder": ("coder", "gpt-4o"), "small": ("small", "org/small:1")}
"""The models, and what each is called. Ann may use the small one alone."""
NUMBER = 200 * max(SEARCH, 1)


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Upstream]]:
    upstreams = {model: Upstream() for model in NAMES}
    yield upstreams
    for each in upstreams.values():
        each.stop()


@pytest.fixture(scope="module")
def gateway(servers: dict[str, Upstream], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    text = f"""
    gateway:
      on: [box]
      port: {free_port()}
      users:
        tom: {{key: {{env: A}}, streams: 50}}
        ann: {{key: {{env: B}}, streams: 50, models: [small]}}
      models:
        coder: {{serve: [box.coder], aliases: [gpt-4o]}}
        small: {{serve: [box.small], aliases: ["org/small:1"]}}
    """
    plan = made(text, [rig_at({model: server.port for model, server in servers.items()})])
    with running(plan, tmp_path_factory.mktemp("gateway")) as gateway:
        until(lambda: all(gateway.ask(model=model).status == 200 for model in NAMES))
        taken(servers)
        yield gateway


@pytest.fixture(scope="module")
def engine() -> Iterator[Callable[[bytes], object]]:
    with engine_reader() as read:
        yield read


@pytest.fixture(autouse=True)
def _nothing_else_reaches_a_server(servers: dict[str, Upstream]) -> Iterator[None]:
    taken(servers)
    yield
    assert taken(servers) == []


def taken(servers: Mapping[str, Upstream]) -> list[tuple[str, Seen]]:
    """What has reached servers, each with its model; it is forgotten."""
    found = [(model, seen) for model, server in servers.items() for seen in server.seen]
    for server in servers.values():
        server.seen.clear()
    return found


def test_what_reaches_a_server_names_its_model_to_every_reader(
    gateway: Running, servers: dict[str, Upstream], engine: Callable[[bytes], object]
) -> None:
    seed = int(os.environ.get("LLAMAHERD_SEED") or (random.randrange(10**6) if SEARCH else 1))
    print(f"{NUMBER} bodies; LLAMAHERD_SEED={seed} repeats them")
    counted: Counter[str] = Counter()
    names = [name for each in NAMES.values() for name in each]
    for number, body in enumerate(bodies(seed, NUMBER, names)):
        user, key = ("ann", ANN) if number % 4 == 0 else ("tom", TOM)
        answer = gateway.ask(key=key, body=body)
        reached = taken(servers)
        counted["ambiguous"] += is_ambiguous(body)
        if answer.status != 200:
            counted[f"{answer.status} {answer.message}"] += 1
            assert answer.status in (400, 404), body
            assert answer.message
            assert reached == [], body
            continue
        ((model, seen),) = reached
        counted["passed"] += 1
        assert seen.body == body
        assert not is_ambiguous(body), body
        assert user == "tom" or model == "small", body
        assert engine(body) in (*NAMES[model], REFUSED), body
        assert python_model(body) in (*NAMES[model], REFUSED), body
    print(dict(counted))
    assert counted["ambiguous"] > NUMBER / 20
    assert counted["passed"] > NUMBER / 8


@pytest.mark.parametrize("first", [b'"model"', b'"mo\\u0064el"', b'"\\u006Dodel"'])
@pytest.mark.parametrize("second", [b'"model"', b'"m\\u006fdel"', b'"Model"'])
@pytest.mark.parametrize("blank", [b"", b" " * 60_000], ids=["no blank", "60 KB of blanks"])
@pytest.mark.parametrize("names", [(b'"small"', b'"coder"'), (b'"coder"', b'"small"'), (b'"small"', b'"small"')])
def test_two_models_are_refused(
    gateway: Running, first: bytes, second: bytes, blank: bytes, names: tuple[bytes, bytes]
) -> None:
    members = b'"messages":[{"model":"x"}],%s%s:%s,"n":1,%s:%s' % (first, blank, names[0], second, names[1])
    body = b"{%s%s%s}" % (blank, members, blank)
    answer = gateway.ask(key=ANN, body=body)
    assert (answer.status, answer.code) == (400, "bad_request")
    assert answer.message.startswith(("the request has `model` twice", "a key at the top of the request"))


UNCLEAR = {
    "an escape in the key alone": (b'{"mode\\u006c":"small"}', "a key at the top of the request is written with"),
    "an escape in the model": (b'{"model":"sm\\u0061ll"}', "the value of `model` is written with a backslash"),
    "a quote in the model": (b'{"model":"small\\""}', "the value of `model` is written with a backslash"),
    "two documents": (b'{"model":"small"} {"model":"coder"}', "something follows the JSON object"),
    "a comment": (b'{"model":"small"/*,"model":"coder"*/}', "the request is not one JSON object"),
    "single quotes": (b"{'model':'small'}", "the request is not one JSON object"),
    "a last comma": (b'{"model":"small",}', "the request is not one JSON object"),
    "NaN": (b'{"top_p":NaN,"model":"small"}', "the request is not one JSON object"),
    "an unknown escape": (b'{"a":"\\x","model":"small"}', "the request is not one JSON object"),
    "a mark of the byte order": (b'\xef\xbb\xbf{"model":"small"}', "the request is not one JSON object"),
    "UTF-16": ('{"model":"small"}'.encode("utf-16-le"), "the request is not a text in UTF-8"),
    "half of a character": (b'{"a":"\xc3","model":"small"}', "the request is not a text in UTF-8"),
    "a NUL": (b'{"a":"\0","model":"small"}', "the request is not a text in UTF-8"),
    "101 levels": (b'{"a":' + b"[" * 100 + b"]" * 100 + b',"model":"small"}', "the request is nested more than 100"),
    "a million levels": (b"[" * 1_000_000, "the request is not one JSON object"),
    "a million levels in a key": (b'{"a":' * 700_000, "the request is nested more than 100"),
    "half of JSON": (b'{"model":"small', "the request is not one JSON object"),
    "nothing": (b"", "the request is not one JSON object"),
    "a list": (b'[{"model":"small"}]', "the request is not one JSON object"),
    "a form": (b"model=small&model=coder", "the request is not one JSON object"),
    "a form with files": (
        b'--a\r\nContent-Disposition: form-data; name="model"\r\n\r\nsmall\r\n--a--\r\n',
        "the request is not one JSON object",
    ),
}


@pytest.mark.parametrize(("body", "message"), UNCLEAR.values(), ids=UNCLEAR)
def test_a_body_that_is_not_clear_is_refused_with_a_sentence(gateway: Running, body: bytes, message: str) -> None:
    answer = gateway.ask(key=ANN, body=body)
    assert (answer.status, answer.code) == (400, "bad_request")
    assert answer.message.startswith(message)


def test_a_body_that_does_not_fit_beside_its_headers_is_refused(gateway: Running) -> None:
    """HAProxy's buffer ends before the second `model`, which the server would read."""
    body = b'{"model":"small","a":"' + b"a" * 3_900_000 + b'","model":"coder"}'
    head = f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {ANN}\r\nX-A: {'a' * 300_000}\r\n"
    answer = gateway.raw(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"the request and its headers are too large together" in answer


def test_what_takes_too_long_to_read_is_refused(gateway: Running, servers: dict[str, Upstream]) -> None:
    """Nothing passes that the program has not read to its end: here it is the time for it that ends."""
    config = gateway.folder / "haproxy.cfg"
    before = config.read_text()
    config.write_text(before.replace("session-timeout 20s", "session-timeout 1ms"))
    try:
        gateway.reload()
        body = b'{"model":"small","a":[' + b"1," * 1_000_000 + b"1]}"
        until(lambda: gateway.ask(key=ANN, body=body).status == 400)
        assert gateway.ask(key=ANN, body=body).message == "the request could not be read"
    finally:
        config.write_text(before)
        gateway.reload()
        until(lambda: gateway.ask(key=ANN, body=body).status == 200)
        taken(servers)


PNG = base64.b64encode(bytes(range(256)) * 3000).decode()
TOOL = {
    "type": "function",
    "function": {
        "name": "edit",
        "parameters": {"type": "object", "properties": {"model": {"type": "string"}, "path": {"enum": ["a\\b", "ü"]}}},
    },
}
CALL = {
    "id": "1",
    "type": "function",
    "function": {"name": "edit", "arguments": '{"model":"coder","path":"C:\\\\\\\\"}'},
}
MESSAGES = [
    {"role": "system", "content": 'Write JSON such as {"model": "coder"}.\n\t"quoted" \\ / 日本語 😀 \u2028 \x7f'},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": json.dumps({"model": ["coder"]}, indent=4)},
]
DEEP: object = "a"
for _ in range(90):
    DEEP = {"type": "object", "properties": DEEP}
CLIENTS = {
    "OpenAI's SDK": {"messages": MESSAGES, "model": "small", "stream": True, "stream_options": {"include_usage": True}},
    "opencode": {"model": "small", "max_tokens": 32000, "messages": MESSAGES * 3, "tools": [TOOL] * 20, "stream": True},
    "the model at the end": {"messages": [{"role": "user", "content": 'ä" \\ \n' * 100_000}], "model": "org/small:1"},
    "Claude Code": {
        "system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
        "metadata": {"model": "coder"},
        "model": "small",
    },
    "embeddings of tokens": {"input": [list(range(20_000)), [1, 2, 3]], "model": "small", "encoding_format": "base64"},
    "numbers": {"top_p": 1e-05, "seed": 2**63 - 1, "logit_bias": {"50256": -100.0}, "model": "small"},
    "a deep schema": {"model": "small", "response_format": DEEP},
    "all values": {"a": None, "b": True, "c": False, "d": [], "e": {}, "f": "", "": [[], {}, [{}]], "model": "small"},
}
WAYS: dict[str, Callable[[object], str]] = {
    "as Python": json.dumps,
    "as JavaScript": partial(json.dumps, ensure_ascii=False, separators=(",", ":")),
    "pretty": partial(json.dumps, indent=4),
    "with tabs": partial(json.dumps, indent="\t", ensure_ascii=False),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("request_", CLIENTS.values(), ids=CLIENTS)
def test_what_ordinary_clients_send_passes_as_it_is(
    gateway: Running,
    servers: dict[str, Upstream],
    engine: Callable[[bytes], object],
    request_: Mapping[str, object],
    way: Callable[[object], str],
) -> None:
    body = f"{way(request_)}\r\n".encode()
    assert gateway.ask(key=ANN, body=body).status == 200
    ((model, seen),) = taken(servers)
    assert (model, seen.body) == ("small", body)
    assert engine(body) == python_model(body) == request_["model"]


def test_slashes_with_a_backslash_pass(gateway: Running, servers: dict[str, Upstream]) -> None:
    """PHP writes them so."""
    assert gateway.ask(key=ANN, body=b'{"model":"org\\/small:1","url":"https:\\/\\/a"}').status == 200
    assert [model for model, _ in taken(servers)] == ["small"]


ELSEWHERE = {
    "in the query": (f"POST {CHAT}?model=coder&api_key={TOM}&autoload=true HTTP/1.1", ""),
    "an address with this host": (f"POST http://gateway{CHAT} HTTP/1.1", ""),
    "an address with another scheme": (f"POST ftp://gateway{CHAT} HTTP/1.1", ""),
    "an address with another user": (f"POST http://tom:{TOM}@gateway{CHAT} HTTP/1.1", ""),
    "a later version": (f"POST {CHAT} HTTP/1.2", ""),
    "in headers": (f"POST {CHAT} HTTP/1.1", "X-Model: coder\r\nModel: coder\r\nOpenAI-Model: coder\r\n"),
    "another key beside": (f"POST {CHAT} HTTP/1.1", f"X-Api-Key: {TOM}\r\nApi-Key: {TOM}\r\nCookie: key={TOM}\r\n"),
    "another key by a proxy": (f"POST {CHAT} HTTP/1.1", f"Proxy-Authorization: Bearer {TOM}\r\n"),
    "another address": (f"POST {CHAT} HTTP/1.1", "X-Original-URL: /slots\r\nX-Rewrite-URL: /slots\r\n"),
    "another method": (f"POST {CHAT} HTTP/1.1", "X-HTTP-Method-Override: DELETE\r\nX-HTTP-Method: GET\r\n"),
    "another client": (f"POST {CHAT} HTTP/1.1", "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-User: tom\r\n"),
    "a form's type": (f"POST {CHAT} HTTP/1.1", "Content-Type: application/x-www-form-urlencoded\r\n"),
    "a type with files": (f"POST {CHAT} HTTP/1.1", "Content-Type: multipart/form-data; boundary=a\r\n"),
    "a type with a character set": (f"POST {CHAT} HTTP/1.1", "Content-Type: application/json; charset=utf-16\r\n"),
    "trailers": (f"POST {CHAT} HTTP/1.1", "Trailer: Authorization\r\nTE: trailers\r\n"),
    "headers to drop": (f"POST {CHAT} HTTP/1.1", "Connection: authorization, content-length\r\n"),
    "an expectation": (f"POST {CHAT} HTTP/1.1", "Expect: 100-continue\r\n"),
    "a conversation": (f"POST {CHAT} HTTP/1.1", "X-Conversation-Id: toms\r\nLast-Event-ID: 1\r\n"),
    "HTTP/1.0": (f"POST {CHAT} HTTP/1.0", "Connection: keep-alive\r\n"),
}


@pytest.mark.parametrize(("line", "headers"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_servers_are_sent_nothing_but_a_users_body(
    gateway: Running, servers: dict[str, Upstream], line: str, headers: str
) -> None:
    body = b'{"model":"small"}'
    head = f"{line}\r\nHost: gateway\r\nAuthorization: Bearer {ANN}\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    assert b"HTTP/1.1 200 " in gateway.raw(head.encode() + body, 0.5)
    ((model, seen),) = taken(servers)
    own = {"host": "gateway", "content-length": str(len(body)), "content-type": "application/json"}
    sent = {name: value for name, value in seen.headers.items() if name != "connection"}
    assert (model, seen.body, sent) == ("small", body, {**own, "authorization": f"Bearer {SERVERS_KEY}"})
    assert seen.line.rpartition(" ")[0] == f"POST {CHAT}"
    assert seen.headers.get("connection", "keep-alive") == "keep-alive"


def test_each_request_of_a_connection_is_judged_by_itself(gateway: Running, servers: dict[str, Upstream]) -> None:
    """What was found for the first one counts for none behind it, and no key does."""

    def part(model: str, key: str | None) -> bytes:
        body = json.dumps({"model": model}).encode()
        bearer = f"Authorization: Bearer {key}\r\n" if key else ""
        return f"POST {CHAT} HTTP/1.1\r\nHost: a\r\n{bearer}Content-Length: {len(body)}\r\n\r\n".encode() + body

    parts = [("coder", TOM), ("coder", ANN), ("small", ANN), ("small", None), ("coder", ANN), ("coder", TOM)]
    answer = gateway.raw(b"".join(part(*each) for each in parts), 1)
    statuses = re.findall(rb"HTTP/1\.1 (\d+) ", answer)
    assert statuses == [b"200", b"404", b"200", b"401", b"404", b"200"]
    assert sorted(model for model, _ in taken(servers)) == ["coder", "coder", "small"]


@pytest.mark.parametrize("length", [2**31, 2**32 + 17, 2**63 - 1])
def test_a_length_that_some_programs_cannot_count_is_refused_at_once(gateway: Running, length: int) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {ANN}\r\nContent-Length: {length}\r\n\r\n"
    assert gateway.raw(head.encode() + b'{"model":"small"}', 0.5).startswith(b"HTTP/1.1 413 ")
