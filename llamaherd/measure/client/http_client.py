"""Send requests to a server, and read its streamed responses within bounds."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

MOST_LINE, MOST_BYTES, MOST_PIECES = 1 << 20, 64 << 20, 200_000
"""Bytes of a line and of a response, and its pieces: an honest piece has some 300 bytes."""

_LETTERS = 300
"""Letters of a server's error message that are kept."""


class NonsenseError(Exception):
    """Something that no server of models sends; the text is a clause that follows "the server"."""


class RefusedError(Exception):
    """The error that a server reports in the middle of a stream."""


@dataclass(frozen=True)
class Timings:
    """The timings of a request that llama.cpp and ik_llama.cpp report; ik_llama.cpp has no `cache_n`.

    None: not reported.
    """

    cache_n: int | None = None
    prompt_n: int | None = None
    prompt_ms: float | None = None
    predicted_n: int | None = None
    predicted_ms: float | None = None
    draft_n: int | None = None
    draft_n_accepted: int | None = None


@dataclass(frozen=True)
class Usage:
    """The usage of a request that the API of OpenAI reports."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None


@dataclass(frozen=True)
class Piece:
    """Text that arrived at once: when, in milliseconds since the request was sent, and how much.

    `tokens` counts all tokens so far, if the engine reports it with each piece.
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
        """Yield the data of all events that end in these bytes. Raise NonsenseError."""
        self._size += len(data)
        if self._size > MOST_BYTES:
            raise NonsenseError(f"sends more than {MOST_BYTES >> 20} MiB")
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


OnText = Callable[[str, str], None]
"""Receives the model's thoughts and the text of its response, piece by piece as they arrive."""


@dataclass
class Reading:
    """What has arrived so far of one response of a chat, of a completion, or of llama.cpp's own API."""

    pieces: list[Piece] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    timings: Timings | None = None
    usage: Usage | None = None
    finish: str | None = None
    done: bool = False
    on_text: OnText | None = None

    def take(self, data: bytes, at: float) -> None:
        """Add the data of an event that arrived at this time. Raise NonsenseError and RefusedError."""
        if data.strip() == b"[DONE]":
            self.done = True
            return
        event = _object(data)
        if "error" in event:
            raise RefusedError(error_text(event) or "it reports an error without a message")
        self._take_figures(event)
        thought, reply = self._take_text(event)
        if text := thought + reply:
            if self.on_text:
                self.on_text(thought, reply)
            self.texts.append(text)
            tokens = self.timings.predicted_n if self.timings and "timings" in event else None
            self.pieces.append(Piece(at, len(text), tokens))
            if len(self.pieces) > MOST_PIECES:
                raise NonsenseError(f"sends more than {MOST_PIECES:,} pieces")

    def _take_text(self, event: dict[str, Any]) -> tuple[str, str]:
        """Return the model's thoughts and the text of its response in an event: both are tokens."""
        thoughts: list[object] = []
        texts: list[object] = [event.get("content")]
        for choice in _objects(event.get("choices")):
            delta = choice.get("delta")
            delta = delta if isinstance(delta, dict) else {}
            thoughts += [delta.get("reasoning_content"), delta.get("reasoning")]
            texts += [choice.get("text"), delta.get("content")]
            self.finish = _text(choice.get("finish_reason")) or self.finish
        if event.get("stop") is True:
            self.finish = _text(event.get("stop_type")) or self.finish or "stop"
            self.done = True
        return _joined(thoughts), _joined(texts)

    def _take_figures(self, event: dict[str, Any]) -> None:
        if isinstance(found := event.get("timings"), dict):
            self.timings = timings_of(found)
        if isinstance(found := event.get("usage"), dict):
            details = found.get("prompt_tokens_details")
            cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
            self.usage = Usage(_count(found.get("prompt_tokens")), cached, _count(found.get("completion_tokens")))


def timings_of(reported: Mapping[str, Any]) -> Timings:
    """Return the timings that an engine reports, without values that are no numbers."""
    return Timings(
        cache_n=_count(reported.get("cache_n")),
        prompt_n=_count(reported.get("prompt_n")),
        prompt_ms=_time(reported.get("prompt_ms")),
        predicted_n=_count(reported.get("predicted_n")),
        predicted_ms=_time(reported.get("predicted_ms")),
        draft_n=_count(reported.get("draft_n")),
        draft_n_accepted=_count(reported.get("draft_n_accepted")),
    )


def error_text(event: dict[str, Any]) -> str | None:
    """Return the error message of a server, from any of the places where servers put it."""
    error = event.get("error")
    message = error.get("message") if isinstance(error, dict) else error
    return _text(message) or _text(event.get("message")) or _text(event.get("detail"))


def reason(error: Exception) -> str:
    """Return what went wrong with a connection."""
    message = error.strerror if isinstance(error, OSError) else None
    return short(message or str(error) or type(error).__name__)


def short(text: str) -> str:
    """Return one line of at most `_LETTERS` letters, without characters that control a terminal."""
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


def _joined(values: list[object]) -> str:
    return "".join(value for value in values if isinstance(value, str))


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
    """Return the milliseconds that something took; None if there is no number above 0."""
    number = _number(value)
    return float(number) if number else None


FailureKind = Literal["unreachable", "key", "path", "busy", "refused", "nonsense", "cut", "late", "empty"]
_MOST_ERROR, _BLOCK = 64 << 10, 64 << 10


@dataclass(frozen=True)
class Patience:
    """Seconds: to connect, until the response begins, between two pieces of it, and for all of it."""

    connect: float = 10.0
    first: float = 900.0
    silence: float = 120.0
    total: float = 1800.0


@dataclass(frozen=True)
class Target:
    """A server: the URL that paths are added to, such as http://box:8080, and its key."""

    url: str
    key: str | None = None

    def __repr__(self) -> str:
        return f"Target({self.url!r})"


@dataclass(frozen=True)
class StreamedResponse:
    """A complete response. Times are milliseconds since the request was sent, on an open connection."""

    connect_ms: float
    first_token_ms: float
    last_token_ms: float
    total_ms: float
    pieces: tuple[Piece, ...]
    text: str
    finish: str | None
    timings: Timings | None
    usage: Usage | None


@dataclass(frozen=True)
class Failure:
    """Why there is no complete response, and what to do. `pieces` arrived before the failure."""

    why: FailureKind
    message: str
    help: str
    status: int = 0
    pieces: int = 0


_HELP: Mapping[FailureKind, str] = {
    "unreachable": "check that the server runs, and its address and port",
    "key": "check the key",
    "path": "check the URL: the API lies below it, mostly at /v1",
    "busy": "wait until it has loaded, or until no other client uses it",
    "refused": "see the server's log",
    "nonsense": "check that the URL is that of a server of models, and of its API",
    "cut": "see the server's log: it may have crashed, or a proxy ended the connection",
    "late": "see whether the server is stuck, or allow it more time",
    "empty": "request more tokens, or see its log",
}

Clock = Callable[[], float]
T = TypeVar("T")


def stream_response(
    target: Target,
    path: str,
    body: Mapping[str, Any],
    patience: Patience = Patience(),
    clock: Clock = time.monotonic,
    on_text: OnText | None = None,
) -> StreamedResponse | Failure:
    """Send a request, and return the streamed response; `path` is added to the target's URL."""
    read = partial(_read_streamed, on_text)
    return _exchange(target, path, {**body, "stream": True}, patience, "text/event-stream", read, clock)


def _exchange(
    target: Target,
    path: str,
    body: Mapping[str, Any] | None,
    patience: Patience,
    accepted: str,
    read: Callable[[Exchange, http.client.HTTPResponse, float], T | Failure],
    clock: Clock = time.monotonic,
) -> T | Failure:
    """Send a request, and return its response, which `read` reads. Without a body it is a GET."""
    try:
        connection, prefix = _connection(target, patience)
        headers = _headers(target, accepted)
        data = None if body is None else json.dumps(body).encode()
    except (ValueError, http.client.InvalidURL) as error:
        return failure("path", f"no request can be sent to the server: {short(str(error))}")
    exchange = Exchange(connection, target.key, patience, clock)
    try:
        return exchange.run(prefix + path, data, headers, read)
    finally:
        exchange.end()


class Exchange:
    """A request and its response, on a connection of their own."""

    def __init__(
        self, connection: http.client.HTTPConnection, key: str | None, patience: Patience, clock: Clock
    ) -> None:
        self._connection, self._key = connection, key
        self.patience, self.clock = patience, clock
        self.connect_ms, self.pieces = 0.0, 0
        self._socket: socket.socket | None = None
        self.overdue = False
        self._cut = threading.Timer(patience.total, self._cut_off)
        self._cut.daemon = True

    def run(
        self,
        path: str,
        data: bytes | None,
        headers: Mapping[str, str],
        read: Callable[[Exchange, http.client.HTTPResponse, float], T | Failure],
    ) -> T | Failure:
        """Return the response, or why there is none."""
        began = self.clock()
        try:
            self._connection.connect()
            # The connection forgets it where an answer ends with it, long before that has come.
            self._socket = self._connection.sock
        except (OSError, http.client.HTTPException, ValueError) as error:
            return failure("unreachable", f"the server cannot be reached: {reason(error)}")
        self.connect_ms = 1000 * (self.clock() - began)
        try:
            self._cut.start()
            self.wait(self.patience.first)
            sent = self.clock()
            self._connection.request("GET" if data is None else "POST", path, data, dict(headers))
            response = self._connection.getresponse()
            if response.status != http.client.OK:
                return self._refused(response)
            return read(self, response, sent)
        except NonsenseError as error:
            return self.failed("nonsense", f"the server {error}")
        except RefusedError as error:
            return self.failed("refused", f"the server gave up: {short(str(error))}")
        except TimeoutError:
            return self.failed("late", "the server stopped sending")
        except (OSError, http.client.HTTPException, ValueError) as error:
            return self.failed("cut", f"the connection was cut: {reason(error)}")

    def end(self) -> None:
        """Close the connection, and stop the timer."""
        self._cut.cancel()
        self._connection.close()

    def _refused(self, response: http.client.HTTPResponse) -> Failure:
        """Return the failure that a response reports by its status."""
        body, status = response.read(_MOST_ERROR), response.status
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            value = None
        message = error_text(value) if isinstance(value, dict) else None
        message = message or body.decode(errors="replace").strip() or response.reason or "without a message"
        why: FailureKind = _BY_STATUS.get(status, "refused")
        return self.failed(why, f"the server returns {status}: {short(message)}", status)

    def failed(self, why: FailureKind, message: str, status: int = 0) -> Failure:
        """Return a failure: "late" if we cut the response ourselves.

        Servers may repeat a wrong key, so the key is removed.
        """
        if self.overdue:
            why, message = "late", f"the response was incomplete after {self.patience.total:g} s"
        if self._key:
            message = message.replace(self._key, "…")
        return failure(why, message, status, self.pieces)

    def wait(self, seconds: float) -> None:
        """Set how long the connection may be silent from now on."""
        if self._socket:
            self._socket.settimeout(seconds)

    def _cut_off(self) -> None:
        """End a response that never ends: a byte now and then keeps every timeout of a socket waiting."""
        self.overdue = True
        if self._socket:
            # By the plain socket's own method: that of TLS would pull the rug from under who reads.
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _read_streamed(
    on_text: OnText | None, exchange: Exchange, response: http.client.HTTPResponse, sent: float
) -> StreamedResponse | Failure:
    """Read a response that arrives piece by piece. Raise NonsenseError and RefusedError."""
    kind = response.headers.get_content_type()
    if kind != "text/event-stream":
        raise NonsenseError(f"does not stream: its response is {short(kind)}")
    reading = Reading(on_text=on_text)
    try:
        _read_events(exchange, response, sent, reading)
    finally:
        exchange.pieces = len(reading.pieces)
    if not reading.done and reading.finish is None:
        return exchange.failed("cut", "the response ends in the middle")
    if not reading.pieces:
        return exchange.failed("empty", "the server's response has no token")
    return StreamedResponse(
        connect_ms=exchange.connect_ms,
        first_token_ms=reading.pieces[0].at,
        last_token_ms=reading.pieces[-1].at,
        total_ms=1000 * (exchange.clock() - sent),
        pieces=tuple(reading.pieces),
        text="".join(reading.texts),
        finish=reading.finish,
        timings=reading.timings,
        usage=reading.usage,
    )


def _read_events(exchange: Exchange, response: http.client.HTTPResponse, sent: float, reading: Reading) -> None:
    events = Events()
    while not reading.done:
        data = response.read1(_BLOCK)
        at = 1000 * (exchange.clock() - sent)
        if not data:
            return
        for event in events.feed(data):
            reading.take(event, at)
        if reading.pieces:
            exchange.wait(exchange.patience.silence)


_BY_STATUS: Mapping[int, FailureKind] = {401: "key", 403: "key", 404: "path", 405: "path", 429: "busy", 503: "busy"}


def failure(why: FailureKind, message: str, status: int = 0, pieces: int = 0) -> Failure:
    """Return a failure with the help for its kind."""
    return Failure(why, message, _HELP[why], status, pieces)


def _connection(target: Target, patience: Patience) -> tuple[http.client.HTTPConnection, str]:
    """Return a closed connection, and the path that others are added to. Raise ValueError."""
    parts = urlsplit(target.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it must begin with http:// or https:// and a host")
    if parts.username or parts.query or parts.fragment:
        raise ValueError("it may have a host, a port and a path, and nothing else")
    prefix = parts.path.rstrip("/")
    if not (prefix.isascii() and prefix.isprintable()) or " " in prefix:
        raise ValueError("its path has letters that no path has")
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=patience.connect, context=context
        ), prefix
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=patience.connect), prefix


def _headers(target: Target, accepted: str) -> dict[str, str]:
    """Return the headers; a compressed stream would give no times. Raise ValueError, without the key in it."""
    headers = {"Content-Type": "application/json", "Accept": accepted, "Accept-Encoding": "identity"}
    if target.key is not None:
        if not target.key.isascii() or not target.key.isprintable():
            raise ValueError("the key has letters that no key has")
        headers["Authorization"] = f"Bearer {target.key}"
    return headers


MOST_JSON_BYTES = 8 << 20
"""Bytes of a response: the numbers of a million tokens."""

SHORT_PATIENCE = Patience(first=60, silence=60, total=120)
"""For requests that a server completes without generating anything."""


@dataclass(frozen=True)
class JsonResponse:
    """The JSON value that a server returned. `total_ms` is how long it took, on an open connection."""

    value: Any
    total_ms: float


def request_json(
    target: Target, path: str, body: Mapping[str, Any] | None = None, patience: Patience = SHORT_PATIENCE
) -> JsonResponse | Failure:
    """Request a path, and return its JSON; without a body by GET."""
    return _exchange(target, path, body, patience, "application/json", _read_json)


def _read_json(exchange: Exchange, response: http.client.HTTPResponse, sent: float) -> JsonResponse | Failure:
    """Read a response that is one JSON value. Raise NonsenseError."""
    kind = response.headers.get_content_type()
    if kind != "application/json":
        raise NonsenseError(f"sends {short(kind)} instead of JSON")
    data = response.read(MOST_JSON_BYTES + 1)
    total_ms = 1000 * (exchange.clock() - sent)
    if len(data) > MOST_JSON_BYTES:
        raise NonsenseError(f"sends more than {MOST_JSON_BYTES >> 20} MiB")
    if exchange.overdue or (response.length or 0) > 0:
        return exchange.failed("cut", "the response ends in the middle")
    try:
        return JsonResponse(json.loads(data), total_ms)
    except (ValueError, RecursionError):
        raise NonsenseError("sends invalid JSON") from None
