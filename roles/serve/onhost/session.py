"""A proof in progress: its limits, its connection, and the completions that a client reads from responses."""

from __future__ import annotations

import http.client
import json
import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roles.serve.onhost.processes import ROOT
from roles.serve.onhost.wire import (
    LARGEST,
    Connection,
    DeclaredServer,
    NotServingError,
    Response,
    error_message,
    explained,
)

Json = dict[str, Any]
SPARE = 8
"""Tokens that a response may have beyond `max_tokens`."""
REPEATED = 4
"""Characters that are no text where all of them are the same."""
NO_CHAT = "no chat completion"
_NO_CHAT_STREAM = "a stream of something other than chat completions"
_FINISHES = {"stop", "length", "tool_calls", "function_call"}
_REPEATED_TIMES, _LONGEST_TOKEN = 8, 16
"""A text is one token again and again from so many times on; and the characters of a long token."""
_SPECIAL = re.compile(
    r"<[|\uff5c][^|\uff5c<>]{0,40}[|\uff5c]?>|<[a-z_]{1,20}[|\uff5c]>"
    r"|</?(?:s|bos|eos|pad|unk|unused\d+|mask|start_of_turn|end_of_turn)>"
    r"|\[(?:PAD|UNK|EOS)\d*\]|\[/?INST\]|<</?SYS>>"
)
"""Special tokens, such as those that a chat template separates messages with."""
_LARGEST_NUMBER = 3.4e38
"""Of a float of 32 bits."""

PROMPT = "The three primary colours are"

SHORT, RETRIED = 4, 64
"""Tokens of a step's response, and of a second try."""

LEAVING_SECONDS = 0.5
"""In which a server notices that a client has left, or has its response."""

_POLL_SECONDS = 0.02

_FASTEST = 1e6
"""Tokens a second that are believed."""

_PROGRESS_SECONDS = 3
"""Between two lines of progress."""


@dataclass(frozen=True)
class Completion:
    """What a client gets of a prompt: text, thoughts, calls of tools, and whether `max_tokens` cut it off.

    ik_llama.cpp reports `stop` then as well, so that the tokens decide.
    """

    text: str
    thoughts: str
    calls: tuple[Any, ...]
    cut: bool

    @property
    def visible(self) -> bool:
        """Return whether a person would see anything of it."""
        return is_visible(self.text) or is_visible(self.thoughts)


def parse_body(body: bytes, what: str, expected: str) -> Any:
    """Return the JSON of a body. Raise NotServingError where a client could not read it: `expected` is returned.

    `what` names the request.
    """
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise NotServingError(f"{what} returns {expected}") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def parse_completion(value: Any, body: Json, server: DeclaredServer, what: str) -> Completion:
    """Return a chat completion. Raise NotServingError where it is none."""
    try:
        choice = value["choices"][0]
        message, finish, usage = choice["message"], choice.get("finish_reason"), value["usage"]
        text, thoughts = _texts(message)
        calls = tuple(message.get("tool_calls") or ())
        model, kind = value.get("model"), value.get("object", "chat.completion")
        role = message.get("role", "assistant")
        _check_usage(usage, body, what)
        uncounted = bool(text or thoughts) and not usage["completion_tokens"]
        cut = finish == "length" or usage["completion_tokens"] >= body["max_tokens"]
        finished = finish in _FINISHES
    except (LookupError, TypeError, AttributeError, ValueError):
        raise NotServingError(f"{what} returns {NO_CHAT}") from None
    if not finished or role != "assistant" or kind != "chat.completion":
        raise NotServingError(f"{what} returns {NO_CHAT}: finish_reason is {as_text(finish)}, role {as_text(role)}")
    if uncounted:
        raise NotServingError(f"{what} returns text, and no token by its `usage`")
    _check_model(model, server, what)
    return Completion(text, thoughts, calls, cut)


def _texts(message: Mapping[str, Any]) -> tuple[str, str]:
    """Return the text and the thoughts of a message, or of a part of it. Raise TypeError where they are no text."""
    text = message.get("content") or ""
    thoughts = message.get("reasoning_content") or message.get("reasoning") or ""
    if not isinstance(text, str) or not isinstance(thoughts, str):
        raise TypeError
    return text, thoughts


def _check_usage(usage: Mapping[str, Any], body: Json, what: str) -> None:
    """Raise NotServingError where a response cannot have so many tokens, and TypeError where they are no numbers."""
    read, written = usage.get("prompt_tokens", 1), usage["completion_tokens"]
    if not isinstance(read, int) or not isinstance(written, int):
        raise TypeError
    most = body["max_tokens"]
    if read < 0 or written < 0 or written > most + SPARE:
        raise NotServingError(f"{what} returns {read} + {written} tokens, and no more than {most} were allowed")


def _check_model(model: object, server: DeclaredServer, what: str) -> None:
    """Raise NotServingError where another model responds."""
    if server.models and model is not None and model not in server.models:
        raise NotServingError(f"{what} returns a response of model {as_text(model)}, not of {server.model}")


def as_text(value: object) -> str:
    """Return a value from outside as text for a message."""
    return json.dumps(value)[:60]


def text_before_marker(text: str) -> str | None:
    """Return the text before the first special token, which no client should get; None where there is no such token."""
    found = _SPECIAL.search(text)
    return text[: found.start()] if found else None


def is_visible(text: str) -> bool:
    """Return whether a person would see text: not only blanks, control or special tokens, U+FFFD, or one token."""
    rest = _SPECIAL.sub("", text)
    if _is_one_token(rest):
        return False
    visible = [each for each in rest if unicodedata.category(each)[0] in "LNPS" or unicodedata.category(each) == "Mn"]
    broken = visible.count("\ufffd")
    one = len(visible) >= REPEATED and len(set(visible)) == 1
    return len(visible) > 2 * broken and not one


def _is_one_token(text: str) -> bool:
    """Return whether a text is one word, or a part of a word, again and again."""
    words = text.split()
    if len(words) != 1:
        return len(words) >= _REPEATED_TIMES and len(set(words)) == 1
    (word,) = words
    sizes = range(1, min(_LONGEST_TOKEN, len(word) // _REPEATED_TIMES) + 1)
    return any(word == (word[:size] * (len(word) // size + 1))[: len(word)] for size in sizes)


def read_events(response: http.client.HTTPResponse, tokens: int, what: str) -> Iterator[bytes]:
    """Yield the data of a stream's events until it ends. Raise NotServingError where it does not end as streams do."""
    if response.status != 200:
        Response(response.status, response.read(LARGEST)).require_ok(what)
    kind = response.headers.get("Content-Type", "")
    if not kind.startswith("text/event-stream"):
        raise NotServingError(f"{what} returns {kind or 'no Content-Type'}, not a stream of events")
    count = size = 0
    while line := response.readline(LARGEST):
        count, size = count + line.startswith(b"data:"), size + len(line)
        if count > 2 * tokens + 64 or size > LARGEST:
            raise NotServingError(f"{what} returns a stream that does not end after {tokens} tokens")
        name, _, value = line.rstrip(b"\r\n").partition(b":")
        if name == b"data":
            if value.strip() == b"[DONE]":
                return
            yield value.strip()
        elif name not in (b"", b"event", b"id", b"retry"):
            raise NotServingError(f"{what} returns a stream of something other than events")
    raise NotServingError(f"{what} returns a stream that ends without [DONE]")


def join_events(events: Iterable[bytes], body: Json, server: DeclaredServer, what: str) -> Completion:
    """Return the completion that a stream's events make. Raise NotServingError where a client could not make one."""
    text = thoughts = finish = ""
    finished = False
    calls: list[Any] = []
    for each in events:
        part = parse_body(each, what, _NO_CHAT_STREAM)
        if isinstance(part, dict) and part.get("error"):
            raise NotServingError(f"{what} returns an error in the stream: {error_message(each)}")
        try:
            if usage := part.get("usage"):
                _check_usage(usage, body, what)
            for choice in part["choices"]:
                more, thought = _texts(choice["delta"])
                text, thoughts = text + more, thoughts + thought
                calls += choice["delta"].get("tool_calls") or ()
                finish = choice.get("finish_reason") or finish
            _check_model(part.get("model"), server, what)
            finished = finish in _FINISHES
        except (LookupError, TypeError, AttributeError):
            raise NotServingError(f"{what} returns {_NO_CHAT_STREAM}") from None
    if not finished:
        raise NotServingError(f"{what} returns a stream whose finish_reason is {as_text(finish)}")
    return Completion(text, thoughts, tuple(calls), finish == "length")


def parse_number(value: Any) -> float:
    """Return a number that a client can compute with. Raise ValueError where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError
    if not abs(value) <= _LARGEST_NUMBER:  # nor is NaN
        raise ValueError
    return float(value)


@dataclass(frozen=True)
class Limits:
    """Seconds that a proof may take."""

    first: float = 30
    """The least limit of the first response."""
    later: float = 120
    """Of all that follows the first response."""
    step: float = 30
    page: float = 5
    """Of a page such as /metrics."""
    steps: float = 8
    """That the steps may take by the speed of this host."""
    retry: float = 8
    """That a longer try may take by the speed of this host, after a response without text."""
    long: float = 0.5
    """That the long prompt may take by the speed of this host."""


LIMITS = Limits()


Send = Callable[..., Completion]
"""Sends a prompt, with its name in messages and further fields, and returns its completion."""


@dataclass
class Session:
    """A proof in progress: its deadline, and what was measured.

    `reads` and `writes` are tokens a second, `density` the tokens of a character by the longest prompt until now.
    """

    server: DeclaredServer
    deadline: float
    limits: Limits = LIMITS
    report: Callable[[str], None] = field(default=lambda _: None)
    other: DeclaredServer | None = None
    """A server that runs side by side with it, on the same GPU it may be."""
    root: Path = ROOT
    began: float = field(default_factory=time.monotonic)
    reported: float = field(default_factory=time.monotonic)
    reads: float = 0.0
    writes: float = 0.0
    longest: int = 0
    density: float = 1.0
    shared: bool = False
    """Whether the server responds to other clients meanwhile."""
    caps: Json = field(default_factory=dict)
    """What it reports of its chat template."""

    def __post_init__(self) -> None:
        self.connection = self.connect(self.deadline)

    def connect(self, deadline: float) -> Connection:
        """Return a new connection to the server, which is not open yet."""
        return Connection(self.server.url, deadline, self.server.key)

    def get(self, path: str) -> Response:
        """Return a page."""
        self.connection.deadline = min(self.deadline, time.monotonic() + self.limits.page)
        return self.connection.fetch(path, path)

    def post(self, what: str, body: Json, deadline: float, path: str = "") -> Response:
        """Return the response to a POST."""
        self.connection.deadline = deadline
        return self.connection.fetch(what, path or self.server.path, body)

    def limit(self, tokens: int) -> float:
        """Return the deadline of a step, which may take ten times as long as this host takes for so many tokens."""
        seconds = self.limits.later if self.shared else max(self.limits.step, 10 * self.expected(0, tokens))
        return min(self.deadline, time.monotonic() + seconds)

    def expected(self, prompt: int, tokens: int) -> float:
        """Return the seconds that a step takes by what was measured."""
        return (prompt / self.reads if self.reads else 0) + (tokens / self.writes if self.writes else 0)

    def prompt(self, **more: Any) -> Json:
        """Return a chat request of a few tokens."""
        messages = [{"role": "user", "content": PROMPT}]
        return {"model": self.server.model, "messages": messages, "max_tokens": SHORT, **more}

    def complete(self, what: str, **more: Any) -> Completion:
        """Send a prompt that is not streamed, and return its completion."""
        body = self.prompt(**more)
        response = self.post(what, body, self.limit(body["max_tokens"]))
        return self.read_completion(response, body, what)[0]

    def read_completion(self, response: Response, body: Json, what: str) -> tuple[Completion, Json]:
        """Return a completion and the JSON that it is from, and keep how fast it was."""
        value: Json = parse_body(response.require_ok(what), what, NO_CHAT)
        found = parse_completion(value, body, self.server, what)
        self._learn(body, value, response.seconds)
        return found, value

    def _learn(self, body: Json, value: Json, seconds: float) -> None:
        """Keep how fast a prompt was read and a response written; by the clock where the server reports no times."""
        usage, times = value["usage"], value.get("timings") or {}
        length = sum(len(each["content"]) for each in body["messages"])
        if length > self.longest and usage.get("prompt_tokens"):
            self.longest, self.density = length, usage["prompt_tokens"] / length
        self.writes = max(self.writes, usage["completion_tokens"] / max(seconds, 0.001))
        with suppress(LookupError, TypeError, ValueError, AttributeError, ZeroDivisionError, OverflowError):
            self.writes = max(self.writes, _speed(times["predicted_n"], times["predicted_ms"]))
            self.reads = max(self.reads, _speed(times["prompt_n"], times["prompt_ms"]))
        self.reads = self.reads or 10 * self.writes

    def stream(self, what: str, **more: Any) -> Completion:
        """Send a prompt that is streamed, and return what all its parts make."""
        body = self.prompt(**more) | {"stream": True, "stream_options": {"include_usage": True}}
        with closing(self.connect(self.limit(body["max_tokens"]))) as connection, explained(what):
            response = connection.open_response(self.server.path, body)
            events = read_events(response, body["max_tokens"], what)
            return join_events(events, body, self.server, what)

    def require_text(self, send: Send, what: str, **more: Any) -> Completion:
        """Send a prompt, and return its completion. Raise NotServingError as `require_visible` does."""
        found = send(what, **more)
        self.require_visible(found, send, what, **more)
        return found

    def require_visible(self, found: Completion, send: Send, what: str, **more: Any) -> None:
        """Raise NotServingError if a response and two longer ones contain no visible text."""
        for _ in range(2):
            if found.visible:
                return
            tokens = max(SHORT, min(RETRIED, int(self.writes * self.limits.retry) or RETRIED))
            found = send(what, **more | {"max_tokens": tokens, "temperature": 0.8})
        if not found.visible:
            text = f"something other than text: {as_text(found.text)}" if found.text else "nothing"
            raise NotServingError(f"{what} returns {text}")

    def stays_busy(self) -> bool:
        """Return whether other clients have requests in flight: the server may count one of ours for a moment."""
        end = time.monotonic() + LEAVING_SECONDS
        while self.server.busy():
            if time.monotonic() > end:
                return True
            time.sleep(_POLL_SECONDS)
        return False

    def disturbed(self) -> bool:
        """Return whether this server, or the one side by side with it, responds to other clients."""
        return self.server.busy() or (self.other is not None and self.other.busy())

    def progress(self, step: str) -> None:
        """Report the step, where the proof takes long."""
        if time.monotonic() - self.reported > _PROGRESS_SECONDS:
            self.reported = time.monotonic()
            self.report(f"still proving that it serves: {step}")


def _speed(tokens: Any, milliseconds: Any) -> float:
    return min(_FASTEST, 1000 * parse_number(tokens) / parse_number(milliseconds))
