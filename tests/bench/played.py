"""A server that plays answers with exact times, over real HTTP: what an engine would say, and when, is in the script.

It is no engine, and nothing that it plays is a measurement. It has the clock of its client, so that both can be held
against each other to the millisecond.
"""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = STREAM + b"Transfer-Encoding: chunked\r\n\r\n"
PLAIN = STREAM + b"Connection: close\r\n\r\n"

Part = tuple[float, bytes]
"""When, in seconds since the request was there, and which bytes."""

Script = Callable[[dict[str, Any]], Sequence[Part] | Iterator[Part]]
"""What is played to a request with this body."""


@dataclass
class Played:
    """Listens on a free port, plays to whoever asks, and keeps when it sent what."""

    script: Script
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    sent: list[tuple[float, bytes]] = field(default_factory=list)
    asked: float = 0.0
    url: str = ""

    def __enter__(self) -> Played:
        played = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    played.play(self)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def play(self, handler: socketserver.StreamRequestHandler) -> None:
        """Read a request, and send each part at its time."""
        first = handler.rfile.readline().decode().split()
        headers = {}
        while line := handler.rfile.readline().strip().decode():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = json.loads(handler.rfile.read(int(headers.get("content-length", 0))) or b"{}")
        self.requests.append((first[1], headers, body))
        self.asked = time.monotonic()
        self.sent.clear()
        for at, data in self.script(body):
            while (left := self.asked + at - time.monotonic()) > 0:
                time.sleep(left if left < 0.001 else left - 0.0005)
            self.sent.append((time.monotonic(), data))
            handler.wfile.write(data)


class Virtual:
    """A clock that stands still but for what is played: times are exact, however busy the machine is.

    The client is given `clock`. What is `paced` sets it to the time of a part, sends that, and goes on when the client
    has looked at the clock, which it does after each piece that it has read.
    """

    def __init__(self) -> None:
        self._now, self._looks = 1000.0, 0
        self._looked = threading.Condition()

    def clock(self) -> float:
        """The time, in seconds."""
        with self._looked:
            self._looks += 1
            self._looked.notify_all()
            return self._now

    def paced(self, parts: Sequence[Part]) -> Iterator[Part]:
        """The same parts, each when the client is ready for it."""
        began = self._now
        for at, data in parts:
            with self._looked:
                self._now, snapshots = began + at, self._looks
            yield 0.0, data
            if not data.startswith(b"HTTP/"):
                self._wait(snapshots)

    def _wait(self, snapshots: int) -> None:
        with self._looked:
            self._looked.wait_for(lambda: self._looks > snapshots, timeout=30)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(value: dict[str, Any] | str) -> bytes:
    return b"data: " + (value if isinstance(value, str) else json.dumps(value)).encode() + b"\n\n"


def delta(text: str, **more: Any) -> bytes:
    """An event with text of a chat."""
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}], **more})


END = event("[DONE]")


def last(finish: str = "length", **more: Any) -> bytes:
    """The event that ends a chat."""
    return event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], **more})


def answer(tokens: int, first: float, each: float, **more: Any) -> list[Part]:
    """So many tokens: the first after `first` seconds, and the others `each` seconds apart."""
    role = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
    parts = [(0.0, CHUNKED), (0.0, chunk(role))]
    parts += [(first + number * each, chunk(delta(f"w{number} "))) for number in range(tokens)]
    end = first + (tokens - 1) * each
    return [*parts, (end, chunk(last(**more)) + chunk(END) + b"0\r\n\r\n")]
