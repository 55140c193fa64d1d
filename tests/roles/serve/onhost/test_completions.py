"""What a client makes of bodies and streams: the smallest that is a completion, and what is wrong with others."""

from __future__ import annotations

import http.client
import io
import json
from typing import Any

import pytest

from roles.serve.onhost.session import Completion, is_visible, join_events, parse_completion, parse_number, read_events
from roles.serve.onhost.wire import DeclaredServer, NotServingError

SERVER = DeclaredServer(models=("gemma", "small"), body={"model": "gemma"})
BODY = {"max_tokens": 4}


def completion(choice: object = None, **other: Any) -> Any:
    """Return a chat completion."""
    default = {"message": {"content": "red"}, "finish_reason": "stop"}
    return {"choices": [choice or default], "usage": {"completion_tokens": 1, "prompt_tokens": 9}} | other


def refused(body: Any) -> str:
    """Return why a body is no completion."""
    with pytest.raises(NotServingError) as error:
        parse_completion(body, BODY, SERVER, "a prompt")
    return str(error.value)


def test_a_completion() -> None:
    assert parse_completion(completion(model="small"), BODY, SERVER, "a prompt") == Completion("red", "", (), False)
    thinks = {"message": {"role": "assistant", "reasoning": "hm", "tool_calls": [1]}, "finish_reason": "length"}
    assert parse_completion(completion(thinks), BODY, SERVER, "a prompt") == Completion("", "hm", (1,), True)
    # ik_llama.cpp reports `stop` for one that was cut off.
    cut = parse_completion(completion(usage={"completion_tokens": 4}), BODY, SERVER, "a prompt")
    assert cut.cut


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        completion(usage=None),
        completion(usage={"completion_tokens": "1"}),
        completion({"message": {"content": ["red"]}, "finish_reason": "stop"}),
        completion({"message": {"content": "red"}, "finish_reason": ["stop"]}),
        completion({"message": {"content": "red", "tool_calls": 7}, "finish_reason": "stop"}),
    ],
)
def test_what_is_no_completion(body: Any) -> None:
    assert refused(body) == "a prompt returns no chat completion"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            completion({"message": {"content": "red"}, "finish_reason": None}),
            'no chat completion: finish_reason is null, role "assistant"',
        ),
        (
            completion({"message": {"content": "red", "role": "user"}, "finish_reason": "stop"}),
            'no chat completion: finish_reason is "stop", role "user"',
        ),
        (completion(object="text_completion"), 'no chat completion: finish_reason is "stop", role "assistant"'),
        (completion(usage={"completion_tokens": 0}), "text, and no token by its `usage`"),
        (completion(usage={"completion_tokens": 13}), "1 + 13 tokens, and no more than 4 were allowed"),
        (completion(usage={"completion_tokens": -1}), "1 + -1 tokens, and no more than 4 were allowed"),
        (completion(model="other"), 'a response of model "other", not of gemma'),
    ],
)
def test_a_completion_that_is_wrong(body: Any, why: str) -> None:
    assert refused(body) == f"a prompt returns {why}"


def test_any_model_is_right_where_none_is_declared() -> None:
    assert parse_completion(completion(model="other"), BODY, DeclaredServer(), "a prompt").text == "red"


class Stream(http.client.HTTPResponse):
    """A response that was received."""

    def __init__(self, body: bytes, kind: str = "text/event-stream", status: int = 200) -> None:
        self.fp = io.BufferedReader(io.BytesIO(body))
        self.status = self.code = status
        self.headers = self.msg = http.client.HTTPMessage()
        if kind:
            self.headers["Content-Type"] = kind
        self._method = "POST"
        self.chunked = False
        self.length = None


def event(**fields: object) -> bytes:
    """Return one event."""
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def delta(finish: object = None, **fields: object) -> bytes:
    """Return an event with a part of a message."""
    return event(choices=[{"delta": fields, "finish_reason": finish}])


DONE = b"data: [DONE]\n\n"
USAGE = event(choices=[], usage={"completion_tokens": 2})
WELL = delta(content="re") + delta("stop", content="d", tool_calls=[7]) + USAGE + DONE


def read(body: bytes, kind: str = "text/event-stream", status: int = 200) -> Completion:
    """Return the completion of a stream."""
    return join_events(read_events(Stream(body, kind, status), 4, "a stream"), BODY, SERVER, "a stream")


def test_a_stream() -> None:
    assert read(b": a comment\n\nevent: x\r\nid: 1\nretry: 2\n" + WELL) == Completion("red", "", (7,), False)
    assert read(delta(reasoning_content="hm") + delta("length") + DONE + b"more") == Completion("", "hm", (), True)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "a stream that ends without [DONE]"),
        (WELL.removesuffix(DONE), "a stream that ends without [DONE]"),
        (delta(content="red") + DONE, 'a stream whose finish_reason is ""'),
        (DONE, 'a stream whose finish_reason is ""'),
        (delta(["stop"]) + DONE, "a stream of something other than chat completions"),
        (delta({"a": 1}) + DONE, "a stream of something other than chat completions"),
        (b"data: {\n\n", "a stream of something other than chat completions"),
        (b"data: null\n\n", "a stream of something other than chat completions"),
        (event(choices=[{}]), "a stream of something other than chat completions"),
        (event(error={"message": "CUDA\nerror"}), "an error in the stream: CUDA error"),
        (event(choices=[], model="other"), 'a response of model "other", not of gemma'),
        (event(choices=[], usage={"completion_tokens": 99}), "1 + 99 tokens, and no more than 4 were allowed"),
        (b"<html>\n", "a stream of something other than events"),
        (delta(content="a") * 80, "a stream that does not end after 4 tokens"),
        (b":" + b"x" * (1 << 20) + b"\n:\n", "a stream that does not end after 4 tokens"),
    ],
)
def test_a_stream_that_is_wrong(body: bytes, why: str) -> None:
    with pytest.raises(NotServingError) as error:
        read(body)
    assert str(error.value) == f"a stream returns {why}"


@pytest.mark.parametrize(
    ("kind", "status", "why"),
    [
        ("application/json", 200, "application/json, not a stream of events"),
        ("", 200, "no Content-Type, not a stream of events"),
        ("text/event-stream", 503, "HTTP 503: loading"),
    ],
)
def test_what_is_no_stream(kind: str, status: int, why: str) -> None:
    with pytest.raises(NotServingError) as error:
        read(b"loading", kind, status)
    assert str(error.value) == f"a stream returns {why}"


@pytest.mark.parametrize(
    "text",
    [
        "red",
        "7",
        "é",
        "и",
        "色",
        "🎨",
        "?!",
        "aaab",
        "\ufffdab",
        "GGG",
        "<|x|>red",
        "\u0301",
        "ha " * 7,
        "red, blue " * 9,
    ],
)
def test_text_that_a_person_sees(text: str) -> None:
    assert is_visible(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", " \n\t", "\ufffd" * 6, "\ufffd\ufffda", "\x01\x7f", "\u200b"),
        *("<|im_end|>" * 3, "<s></s>[PAD7]", "<|im_end|> <|im_start|>", "[/INST] [INST]", "<<SYS>>"),
        *("<|turn><turn|>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<end_of_turn>\n<start_of_turn>"),
        *("GGGG", "red " * 8, " the" * 30, "foo" * 8, "<|im_end|>red " * 9, "ab" * 20 + "a"),
    ],
)
def test_text_that_nobody_sees(text: str) -> None:
    assert not is_visible(text)


@pytest.mark.parametrize("value", [True, None, "1", [1], float("nan"), float("inf"), -1e39, 10**400])
def test_what_is_no_number(value: object) -> None:
    with pytest.raises(ValueError, match=r"^$"):
        parse_number(value)


def test_numbers() -> None:
    assert (parse_number(1), parse_number(-2.5)) == (1.0, -2.5)
