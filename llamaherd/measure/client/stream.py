"""Parse a streamed response piece by piece: server-sent events, timings and usage."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_LINE, MOST_BYTES, MOST_PIECES = 1 << 20, 64 << 20, 200_000
"""Bytes of a line and of an answer, and pieces of it: an honest piece has some 300 bytes."""

_LETTERS = 300
"""Of what a server says is wrong."""


class NonsenseError(Exception):
    """What no server that streams an answer says: a clause to follow its name."""


class RefusedError(Exception):
    """What a server says in the middle of a stream that it cannot go on for."""


@dataclass(frozen=True)
class Timings:
    """What llama.cpp and ik_llama.cpp tell of a request; ik_llama.cpp has no `cache_n`. None: not told."""

    cache_n: int | None = None
    prompt_n: int | None = None
    prompt_ms: float | None = None
    predicted_n: int | None = None
    predicted_ms: float | None = None
    draft_n: int | None = None
    draft_n_accepted: int | None = None


@dataclass(frozen=True)
class Usage:
    """What the API of OpenAI tells of a request."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None


@dataclass(frozen=True)
class Piece:
    """Text that came at once: when, in milliseconds since the request was sent, and how much.

    `tokens` are those that there are so far, where the engine says so with each piece.
    """

    at: float
    characters: int
    tokens: int | None = None


@dataclass
class Events:
    """The data of server-sent events in bytes that come in any pieces."""

    _left: bytes = b""
    _data: list[bytes] = field(default_factory=list)
    _size: int = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The data of all events that end in these bytes. Raises NonsenseError."""
        self._size += len(data)
        if self._size > MOST_BYTES:
            raise NonsenseError(f"answers with more than {MOST_BYTES >> 20} MiB")
        *lines, self._left = (self._left + data).split(b"\n")
        if len(self._left) > MOST_LINE:
            raise NonsenseError(f"sends a line of more than {MOST_LINE >> 20} MiB")
        for line in lines:
            yield from self._line(line.removesuffix(b"\r"))

    def _line(self, line: bytes) -> Iterator[bytes]:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        elif not line and self._data:
            yield b"\n".join(self._data)
            self._data = []


@dataclass
class Reading:
    """What has come so far of one answer, be it of a chat, of a completion, or in llama.cpp's own form."""

    pieces: list[Piece] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    timings: Timings | None = None
    usage: Usage | None = None
    finish: str | None = None
    done: bool = False

    def take(self, data: bytes, at: float) -> None:
        """Take the data of an event that came at this time. Raises NonsenseError and RefusedError."""
        if data.strip() == b"[DONE]":
            self.done = True
            return
        event = _object(data)
        if "error" in event:
            raise RefusedError(error_text(event) or "it says that something went wrong, and not what")
        self._take_figures(event)
        if text := self._take_text(event):
            self.texts.append(text)
            tokens = self.timings.predicted_n if self.timings and "timings" in event else None
            self.pieces.append(Piece(at, len(text), tokens))
            if len(self.pieces) > MOST_PIECES:
                raise NonsenseError(f"answers in more than {MOST_PIECES:,} pieces")

    def _take_text(self, event: dict[str, Any]) -> str:
        """The text of an event: of thoughts as well, as these are tokens like any other."""
        texts: list[object] = [event.get("content")]
        for choice in _objects(event.get("choices")):
            delta = choice.get("delta")
            delta = delta if isinstance(delta, dict) else {}
            texts += [choice.get("text"), delta.get("reasoning_content"), delta.get("reasoning"), delta.get("content")]
            self.finish = _text(choice.get("finish_reason")) or self.finish
        if event.get("stop") is True:
            self.finish = _text(event.get("stop_type")) or self.finish or "stop"
            self.done = True
        return "".join(text for text in texts if isinstance(text, str))

    def _take_figures(self, event: dict[str, Any]) -> None:
        if isinstance(told := event.get("timings"), dict):
            self.timings = timings_of(told)
        if isinstance(told := event.get("usage"), dict):
            details = told.get("prompt_tokens_details")
            cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
            self.usage = Usage(_count(told.get("prompt_tokens")), cached, _count(told.get("completion_tokens")))


def timings_of(told: Mapping[str, Any]) -> Timings:
    """What an engine tells of a request, whatever stands there."""
    return Timings(
        cache_n=_count(told.get("cache_n")),
        prompt_n=_count(told.get("prompt_n")),
        prompt_ms=_time(told.get("prompt_ms")),
        predicted_n=_count(told.get("predicted_n")),
        predicted_ms=_time(told.get("predicted_ms")),
        draft_n=_count(told.get("draft_n")),
        draft_n_accepted=_count(told.get("draft_n_accepted")),
    )


def error_text(event: dict[str, Any]) -> str | None:
    """What a server says is wrong, in the ways that there are to say it."""
    error = event.get("error")
    message = error.get("message") if isinstance(error, dict) else error
    return _text(message) or _text(event.get("message")) or _text(event.get("detail"))


def reason(error: Exception) -> str:
    """What went wrong with a connection."""
    said = error.strerror if isinstance(error, OSError) else None
    return short(said or str(error) or type(error).__name__)


def short(text: str) -> str:
    """One line of at most so many letters, with nothing in it that a terminal would obey."""
    line = "".join(c for c in " ".join(text.split()) if c.isprintable())
    return line if len(line) <= _LETTERS else f"{line[: _LETTERS - 1]}…"


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise NonsenseError("sends an event that is no JSON") from None
    if not isinstance(value, dict):
        raise NonsenseError("sends an event that is no JSON object")
    return value


def _objects(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value < 1e12 else None


def _count(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None else None


def _time(value: object) -> float | None:
    """Milliseconds that something took: nothing takes none."""
    number = _number(value)
    return float(number) if number else None
