"""Parse what a host and its servers returned to a verification. Pure; `verify` judges the result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llamaherd.text.numbers import parse_json, whole_number
from llamaherd.text.terminal import one_line

SIZE = re.compile(r"[0-9]{1,18}")
"""Bytes of a file."""

ProbeOutputs = Mapping[tuple[str, str], str]
"""What the host said, by what was asked and of what."""


def parse_pairs(text: str) -> dict[str, str]:
    """Lines of `key=value`, as systemctl show prints them."""
    return {key: value for key, equals, value in (line.partition("=") for line in text.split("\n")) if equals}


def json_objects(value: object) -> list[dict[str, Any]]:
    """The objects of a JSON list; servers answer what they like, and what is none of it is left out."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def json_object(value: object) -> dict[str, Any]:
    """A JSON object, or nothing where there is another value."""
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float | None:
    """A finite number, or None where there is another value."""
    return value if isinstance(value, int | float) and -1e15 < value < 1e15 else None


def _count(value: object) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


@dataclass(frozen=True)
class Reply:
    """An HTTP reply; the status is 0 where there was none, and `problem` says why it is not a good one."""

    status: int
    body: str
    problem: str

    @property
    def json(self) -> dict[str, Any]:
        """The body, if it is a JSON object; else nothing."""
        try:
            value = parse_json(self.body)
        except ValueError:
            return {}
        return json_object(value)


def parse_reply(text: str) -> Reply:
    """What curl printed: the body, its own complaints, and the status code on the last line."""
    lines = text.rstrip("\n").split("\n")
    complaint = next((line.strip() for line in reversed(lines) if "curl: (" in line), "")
    if not (len(lines[-1]) == 3 and whole_number(lines[-1]) is not None):
        return Reply(0, "", one_line(complaint or lines[-1].strip() or "no answer"))
    status, body = int(lines[-1]), "\n".join(lines[:-1])
    if complaint or status == 200:
        return Reply(status, body, one_line(complaint))
    error = Reply(status, body, "").json.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    return Reply(status, body, one_line(f"HTTP {status}: {message or body.strip()}", 240))


@dataclass(frozen=True)
class Chat:
    """What a chat completion came to."""

    answer: str = ""
    chunks: int = 0
    """How many pieces with text in them it came in."""
    tokens_per_second: float | None = None
    draft_n: int | None = None
    draft_accepted: int | None = None


def parse_chat(stream: str) -> Chat:
    """The server-sent events of a streamed chat completion, put together."""
    pieces: list[str] = []
    timings: dict[str, Any] = {}
    for line in stream.split("\n"):
        if not line.startswith("data: {"):
            continue
        event = Reply(200, line.removeprefix("data: "), "").json
        timings = json_object(event.get("timings")) or timings
        for choice in json_objects(event.get("choices")):
            delta = json_object(choice.get("delta"))
            # A model that thinks first may not have come to its answer by then.
            if piece := delta.get("content") or delta.get("reasoning_content"):
                pieces.append(str(piece))
    return Chat(
        answer="".join(pieces).strip(),
        chunks=len(pieces),
        tokens_per_second=decoded_per_second(timings),
        draft_n=_count(timings.get("draft_n")),
        draft_accepted=_count(timings.get("draft_n_accepted")),
    )


def decoded_per_second(timings: Mapping[str, Any]) -> float | None:
    """Tokens after the first in each second: that one comes out of the prompt, and the clock begins with it.

    What an engine says itself is not taken: ik_llama.cpp divides all tokens by that time, llama.cpp one less.
    """
    count, milliseconds = _number(timings.get("predicted_n")), _number(timings.get("predicted_ms"))
    if not count or not milliseconds or count < 2 or milliseconds <= 0:
        return None
    return _number((count - 1) * 1000 / milliseconds)


def build_manifest(build: str, answers: ProbeOutputs) -> dict[str, Any]:
    """What a build says of itself; nothing where it is not there, or not finished."""
    return Reply(200, answers.get(("build", build), ""), "").json


def stored_files(folder: str, answers: ProbeOutputs) -> dict[str, int]:
    """The files of a model's folder, in bytes."""
    rows = (line.partition("\t") for line in answers.get(("model", folder), "").split("\n"))
    return {name: int(size) for size, tab, name in rows if tab and SIZE.fullmatch(size)}
