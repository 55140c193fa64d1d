"""Each step alone, against a server that returns what a test scripts for a path."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from roles.serve.onhost.proof import CHAT_STEPS, LAST, STEPS, WITHOUT_PROMPTS, SkippedError
from roles.serve.onhost.session import Session
from roles.serve.onhost.wire import DeclaredServer, NotServingError

STREAM = b'data: {"choices": [{"delta": {"content": "red"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
CHAT = "/v1/chat/completions"
NAMED = {step.name: step for step in (*STEPS, *CHAT_STEPS, LAST, *WITHOUT_PROMPTS.values())}
Respond = Callable[[Any], tuple[int, object]]
"""Returns the status and the body for the JSON of a request."""


class Server(ThreadingHTTPServer):
    """Returns what is scripted for a path, and keeps the requests."""

    daemon_threads = True
    script: Mapping[str, Respond]
    requests: list[tuple[str, Any, str]]


class Handler(BaseHTTPRequestHandler):
    """Of such a server."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append((self.path, json.loads(body or "null"), self.headers["Authorization"] or ""))
        path, sent, _ = self.server.requests[-1]
        status, returned = self.server.script[path](sent) if path in self.server.script else (404, "none")
        content = returned if isinstance(returned, bytes) else json.dumps(returned).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/event-stream" if content == STREAM else "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as made:
        made.script, made.requests = {}, []
        thread = threading.Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def tried(
    server: Server, name: str, path: str = CHAT, caps: Mapping[str, object] | None = None, **declared: Any
) -> str:
    """Try one step. Return why it failed, why it is inconclusive, `skipped`, or nothing."""
    url = f"http://127.0.0.1:{server.server_port}"
    declared |= {"metrics": tuple(url + each for each in declared.get("metrics", ()))}
    body = {"model": "gemma"}
    target = DeclaredServer(url=url + path, body=body, **{"models": ("gemma",), "key": None} | declared)
    session = Session(target, time.monotonic() + 20, caps=dict(caps or {}), reads=1000.0, writes=100.0)
    try:
        NAMED[name].run(session)
    except SkippedError as error:
        return str(error) or "skipped"
    except NotServingError as error:
        return str(error)
    finally:
        session.connection.close()
    return ""


def always(body: object, status: int = 200) -> Respond:
    """Return the same body for each request."""
    return lambda _: (status, body)


def completion(text: str = "red", finish: str = "stop", calls: object = None, tokens: int = 1) -> dict[str, Any]:
    """Return a chat completion."""
    message = {"content": text, "tool_calls": calls}
    usage = {"completion_tokens": tokens, "prompt_tokens": 40}
    return {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}


MODELS = {"data": [{"id": "x", "aliases": ["gemma"]}]}


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, MODELS, ""),
        (200, {"data": [{"id": "gemma"}]}, ""),
        (200, {"data": [{"id": "other"}]}, "/v1/models does not list gemma"),
        (200, {"data": [{"name": "gemma"}]}, "/v1/models returns no list of models"),
        (200, {"data": [{"id": []}]}, "/v1/models returns no list of models"),
        (200, b"<html>", "/v1/models returns no list of models"),
        (500, {"error": {"message": "no"}}, "/v1/models returns HTTP 500: no"),
    ],
)
def test_the_list_of_models(server: Server, status: int, body: object, why: str) -> None:
    server.script = {"/v1/models": always(body, status)}
    assert tried(server, "its pages", models_path="/v1/models", key="k") == why
    assert server.requests == [("/v1/models", None, "Bearer k")]


@pytest.mark.parametrize(("body", "why"), [([], ""), ({"chat_template_caps": 7}, ""), (b"{", "/props returns some")])
def test_the_page_of_properties(server: Server, body: object, why: str) -> None:
    server.script = {"/props?model=a": always(body)}
    found = tried(server, "its pages", props_path="/props?model=a")
    assert found.startswith(why)
    assert bool(found) == bool(why)


GAUGE = b"llamacpp:requests_processing 0\n"


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, GAUGE, ""),
        (404, b"", ""),
        (501, b"", ""),
        (500, b"no", "/metrics returns HTTP 500: no"),
        (200, b"<html>", "/metrics returns no metrics of a server"),
    ],
)
def test_the_page_of_metrics(server: Server, status: int, body: bytes, why: str) -> None:
    server.script = {"/metrics": always(body, status), "/metrics?model=a": always(body, status)}
    assert tried(server, "its pages", metrics=["/metrics"]) == tried(server, "its pages", metrics=["/metrics?model=a"])
    assert tried(server, "its pages", metrics=["/metrics"]) == why
    # Those of a group are of models that may not be loaded.
    assert tried(server, "its pages", metrics=["/metrics", "/metrics?model=a"]) == ""


@pytest.mark.parametrize(("status", "why"), [(200, ""), (503, "/health returns HTTP 503: loading")])
def test_its_health(server: Server, status: int, why: str) -> None:
    server.script = {"/health": always(b"loading", status)}
    assert tried(server, "its health", health_path="/health") == why
    assert tried(server, "its health") == ""


@pytest.mark.parametrize(("kind", "sent"), [("chat", "messages"), ("embeddings", "input")])
def test_its_key_is_required(server: Server, kind: str, sent: str) -> None:
    server.script = {CHAT: always(b"", 401)}
    assert tried(server, "its key", key="secret", kind=kind) == ""
    assert all(sent in body for _, body, _ in server.requests)
    (_, _, first), (_, _, second) = server.requests
    assert first == ""
    assert second.startswith("Bearer wrong-")
    assert tried(server, "its key") == "skipped"


@pytest.mark.parametrize(
    ("right", "why"),
    [
        (set(), "a prompt without the key returns HTTP 200, and a key is declared"),
        ({""}, "a prompt with a wrong key returns HTTP 200, and a key is declared"),
    ],
)
def test_a_key_that_is_not_required(server: Server, right: set[str], why: str) -> None:
    server.script = {CHAT: lambda _: (401 if server.requests[-1][2] in right else 200, b"")}
    assert tried(server, "its key", key="secret") == why


UNSUPPORTED = {"error": {"message": "System role not supported"}}


@pytest.mark.parametrize(
    ("body", "caps", "why"),
    [
        (STREAM, {}, ""),
        (STREAM, {"supports_system_role": False}, "skipped"),
        (UNSUPPORTED, {}, "skipped"),
        (UNSUPPORTED, {"supports_system_role": True}, "a system message returns HTTP 500: System role not supported"),
        (b"CUDA error", {}, "a system message returns HTTP 500: CUDA error"),
    ],
)
def test_a_system_message(server: Server, body: object, caps: dict[str, object], why: str) -> None:
    server.script = {CHAT: always(body, 200 if body == STREAM else 500)}
    assert tried(server, "a system message", caps=caps) == why


def call(name: str = "mix_colour", arguments: str = '{"name": "red"}', **more: object) -> dict[str, object]:
    """Return the call of a tool."""
    return {"id": "1", "function": {"name": name, "arguments": arguments}} | more


NO_CALL = "a prompt with tools returns a call that is not one of the tool"


@pytest.mark.parametrize(
    ("body", "known", "why"),
    [
        (completion(calls=[call()]), True, ""),
        (completion(), True, "a prompt with tools returns no call, which was required"),
        (completion(), None, "the response has text instead of a call"),
        (completion(), False, "skipped"),
        (completion(finish="length"), True, "no complete call within 40 tokens"),
        (completion(calls=[call(name="other")]), None, NO_CALL),
        (completion(calls=[call(id="")]), None, NO_CALL),
        (completion(calls=[call(arguments='{"name": ')]), None, NO_CALL),
        (completion(calls=[call(arguments='{"name": ')], finish="length"), None, "no complete call within 40 tokens"),
        (completion(calls=[{"id": "1"}]), None, NO_CALL),
    ],
)
def test_a_call_of_a_tool(server: Server, body: object, known: bool | None, why: str) -> None:
    server.script = {CHAT: always(body)}
    assert tried(server, "tools", caps={} if known is None else {"supports_tools": known}) == why


INCOMPLETE = "the response ends, or thinks, before its object is complete"


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (['{"colour": "red"}'], ""),
        (['{"color": "red"}', '{"colour": "blue"}'], ""),
        (["<think>", ""], INCOMPLETE),
        (["red", ""], INCOMPLETE),
        (["red", "red"], 'a prompt with a JSON schema returns text that does not match that schema: "red"'),
        (["[]", '["red"]'], 'a prompt with a JSON schema returns text that does not match that schema: "[\\"red\\"]"'),
    ],
)
def test_a_json_schema(server: Server, texts: list[str], why: str) -> None:
    """The second try is for a small model that ended too early."""
    server.script = {CHAT: lambda _: (200, completion(texts.pop(0)))}
    assert tried(server, "a JSON schema") == why


def test_a_json_object_that_is_cut_off(server: Server) -> None:
    server.script = {CHAT: always(completion('{"colour":', finish="length"))}
    assert tried(server, "a JSON schema") == INCOMPLETE


@pytest.mark.parametrize(
    ("tokens", "why"),
    [(40, ""), (None, ""), (20, "a prompt of 240 characters returns a response after 20 tokens of it")],
)
def test_a_long_prompt_is_read_to_its_end(server: Server, tokens: int | None, why: str) -> None:
    body = completion()
    body["usage"] = {"completion_tokens": 1} | ({} if tokens is None else {"prompt_tokens": tokens})
    server.script = {CHAT: always(body)}
    assert tried(server, "a long prompt", context=960) == why
    assert tried(server, "a long prompt", context=80) == "skipped"


@pytest.mark.parametrize("text", ["", "\ufffd" * 5])
def test_a_response_that_nobody_sees(server: Server, text: str) -> None:
    server.script = {CHAT: always(completion(text, tokens=1 if text else 0))}
    what = "something other than text: " if text else "nothing"
    assert tried(server, "several turns").startswith(f"a conversation of several turns returns {what}")
    assert [sent["max_tokens"] for _, sent, _ in server.requests] == [4, 64, 64]


def test_a_longer_response_that_a_person_sees(server: Server) -> None:
    texts = ["", "red"]
    server.script = {CHAT: lambda _: (200, completion(text, tokens=1) if (text := texts.pop(0)) else completion(""))}
    assert tried(server, "several turns") == ""


VECTORS = [[0.5, 1], [1, 0.5], [0.5, 1]]


def vectors(sent: Any) -> tuple[int, object]:
    """Return the vectors of an embedding."""
    texts = sent["input"] if isinstance(sent["input"], list) else [sent["input"]]
    return 200, {"data": [{"index": n, "embedding": VECTORS[n]} for n, _ in enumerate(texts)]}


def test_an_embedding(server: Server) -> None:
    server.script = {"/v1/embeddings": vectors}
    assert tried(server, "an embedding", "/v1/embeddings") == ""


def test_an_embedding_for_each_token(server: Server) -> None:
    """llama.cpp returns those at another path; texts have as many as they have tokens."""
    refuses = always({"error": {"message": "Pooling type 'none' is not OAI compatible"}}, 400)
    texts = {2: [{"index": 0, "embedding": [[1, 2], [3, 4]]}, {"index": 1, "embedding": [[5, 6]]}]}
    one = [{"index": 0, "embedding": [[1, 2]]}]
    server.script = {
        "/v1/embeddings": refuses,
        "/embeddings": lambda sent: (200, texts[2] if isinstance(sent["content"], list) else one),
    }
    assert tried(server, "an embedding", "/v1/embeddings") == ""


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "no embedding"),
        ([{"index": 0, "embedding": "AAAA"}, {"index": 1, "embedding": [1]}], "no embedding"),
        ([{"index": 0, "embedding": [1]}, {"index": "1", "embedding": [2]}], "no embedding"),
        ([{"index": 0, "embedding": [1]}], "no embedding: numbers [0], of 2"),
        ([{"index": 0, "embedding": [1]}] * 2, "no embedding: numbers [0], of 2"),
        ([{"index": n, "embedding": [n, 0]} for n in (0, 1)], "no embedding: zeros, or vectors of several lengths"),
        ([{"index": n, "embedding": [1] * (n + 1)} for n in (0, 1)], "no embedding: zeros, or vectors of several len"),
        ([{"index": n, "embedding": [1]} for n in (0, 1)], "the same embedding for different texts"),
    ],
)
def test_what_is_no_embedding(server: Server, data: object, why: str) -> None:
    server.script = {"/v1/embeddings": always({"data": data})}
    assert tried(server, "an embedding", "/v1/embeddings").startswith(f"two embeddings returns {why}")


def scores(*pairs: tuple[object, object]) -> dict[str, object]:
    """Return the response to a rerank."""
    return {"results": [{"index": index, "relevance_score": score} for index, score in pairs]}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (scores((0, 3), (1, 0.5), (2, -1)), ""),
        (scores((0, 3), (1, 3), (2, 3)), "a rerank returns the same score for different documents"),
        (scores((0, 3), (1, 1)), "a rerank returns 2 scores of 3"),
        (scores((0, 3), (1, None), (2, 3)), "a rerank returns no scores of documents"),
        (scores((0, 3), ("1", 1), (2, 3)), "a rerank returns no scores of documents"),
        ([], "a rerank returns no scores of documents"),
    ],
)
def test_a_rerank(server: Server, body: object, why: str) -> None:
    server.script = {"/v1/rerank": always(body)}
    assert tried(server, "a rerank", "/v1/rerank") == why


def test_a_server_that_closes_a_kept_connection(server: Server) -> None:
    """Clients send such a request again."""
    server.script = {"/v1/models": always(MODELS), "/health": always(b"")}
    url = f"http://127.0.0.1:{server.server_port}"
    session = Session(DeclaredServer(url=url + CHAT), time.monotonic() + 20)
    assert session.get("/v1/models").status == 200
    assert session.connection.sock
    session.connection.sock.hang_up()
    assert session.get("/health").status == 200
    session.connection.close()
