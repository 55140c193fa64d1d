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
"""The outputs of probes, by the kind and the subject of each probe."""


def parse_pairs(text: str) -> dict[str, str]:
    """Return the values of lines `key=value`, as `systemctl show` prints them."""
    return {key: value for key, equals, value in (line.partition("=") for line in text.split("\n")) if equals}


def json_objects(value: object) -> list[dict[str, Any]]:
    """Return the objects of a JSON list. A server may return anything: other values are left out."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def json_object(value: object) -> dict[str, Any]:
    """Return a JSON object; an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float | None:
    """Return a finite number; None for any other value."""
    return value if isinstance(value, int | float) and -1e15 < value < 1e15 else None


def _count(value: object) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


@dataclass(frozen=True)
class Reply:
    """An HTTP response. The status is 0 if there was none, and `problem` is the reason if it did not succeed."""

    status: int
    body: str
    problem: str

    @property
    def json(self) -> dict[str, Any]:
        """Return the body if it is a JSON object; otherwise an empty object."""
        try:
            value = parse_json(self.body)
        except ValueError:
            return {}
        return json_object(value)


def parse_reply(text: str) -> Reply:
    """Parse the output of curl: the body, its errors, and the status code on the last line."""
    lines = text.rstrip("\n").split("\n")
    problem = next((line.strip() for line in reversed(lines) if "curl: (" in line), "")
    if not (len(lines[-1]) == 3 and whole_number(lines[-1]) is not None):
        return Reply(0, "", one_line(problem or lines[-1].strip() or "no response"))
    status, body = int(lines[-1]), "\n".join(lines[:-1])
    if problem or status == 200:
        return Reply(status, body, one_line(problem))
    error = Reply(status, body, "").json.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    return Reply(status, body, one_line(f"HTTP {status}: {message or body.strip()}", 240))


@dataclass(frozen=True)
class Chat:
    """The result of a chat completion."""

    answer: str = ""
    chunks: int = 0
    """Events that contain text."""
    tokens_per_second: float | None = None
    draft_n: int | None = None
    draft_accepted: int | None = None


def parse_chat(stream: str) -> Chat:
    """Parse the server-sent events of a streamed chat completion."""
    pieces: list[str] = []
    timings: dict[str, Any] = {}
    for line in stream.split("\n"):
        if not line.startswith("data: {"):
            continue
        event = Reply(200, line.removeprefix("data: "), "").json
        timings = json_object(event.get("timings")) or timings
        for choice in json_objects(event.get("choices")):
            delta = json_object(choice.get("delta"))
            # A reasoning model may stop while it still thinks.
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
    """Return the tokens per second after the first token, which the prompt yields and which starts the clock.

    The rates of engines are not comparable: ik_llama.cpp divides all tokens by this time, llama.cpp one less.
    """
    count, milliseconds = _number(timings.get("predicted_n")), _number(timings.get("predicted_ms"))
    if not count or not milliseconds or count < 2 or milliseconds <= 0:
        return None
    return _number((count - 1) * 1000 / milliseconds)


def build_manifest(build: str, outputs: ProbeOutputs) -> dict[str, Any]:
    """Return the manifest of a build; an empty one if the build is absent or unfinished."""
    return Reply(200, outputs.get(("build", build), ""), "").json


def stored_files(folder: str, outputs: ProbeOutputs) -> dict[str, int]:
    """Return the bytes of each file in a model's folder."""
    rows = (line.partition("\t") for line in outputs.get(("model", folder), "").split("\n"))
    return {name: int(size) for size, tab, name in rows if tab and SIZE.fullmatch(size)}
