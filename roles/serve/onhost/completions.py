"""What a client reads from a response: JSON, chat completions, and streams of them."""

from __future__ import annotations

import http.client
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from roles.serve.onhost.declared import DeclaredServer
from roles.serve.onhost.wire import LARGEST, NotServingError, Response, error_message

Json = dict[str, Any]
SPARE = 8
"""Tokens that a response may have beyond `max_tokens`."""
REPEATED = 4
"""Characters that are no text where all of them are the same."""
NO_CHAT = "no chat completion"
_NO_CHAT_STREAM = "a stream of something other than chat completions"
_FINISHES = {"stop", "length", "tool_calls", "function_call"}
_SPECIAL = re.compile(
    r"<\|[^|<>]{0,40}\|>|</?(?:s|bos|eos|pad|unk|unused\d+|mask|start_of_turn|end_of_turn)>|\[(?:PAD|UNK|EOS)\d*\]"
)
_LARGEST_NUMBER = 3.4e38
"""Of a float of 32 bits."""


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
        raise NotServingError(f"{what} returns {NO_CHAT}: finish_reason is {shown(finish)}, role {shown(role)}")
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
        raise NotServingError(f"{what} returns a response of model {shown(model)}, not of {server.model}")


def shown(value: object) -> str:
    """Return a value from outside as text for a message."""
    return json.dumps(value)[:60]


def is_visible(text: str) -> bool:
    """Return whether a person would see text: not only blanks, control or special tokens, U+FFFD, or one character."""
    rest = _SPECIAL.sub("", text)
    seen = [each for each in rest if unicodedata.category(each)[0] in "LNPS" or unicodedata.category(each) == "Mn"]
    broken = seen.count("\ufffd")
    one = len(seen) >= REPEATED and len(set(seen)) == 1
    return len(seen) > 2 * broken and not one


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
        raise NotServingError(f"{what} returns a stream whose finish_reason is {shown(finish)}")
    return Completion(text, thoughts, tuple(calls), finish == "length")


def number(value: Any) -> float:
    """Return a number that a client can compute with. Raise ValueError where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError
    if not abs(value) <= _LARGEST_NUMBER:  # nor is NaN
        raise ValueError
    return float(value)
