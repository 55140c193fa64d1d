"""HTTP to a declared server of this host, with limits for the time and the bytes of a whole request."""

from __future__ import annotations

import http.client
import io
import json
import math
import os
import re
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from llamaherd.onhost.document import decode
from roles.serve.onhost.processes import valid_pids

LARGEST = 1 << 20
"""Bytes of a response."""
METRICS_SECONDS = 2.0
"""Limit of a page of metrics: a server that computes too hard to return it is busy."""
_GAUGES = re.compile(
    r"^(?:llamacpp:requests_(?:processing|deferred)|vllm:num_requests_(?:running|waiting))"
    r"(?:\{.*\})? ([0-9]+(?:\.[0-9]+)?)",
    re.MULTILINE,
)
_MOST_REQUESTS = 10**6
_SHOWN = 200
"""Characters of an error's message that are shown."""

_SECONDS = 120.0


class NotServingError(Exception):
    """The server does not serve; contains the reason."""


class NoResponseError(NotServingError):
    """No response arrives in time."""


class StatusError(NotServingError):
    """The server returns an HTTP error: its status, and its message on one line."""

    def __init__(self, what: str, status: int, message: str) -> None:
        super().__init__(f"{what} returns HTTP {status}: {message}")
        self.status, self.message = status, message


@dataclass(frozen=True)
class Response:
    """An HTTP response that was read to its end, and the seconds that it took."""

    status: int
    body: bytes
    seconds: float = 0.0

    def require_ok(self, what: str) -> bytes:
        """Return the body. Raise StatusError where the response is an error."""
        if self.status != 200:
            raise StatusError(what, self.status, error_message(self.body))
        return self.body


class Wire:
    """A connected socket whose reads end at a deadline and after so many bytes, however many reads they are."""

    def __init__(self, host: str, port: int, deadline: float) -> None:
        # What `socket` has now: pyinfra replaces it in the process of a test.
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        try:
            self.limit(deadline)
            self._socket.connect((host, port))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            self._socket.close()
            raise

    def limit(self, deadline: float) -> None:
        """Limit what follows. Raise TimeoutError after the deadline."""
        self._deadline, self._room = deadline, 2 * LARGEST
        self._socket.settimeout(seconds_left(deadline))

    def sendall(self, data: bytes) -> None:
        """Send all of it."""
        self._socket.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return what is received as a file, which keeps the socket open."""
        del mode
        return io.BufferedReader(_Reader(self, self._socket.makefile("rb", buffering=0)))

    def receive(self, raw: io.RawIOBase, buffer: Any) -> int:
        """Read, as long as there is time and room. Raise TimeoutError or OSError."""
        self._socket.settimeout(seconds_left(self._deadline))
        count = raw.readinto(buffer) or 0
        self._room -= count
        if self._room < 0:
            raise OSError("it does not end")
        return count

    def hang_up(self) -> None:
        """Leave in the middle of a response."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it; a file of it keeps it open."""
        self._socket.close()


class _Reader(io.RawIOBase):
    def __init__(self, wire: Wire, raw: io.RawIOBase) -> None:
        self._wire, self._raw = wire, raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._wire.receive(self._raw, buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class Connection(http.client.HTTPConnection):
    """A connection to the server itself: no proxy, no redirect, a deadline, and the key that requests are sent with."""

    sock: Wire | None

    def __init__(self, url: str, deadline: float, key: str | None = None) -> None:
        parts = urlsplit(url)
        super().__init__(parts.hostname or "", parts.port)
        self.deadline, self.key = deadline, key

    def connect(self) -> None:
        """Connect before the deadline. Raise OSError."""
        self.sock = Wire(self.host, self.port, self.deadline)

    def hang_up(self) -> None:
        """Leave in the middle of a response."""
        if self.sock:
            self.sock.hang_up()

    def send_request(self, path: str, body: Mapping[str, object] | None = None) -> None:
        """Send one request, a POST where it has a body. Raise OSError, HTTPException or ValueError."""
        headers = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self.sock:
            self.sock.limit(self.deadline)
        content = None if body is None else json.dumps(body).encode()
        self.request("GET" if body is None else "POST", path, content, headers)

    def open_response(self, path: str, body: Mapping[str, object] | None = None) -> http.client.HTTPResponse:
        """Send one request and return its response, to be read. Raise OSError, HTTPException or ValueError."""
        kept = self.sock is not None
        try:
            self.send_request(path, body)
            return self.getresponse()
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            if not kept:
                raise
        # A server may close a connection that it kept at any time: clients open another one.
        self.close()
        self.send_request(path, body)
        return self.getresponse()

    def fetch(self, what: str, path: str, body: Mapping[str, object] | None = None) -> Response:
        """Send one request and return its response. Raise NotServingError where none comes, or one that is too large.

        `what` names the request in the message.
        """
        with explained(what):
            began = time.monotonic()
            response = self.open_response(path, body)
            content = response.read(LARGEST + 1)
            if len(content) > LARGEST:
                raise NotServingError(f"{what} returns more than {LARGEST} bytes")
            return Response(response.status, content, time.monotonic() - began)


def seconds_left(deadline: float) -> float:
    """Return the seconds until a deadline. Raise TimeoutError after it."""
    if (seconds := deadline - time.monotonic()) <= 0:
        raise TimeoutError("timed out")
    return seconds


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Raise NotServingError for what a connection raises; `what` names the request."""
    try:
        yield
    except TimeoutError as error:
        raise NoResponseError(f"{what} gets no response: {error}") from None
    except OSError as error:
        raise NotServingError(f"{what} gets no response: {error}") from None
    except (http.client.HTTPException, ValueError) as error:
        raise NotServingError(f"{what} returns something other than HTTP: {type(error).__name__}") from None


def error_message(body: bytes) -> str:
    """Return the message of an error's body, or the body, on one line."""
    text = body.decode(errors="replace")
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        text = str(json.loads(text)["error"]["message"])
    return " ".join(text.split())[:_SHOWN]


def path_of(url: str) -> str:
    """Return the path of a URL, with its query."""
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def gauges(page: bytes) -> list[float]:
    """Return the numbers of requests in flight that a page of metrics contains, running and queued ones."""
    return [float(each) for each in _GAUGES.findall(page.decode(errors="replace"))]


def requests_in_flight(urls: Iterable[str], key: str | None) -> int:
    """Return how many requests a server responds to or queues, by the pages of metrics of its models.

    A page that does not arrive in time counts as one request, and a page without such metrics as none.
    """
    return sum(_requests_at(url, key) for url in urls)


def _requests_at(url: str, key: str | None) -> int:
    try:
        with closing(Connection(url, time.monotonic() + METRICS_SECONDS, key)) as connection:
            response = connection.open_response(path_of(url))
            page = response.read(LARGEST)
        return math.ceil(min(sum(gauges(page)), _MOST_REQUESTS)) if response.status == 200 else 0
    except TimeoutError:
        return 1
    except (OSError, http.client.HTTPException, ValueError):
        return 0


@contextmanager
def direct_group(group: int) -> Iterator[None]:
    """Give this process another effective group meanwhile, which rules of nftables leave alone. Raise OSError."""
    before = os.getegid()
    os.setegid(group)
    try:
        yield
    finally:
        os.setegid(before)


@dataclass(frozen=True)
class DeclaredServer:
    """The declared server: where it listens, what a client sends first, and what the response must be like.

    A question that an earlier version kept has no more than the prompt.
    """

    url: str = ""
    metrics: tuple[str, ...] = ()
    seconds: float = _SECONDS
    """Limit of the first response."""
    drafts: int = 0
    """Drafted tokens from which on some must have been accepted; 0 where nothing drafts."""
    floor: float = 0
    """Tokens/s that it must decode; 0 where any speed will do."""
    body: Mapping[str, Any] = field(default_factory=dict)
    same: str | None = None
    """What has one speed: a model on certain GPUs."""
    spec: str | None = None
    kind: str = "chat"
    models: tuple[str, ...] = ()
    models_path: str | None = None
    props_path: str | None = None
    health_path: str | None = None
    listen: str | None = None
    closed: bool = False
    """Whether it listens at no other port."""
    context: int = 0
    key: str | None = field(default=None, repr=False)
    pids: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Return the path of the prompt."""
        return urlsplit(self.url).path

    @property
    def model(self) -> str:
        """Return the name that clients send."""
        return str(self.body.get("model", ""))

    def busy(self) -> bool:
        """Return whether requests are in flight. A server that is too busy to report it has some."""
        return requests_in_flight(self.metrics, self.key) > 0


def parse_declared(question: Mapping[str, object], key: str | None, pids: Iterable[str] = ()) -> DeclaredServer:
    """Return the declared server of a question and the text of its key. Raise DocumentError where a field is wrong.

    Fields that this version does not have are left out, and so are ids of processes that are none.
    """
    names = {each.name for each in fields(DeclaredServer)} - {"key", "pids"}
    known = {name: value for name, value in question.items() if name in names}
    metrics = known.get("metrics", [])
    known["metrics"] = [metrics] if isinstance(metrics, str) else metrics
    known["key"] = None if key is None else key.strip()
    known["pids"] = list(valid_pids(pids))
    return decode(DeclaredServer, known)
