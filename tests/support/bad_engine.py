"""A llama-server without a model that serves well, or misbehaves as a mode says: standard library, one file.

It takes llama-server's arguments. Its mode is the first line of the file that BAD_ENGINE_FILE names (/etc/bad-engine
without), read at each request; where that is missing, the variable BAD_ENGINE. Several modes are separated by blanks.
`MODES` lists them. These take numbers: `die:SECONDS:CODE` exits so long after the first prompt, `hang:SECONDS` responds
no more so long after it, `after:SECONDS:MODE` and `nth:COUNT:MODE` begin to misbehave then.

Here: `serving("empty")` runs it on loopback. On a host: `engine(folder)` writes an archive and returns an engine of it
to declare, and an instance's `environment: {BAD_ENGINE: empty}` sets the mode. It runs as a unit, not in a container.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, cycle, repeat
from pathlib import Path
from typing import Any

VERSION = 11434
WORDS = [
    "red",
    "yellow",
    "and",
    "blue",
    "are",
    "the",
    "colours",
    "that",
    "all",
    "others",
    "are",
    "mixed",
    "from",
    "so",
    "they",
    "say",
    "in",
    "every",
    "school",
]
SPECIAL = "<|im_end|>"
PACE = 0.002
"""Seconds for each token."""
PROMPT_PACE = 0.00005

Json = dict[str, Any]
Change = Callable[[Json], object]


def first_choice(said: Json) -> Json:
    """Return the first choice of a completion."""
    choice: Json = said["choices"][0]
    return choice


def message(said: Json) -> Json:
    """Return the message of a completion."""
    found: Json = first_choice(said)["message"]
    return found


TEXTS = {
    "empty": "",
    "blanks": " \n\t ",
    "replacement": "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd",
    "mostly-replacement": "\ufffd\ufffda\ufffd\ufffd\ufffd",
    "special": SPECIAL * 3,
    "markers": "<|im_end|> <|im_start|>",
    "special-bos": "<s></s><pad><unused12>",
    "control": "\x01\x02\x03\x04\x7f",
    "invisible": "\u200b\u2060\ufeff\u200b",
    "one-character": "!" * 40,
    "one-letter": "G" * 40,
    "one-word": "red " * 9,
    "one-token": "red" * 30,
    "private-use": "\ue000\ue001\ue002",
}
"""What is written instead of text, streamed or not."""

COMPLETIONS: dict[str, Change] = {
    "null-text": lambda said: message(said).update(content=None),
    "text-is-a-list": lambda said: message(said).update(content=["red"]),
    "no-choices": lambda said: said.update(choices=[]),
    "no-message": lambda said: first_choice(said).pop("message"),
    "no-finish-reason": lambda said: first_choice(said).update(finish_reason=None),
    "odd-finish-reason": lambda said: first_choice(said).update(finish_reason="error"),
    "wrong-role": lambda said: message(said).update(role="user"),
    "error-with-200": lambda said: (said.pop("choices"), said.update(error={"message": "CUDA error", "code": 500})),
    "other-model": lambda said: said.update(model="somebody-elses-model"),
    "no-tokens-counted": lambda said: said.update(usage={"prompt_tokens": 0, "completion_tokens": 0}),
    "too-many-tokens-counted": lambda said: said["usage"].update(completion_tokens=10**9),
    "negative-tokens": lambda said: said["usage"].update(prompt_tokens=-1),
    "no-usage": lambda said: said.pop("usage"),
    "wrong-object": lambda said: said.update(object="text_completion"),
}
"""What is changed in a completion that is not streamed."""

SHAPES: dict[str, Callable[[bytes], bytes]] = {
    "html": lambda _: b"<html>It works!</html>",
    "not-a-number": lambda body: body[:-1] + b', "created_at": NaN}',
    "bad-utf-8": lambda body: body.replace(b'"content": "', b'"content": "\xff\xfe'),
    "two-objects": lambda body: body + body,
    "half-an-object": lambda body: body[: len(body) // 2],
    "array": lambda body: b"[" + body + b"]",
    "empty-body": lambda _: b"",
    "deep": lambda _: b"[" * 100_000,
}
"""What is changed in the bytes of a completion that is not streamed."""

STREAMS: dict[str, Callable[[list[str]], list[str]]] = {
    "stream-empty": lambda _: [],
    "stream-without-done": lambda events: events[:-1],
    "stream-without-finish": lambda events: [each for each in events if '"finish_reason": "' not in each],
    "stream-bad-json": lambda events: [*events[:2], events[2][:-2], *events[3:]],
    "stream-error": lambda events: [*events[:2], '{"error": {"message": "CUDA error", "code": 500}}'],
    "stream-without-text": lambda events: [*events[:1], *events[-2:]],
    "stream-other-model": lambda events: [each.replace('"model": "', '"model": "other-') for each in events],
    "stream-html": lambda _: ["<html>"],
    "stream-null": lambda events: [*events[:1], "null", *events[1:]],
    "stream-no-choices": lambda events: [each.replace('"choices"', '"choice"') for each in events],
    "stream-one-letter": lambda events: [
        each.replace('"content": "', '"content": "GGGG", "was": "') for each in events
    ],
}
"""What is changed in the events of a stream."""

FAILS: dict[str, Callable[[Json], bool]] = {
    "fails-always": lambda _: True,
    "fails-streams": lambda asked: bool(asked.get("stream")),
    "fails-system": lambda asked: any(each["role"] == "system" for each in asked["messages"]),
    "fails-turns": lambda asked: any(each["role"] == "assistant" for each in asked["messages"]),
    "fails-one-turn": lambda asked: len(asked["messages"]) == 1,
    "fails-unicode": lambda asked: not json.dumps(asked["messages"], ensure_ascii=False).isascii(),
    "fails-long": lambda asked: prompt_tokens(asked) > 80,
    "fails-tools": lambda asked: "tools" in asked,
    "fails-schemas": lambda asked: "response_format" in asked,
    "fails-without-temperature": lambda asked: "temperature" not in asked,
}
"""Prompts that are answered with HTTP 500."""

GETS: dict[str, tuple[str, int, str]] = {
    "models-fail": ("/v1/models", 500, '{"error": {"message": "no"}}'),
    "models-empty": ("/v1/models", 200, '{"object": "list", "data": []}'),
    "models-other": ("/v1/models", 200, '{"object": "list", "data": [{"id": "another", "object": "model"}]}'),
    "models-html": ("/v1/models", 200, "<html>"),
    "metrics-fail": ("/metrics", 500, "no"),
    "metrics-html": ("/metrics", 200, "<html>"),
    "props-fail": ("/props", 500, '{"error": {"message": "no"}}'),
    "health-fails": ("/health", 503, '{"error": {"message": "no"}}'),
}
"""Paths that are answered so after the first prompt."""

Sent = Iterable[tuple[bytes, float]]
"""Bytes, and the seconds after each."""


def head(status: int, kind: str, length: int | None = None, more: str = "") -> bytes:
    """Return a response's head; one whose body has no length is sent in chunks."""
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {kind}\r\n{size}\r\n{more}\r\n".encode()


def first(what: bytes, then: Sent = ()) -> list[Sent]:
    """Return what is sent first, and what follows."""
    return [[(what, 0)], then]


JSON = "application/json; charset=utf-8"
EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": "red "}, "finish_reason": null}]}\n\n'
CHUNK = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
WIRE: dict[str, list[Sent]] = {
    "drip": first(head(200, JSON, 1_000_000), repeat((b" ", 3))),
    "drip-headers": [cycle([(bytes([byte]), 0.5) for byte in b"HTTP/1.1 200 OK\r\n"])],
    "endless-headers": first(b"HTTP/1.1 200 OK\r\n", repeat((b"X-More: and more\r\n", 0.0005))),
    "endless-header": first(b"HTTP/1.1 200 OK\r\nX-More: ", repeat((b"and more" * 64, 0.0005))),
    "endless-body": first(head(200, JSON), repeat((b"4\r\n    \r\n", 0.0001))),
    "redirect": first(head(302, "text/html", 0, "Location: /v1/chat/completions\r\n")),
    "continue-for-ever": [repeat((b"HTTP/1.1 100 Continue\r\n\r\n", 0.001))],
    "silent": first(b"", [(b"", 3600)]),
    "closes": [],
    "cut-short": first(head(200, JSON, 500) + b'{"id": "'),
    "huge": first(head(200, JSON, 1 << 34), repeat((b" " * 65536, 0))),
    "gzip": first(head(200, JSON, 4, "Content-Encoding: gzip\r\n") + b"\x1f\x8b  "),
    "no-http": first(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "status-204": first(head(204, JSON, 0)),
}
"""What goes wrong on the wire, instead of a response."""
STREAM_WIRE: dict[str, list[Sent]] = {
    "endless-stream": first(head(200, "text/event-stream"), repeat((CHUNK, 0.01))),
    "stalled-stream": first(head(200, "text/event-stream") + CHUNK, [(b"", 3600)]),
    "drip-stream": first(head(200, "text/event-stream"), repeat((b"8\r\n: beat\n\n\r\n", 0.5))),
    "closed-stream": first(head(200, "text/event-stream") + CHUNK),
}
"""The same of streams alone."""

OTHERS = (
    "tool-text",
    "tool-bad-arguments",
    "tool-other-name",
    "tool-without-id",
    "tool-without-calls",
    "schema-ignored",
    "schema-other",
    "forgets-long-prompts",
    "ignores-max-tokens",
    "key-not-needed",
    "key-any",
    "key-refused",
    "listens-everywhere",
    "listens-twice",
    "dies-at-disconnect",
    "hangs-at-disconnect",
    "deadlock",
    "swaps-answers",
    "slots-leak",
    "stream-die",
    "stream-cut",
    "stream-as-a-body",
    "stream-as-text",
    "status-500-with-text",
)
"""What is wrong with more than a response."""

EMBEDDINGS = (
    "vector-empty",
    "vector-zeros",
    "vector-null",
    "vector-nan",
    "vector-text",
    "vector-same",
    "vector-missing",
    "vector-lengths",
    "vector-huge",
    "embedding-fails",
    "vector-order",
)
RERANKS = ("scores-missing", "scores-null", "scores-same", "scores-index", "scores-nan", "rerank-fails", "scores-text")

CHATS = (*TEXTS, *COMPLETIONS, *SHAPES, *STREAMS, *FAILS, *GETS, *WIRE, *STREAM_WIRE, *OTHERS)
MODES = {"chat": CHATS, "embeddings": EMBEDDINGS, "rerank": RERANKS}
"""All ways to misbehave, by the kind of server; without a mode, it serves well."""


def prompt_tokens(asked: Json) -> int:
    """Return the number of tokens of a prompt, by its length alone."""
    return sum(len(str(each.get("content"))) // 4 + 4 for each in asked["messages"])


def value_of(schema: Json) -> object:
    """Return the least value that a JSON schema allows."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "object":
        return {name: value_of(each) for name, each in schema.get("properties", {}).items()}
    return {"boolean": True, "integer": 1, "number": 1.5, "array": []}.get(schema.get("type", ""), "red")


@dataclass
class Options:
    """The arguments that matter."""

    host: str = "127.0.0.1"
    port: int = 8080
    alias: str = "model"
    model: str = "/model.gguf"
    context: int = 4096
    slots: int = 1
    kind: str = "chat"
    keys: frozenset[str] = frozenset()


def options(arguments: Sequence[str]) -> Options:
    """Read llama-server's arguments; those that do not matter here are left out."""
    found = Options()
    for name, value in zip(arguments, [*arguments[1:], ""], strict=True):
        if name == "--host":
            found.host = value
        elif name == "--port":
            found.port = int(value)
        elif name in ("--alias", "-a"):
            found.alias = value
        elif name in ("--model", "-m"):
            found.model = value
        elif name in ("--ctx-size", "-c"):
            found.context = int(value)
        elif name in ("--parallel", "-np"):
            found.slots = int(value)
        elif name in ("--embedding", "--embeddings"):
            found.kind = "embeddings"
        elif name in ("--rerank", "--reranking"):
            found.kind = "rerank"
        elif name == "--api-key":
            found.keys = frozenset(value.split(","))
        elif name == "--api-key-file":
            found.keys = frozenset(Path(value).read_text(encoding="utf-8").split())
    return found


@dataclass
class State:
    """What a server remembers: prompts, when the first one came, and who waits."""

    prompts: int = 0
    first: float = 0.0
    busy: int = 0
    broken: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    pair: threading.Barrier = field(default_factory=lambda: threading.Barrier(2))
    swapped: list[int] = field(default_factory=list)

    def begins(self) -> None:
        """Count a prompt."""
        with self.lock:
            self.prompts += 1
            self.busy += 1
            self.first = self.first or time.monotonic()


def declared_mode() -> str:
    """Return the mode that is set now."""
    with suppress(OSError):
        return Path(os.environ.get("BAD_ENGINE_FILE", "/etc/bad-engine")).read_text(encoding="utf-8").strip()
    return os.environ.get("BAD_ENGINE", "")


def modes(state: State) -> Iterator[str]:
    """Yield the modes that are in force now."""
    since = time.monotonic() - state.first if state.first else -1.0
    for word in declared_mode().split():
        name, *rest = word.split(":")
        if name in ("after", "hang"):
            if since >= float(rest[0]):
                yield "silent" if name == "hang" else ":".join(rest[1:])
        elif name == "nth":
            if state.prompts >= int(rest[0]):
                yield ":".join(rest[1:])
        else:
            yield word


class Server(ThreadingHTTPServer):
    """One that listens where it is told to."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, chosen: Options) -> None:
        self.chosen, self.state, self.began = chosen, State(), time.time()
        self.address_family = socket.AF_INET6 if ":" in chosen.host else socket.AF_INET
        everywhere = "listens-everywhere" in declared_mode().split()
        super().__init__(("0.0.0.0" if everywhere else chosen.host, chosen.port), Handler)

    def handle_error(self, *_: object) -> None:
        """A client that leaves is no error."""


class Handler(BaseHTTPRequestHandler):
    """Responds as llama-server b11434 does."""

    protocol_version = "HTTP/1.1"
    server: Server
    now: frozenset[str]

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        state, path = self.server.state, self.path.partition("?")[0]
        self.now = frozenset(modes(state))
        if "silent" in self.now and state.prompts:
            time.sleep(3600)
        for name in self.now & GETS.keys():
            where, status, text = GETS[name]
            if path == where and state.prompts:
                self.responds(status, text.encode())
                return
        pages = {
            "/health": self.health,
            "/v1/models": self.models,
            "/props": self.props,
            "/slots": self.slots,
            "/metrics": self.metrics,
        }
        if path != "/health" and not self.allowed():
            return
        if path not in pages:
            self.fails(404, "File Not Found", "not_found_error")
        elif path == "/metrics":
            self.responds(200, self.metrics().encode(), "text/plain; version=0.0.4")
        else:
            self.says(pages[path]())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        state, chosen = self.server.state, self.server.chosen
        self.now = frozenset(modes(state))
        if not self.allowed():
            return
        try:
            asked = json.loads(body)
        except ValueError:
            self.fails(400, "not JSON")
            return
        paths = {
            ("chat", "/v1/chat/completions"): self.chats,
            ("embeddings", "/v1/embeddings"): self.embeds,
            ("rerank", "/v1/rerank"): self.reranks,
        }
        if (chosen.kind, self.path) not in paths:
            self.fails(501 if self.path.startswith("/v1/") else 404, "not supported", "not_supported_error")
            return
        state.begins()
        try:
            if not self.on_the_wire(asked) and not self.breaks(asked):
                paths[chosen.kind, self.path](asked)
        finally:
            state.busy -= 1

    def allowed(self) -> bool:
        """Whether a request has the key; one without is refused."""
        keys = self.server.chosen.keys
        scheme, _, key = (self.headers.get("Authorization") or "").partition(" ")
        if "key-refused" in self.now or (keys and "key-not-needed" not in self.now):
            right = scheme == "Bearer" and (key in keys or ("key-any" in self.now and key))
            if not right or "key-refused" in self.now:
                self.fails(401, "Invalid API Key", "authentication_error")
                return False
        return True

    # What is asked for.

    def health(self) -> Json:
        return {"status": "ok"}

    def models(self) -> Json:
        chosen = self.server.chosen
        meta = {"n_vocab": 1000, "n_ctx_train": 32768, "n_ctx": chosen.context, "n_embd": 8, "n_params": 1, "size": 1}
        one = {"id": chosen.alias, "aliases": [], "object": "model", "owned_by": "llamacpp", "meta": meta}
        return {"object": "list", "data": [one]}

    def props(self) -> Json:
        chosen = self.server.chosen
        context = chosen.context // max(1, chosen.slots)
        tools = "no-tools" not in self.now
        caps = {"supports_tools": tools, "supports_tool_calls": tools, "supports_system_role": True}
        return {
            "default_generation_settings": {"params": {}, "n_ctx": context},
            "total_slots": chosen.slots,
            "model_alias": chosen.alias,
            "model_path": chosen.model,
            "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
            "chat_template_caps": caps,
            "build_info": f"b{VERSION}-bad",
            "is_sleeping": False,
        }

    def slots(self) -> list[Json]:
        state, chosen = self.server.state, self.server.chosen
        context = chosen.context // max(1, chosen.slots)
        return [{"id": n, "n_ctx": context, "is_processing": n < state.busy} for n in range(chosen.slots)]

    def metrics(self) -> str:
        state = self.server.state
        busy = state.busy + ("busy" in self.now)
        lines = {"requests_processing": busy, "requests_deferred": 0, "tokens_predicted_total": state.prompts}
        return "".join(f"# TYPE llamacpp:{name} gauge\nllamacpp:{name} {count}\n" for name, count in lines.items())

    def chats(self, asked: Json) -> None:
        text, called, finish = self.written(asked)
        words = [word for word in text.split(" ") if word]
        count = max(1, len(words))
        took = PACE * count
        if "swaps-answers" in self.now:
            count = self.swapped(count)
        usage = {"prompt_tokens": prompt_tokens(asked), "completion_tokens": count}
        usage["total_tokens"] = sum(usage.values())
        if "forgets-long-prompts" in self.now:
            usage["prompt_tokens"] = min(20, usage["prompt_tokens"])
        timings = {"prompt_n": usage["prompt_tokens"], "prompt_ms": 1000 * PROMPT_PACE * usage["prompt_tokens"]}
        timings |= {"prompt_per_second": 1 / PROMPT_PACE, "predicted_n": count, "predicted_ms": 1000 * took}
        time.sleep(PROMPT_PACE * usage["prompt_tokens"])
        base = {"id": "chatcmpl-bad", "created": int(time.time()), "model": self.server.chosen.alias}
        if asked.get("stream"):
            self.streams(asked, base | {"object": "chat.completion.chunk"}, text, called, finish, usage, timings)
            return
        time.sleep(took)
        answer = {"role": "assistant", "content": text if not called else None} | called
        said: Json = base | {"object": "chat.completion", "usage": usage, "timings": timings}
        said["choices"] = [{"index": 0, "finish_reason": finish, "message": answer}]
        for name in self.now & COMPLETIONS.keys():
            COMPLETIONS[name](said)
        body = json.dumps(said).encode()
        for name in self.now & SHAPES.keys():
            body = SHAPES[name](body)
        self.responds(500 if "status-500-with-text" in self.now else 200, body)
        self.dies_later()

    def written(self, asked: Json) -> tuple[str, Json, str]:
        """Return the text, the tool calls and why it ends."""
        most = int(asked.get("max_tokens") or asked.get("max_completion_tokens") or 200)
        if "tool-text" in self.now and "tools" in asked:
            return "I mix no colours.", {}, "stop"
        if "ignores-max-tokens" in self.now:
            most = 600
        for name in self.now & TEXTS.keys():
            return TEXTS[name], {}, "length"
        tools = asked.get("tools") or []
        if tools and asked.get("tool_choice") not in (None, "auto", "none"):
            return "", self.calls(tools[0]["function"]), "tool_calls"
        if schema := (asked.get("response_format") or {}).get("json_schema", {}).get("schema"):
            if "schema-other" in self.now:
                return '{"another": 1}', {}, "stop"
            if "schema-ignored" not in self.now:
                return json.dumps(value_of(schema)), {}, "stop"
        return " ".join(WORDS[n % len(WORDS)] for n in range(most)), {}, "length"

    def calls(self, function: Json) -> Json:
        """Return a message's call of a tool."""
        arguments = json.dumps(value_of(function.get("parameters", {"type": "object"})))
        if "tool-bad-arguments" in self.now:
            arguments = arguments[:-1]
        name = "another" if "tool-other-name" in self.now else function["name"]
        call = {"type": "function", "id": "call-1", "function": {"name": name, "arguments": arguments}}
        if "tool-without-id" in self.now:
            del call["id"]
        return {"tool_calls": [] if "tool-without-calls" in self.now else [call]}

    def streams(
        self, asked: Json, base: Json, text: str, called: Json, finish: str, usage: Json, timings: Json
    ) -> None:
        def event(delta: Json, reason: str | None = None, **more: object) -> str:
            return json.dumps(base | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]} | more)

        pieces = [word + " " for word in text.split(" ")] if " " in text.strip() else [text]
        events = [event({"role": "assistant", "content": None}), *(event({"content": each}) for each in pieces)]
        if called:
            events = [events[0], event({"tool_calls": [{"index": 0} | each for each in called["tool_calls"]]})]
        events.append(event({}, finish, timings=timings))
        if (asked.get("stream_options") or {}).get("include_usage"):
            events.append(json.dumps(base | {"choices": [], "usage": usage}))
        events.append("[DONE]")
        for name in self.now & STREAMS.keys():
            events = STREAMS[name](events)
        kind = {"stream-as-text": "text/html", "stream-as-a-body": "application/json"}
        self.head(200, next((kind[each] for each in self.now & kind.keys()), "text/event-stream"))
        try:
            for number, each in enumerate(events):
                time.sleep(PACE)
                line = each if "stream-as-a-body" in self.now else f"data: {each}\n\n"
                self.chunk(line.encode())
                if number == 2 and "stream-cut" in self.now:
                    self.close_connection = True
                    return
                if number == 2 and "stream-die" in self.now:
                    os._exit(139)
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.disconnected()
        self.dies_later()

    def embeds(self, asked: Json) -> None:
        texts = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
        vectors: list[Any] = [[byte / 256 for byte in hashlib.sha256(text.encode()).digest()] for text in texts]
        change: Mapping[str, Callable[[int, list[float]], Any]] = {
            "vector-empty": lambda _, __: [],
            "vector-zeros": lambda _, vector: [0.0] * len(vector),
            "vector-null": lambda _, vector: [None, *vector[1:]],
            "vector-nan": lambda _, vector: [float("nan"), *vector[1:]],
            "vector-text": lambda _, __: "AAAA",
            "vector-same": lambda _, vector: [0.5] * len(vector),
            "vector-lengths": lambda n, vector: vector[n:],
            "vector-huge": lambda _, vector: [1e300, *vector[1:]],
        }
        for name in self.now & change.keys():
            vectors = [change[name](number, each) for number, each in enumerate(vectors)]
        data = [{"object": "embedding", "index": n, "embedding": each} for n, each in enumerate(vectors)]
        if "vector-missing" in self.now:
            del data[-1]
        if "vector-order" in self.now:
            data = [each | {"index": 0} for each in data]
        if "embedding-fails" in self.now:
            self.fails(500, "input is too large to process")
            return
        usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        self.says({"object": "list", "model": self.server.chosen.alias, "data": data, "usage": usage})
        self.dies_later()

    def reranks(self, asked: Json) -> None:
        query = set(asked["query"].lower().split())
        scores: list[Any] = [float(len(query & set(each.lower().split()))) for each in asked["documents"]]
        change: Mapping[str, Callable[[float], Any]] = {
            "scores-null": lambda _: None,
            "scores-same": lambda _: 0.0,
            "scores-upside-down": lambda score: -score,
            "scores-nan": lambda _: float("nan"),
            "scores-text": str,
        }
        for name in self.now & change.keys():
            scores = [change[name](each) for each in scores]
        results = [{"index": n, "relevance_score": each} for n, each in enumerate(scores)]
        if "scores-missing" in self.now:
            del results[-1]
        if "scores-index" in self.now:
            results = [each | {"index": 7} for each in results]
        if "rerank-fails" in self.now:
            self.fails(500, "no")
            return
        self.says({"object": "list", "model": self.server.chosen.alias, "results": results})
        self.dies_later()

    # What goes wrong.

    def breaks(self, asked: Json) -> bool:
        """Misbehave with more than a response; returns whether nothing is to follow."""
        state = self.server.state
        failing = [name for name in self.now & FAILS.keys() if "messages" in asked and FAILS[name](asked)]
        if failing:
            self.fails(500, f"it {failing[0]}")
            return True
        if "deadlock" in self.now and state.busy > 1:
            state.broken = True
        if "slots-leak" in self.now and state.prompts > 6:
            state.broken = True
        if state.broken:
            time.sleep(3600)
        return False

    def swapped(self, count: int) -> int:
        """Return the number of tokens of the response to another request that came at the same time."""
        state = self.server.state
        with suppress(threading.BrokenBarrierError):
            state.swapped.append(count)
            state.pair.wait(0.3)
            mine = [each for each in state.swapped if each != count]
            state.pair.wait(0.3)
            state.swapped.clear()
            return mine[0] if mine else count
        state.pair.reset()
        state.swapped.clear()
        return count

    def disconnected(self) -> None:
        """A client left in the middle of a stream."""
        if "dies-at-disconnect" in self.now:
            os._exit(139)
        if "hangs-at-disconnect" in self.now:
            self.server.state.broken = True
        self.close_connection = True

    def dies_later(self) -> None:
        """Exit some time after the first prompt, where the mode is that."""
        for word in declared_mode().split():
            if word.startswith("die:") and self.server.state.prompts == 1:
                _, seconds, code = word.split(":")
                threading.Timer(float(seconds), os._exit, [int(code)]).start()

    def on_the_wire(self, asked: Json) -> bool:
        """Misbehave as no HTTP server does; returns whether that was the response."""
        wire = WIRE | (STREAM_WIRE if asked.get("stream") else {})
        for name in self.now & wire.keys():
            with suppress(OSError):
                for what, pause in chain(*wire[name]):
                    self.send(what)
                    time.sleep(pause)
            self.hang_up()
            return True
        return False

    def hang_up(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def send(self, what: bytes) -> None:
        self.wfile.write(what)
        self.wfile.flush()

    # How it is sent.

    def head(self, status: int, kind: str, length: int | None = None) -> None:
        self.wfile.write(head(status, kind, length))

    def chunk(self, what: bytes) -> None:
        self.send(b"%x\r\n%s\r\n" % (len(what), what))

    def responds(self, status: int, body: bytes, kind: str = "application/json; charset=utf-8") -> None:
        self.head(status, kind, len(body))
        self.wfile.write(body)

    def says(self, what: object) -> None:
        self.responds(200, json.dumps(what).encode())

    def fails(self, status: int, why: str, kind: str = "server_error") -> None:
        self.responds(status, json.dumps({"error": {"code": status, "message": why, "type": kind}}).encode())


# How it is run.

CMAKE = """\
cmake_minimum_required(VERSION 3.14)
project(bad_engine C)
# All options count as used.
get_cmake_property(names CACHE_VARIABLES)
foreach(name ${names})
    get_property(type CACHE ${name} PROPERTY TYPE)
    if(type STREQUAL "UNINITIALIZED")
        set(${name} "${${name}}" CACHE STRING "" FORCE)
    endif()
endforeach()
file(READ bad_engine.py text HEX)
string(REGEX REPLACE "(..)" "0x\\\\1," text "${text}")
file(WRITE "${CMAKE_BINARY_DIR}/program.inc" "${text}")
include_directories("${CMAKE_BINARY_DIR}")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
foreach(name llama-server llama-fit-params llama-perplexity)
    add_executable(${name} launcher.c)
endforeach()
"""

LAUNCHER = r"""
/* A process of its own program, as a real server is one; Python is its child, and ends with it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const unsigned char program[] = {
#include "program.inc"
};
static pid_t child;

static void pass_on(int signal) { kill(child, signal); }

int main(int argc, char **argv) {
    char path[64];
    int file = memfd_create("bad-engine", 0), status = 0;
    if (file < 0 || write(file, program, sizeof program) != (ssize_t)sizeof program) return 70;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    char **words = calloc(argc + 4, sizeof *words);
    words[0] = "python3", words[1] = "-I", words[2] = path;
    for (int n = 1; n < argc; n++) words[n + 2] = argv[n];
    signal(SIGTERM, pass_on), signal(SIGINT, pass_on);
    child = fork();
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execvp("python3", words);
        _exit(71);
    }
    while (waitpid(child, &status, 0) != child) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
"""


def engine(folder: Path) -> Json:
    """Return an engine to declare in a rig, whose source is an archive that this writes into a folder."""
    files = {
        "CMakeLists.txt": CMAKE,
        "launcher.c": LAUNCHER,
        "bad_engine.py": Path(__file__).read_text(encoding="utf-8"),
    }
    archive = folder / "bad-engine.tar"
    with tarfile.open(archive, "w") as tar:
        for name, text in files.items():
            content = text.encode()
            info = tarfile.TarInfo(f"bad-engine/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    source = {"archive": str(archive), "sha256": sha256, "folder": "bad-engine", "version": {"number": VERSION}}
    return {"kind": "llama.cpp", "source": source}


@contextmanager
def serving(mode: str = "", *arguments: str) -> Iterator[tuple[int, int]]:
    """Run it on loopback; yields its port and its process id."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-I", __file__, "--host", "127.0.0.1", "--port", str(port), *arguments]
    process = subprocess.Popen(command, env={"BAD_ENGINE": mode, "BAD_ENGINE_FILE": "/nonexistent"})
    try:
        for _ in range(1000):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.02)
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def main(arguments: Sequence[str]) -> None:
    """Serve, or print what the checks before a start look for."""
    if "--version" in arguments:
        sys.stderr.write(f"version: {VERSION} (bad)\nbuilt with a launcher\n")
        return
    if "--help" in arguments or "-h" in arguments:
        sys.stdout.write("----- common params -----\n")
        return
    chosen = options(arguments)
    if "listens-twice" in declared_mode().split():
        more = socket.create_server(("0.0.0.0", 0))
        more.listen()
    server = Server(chosen)
    sys.stderr.write(f"main: server is listening on http://{chosen.host}:{chosen.port}\n")
    server.serve_forever(0.1)


if __name__ == "__main__":
    main(sys.argv[1:])
