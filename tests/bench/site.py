"""A server with pages and a chat, over real HTTP: what stands at each path, and what it plays, is in the script.

It is no engine: nothing that it says is a measurement.
"""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from tests.bench.played import Part

Reply = Callable[[dict[str, Any]], Sequence[Part]]
"""What is played to a request with this body."""

MODELS = "/v1/models"
CHAT = "/v1/chat/completions"


def page(value: Any, status: str = "200 OK", kind: str = "application/json") -> Reply:
    """A value as JSON, or a text as it is."""
    body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    return lambda _: [(0.0, head + body)]


def models(*names: str, **more: Any) -> Reply:
    """The list of models."""
    return page({"object": "list", "data": [{"id": name, "object": "model", **more} for name in names]})


_LAST = b"0\r\n\r\n"
"""What ends an answer in chunks."""

MISSING = page({"error": {"message": "there is nothing here"}}, "404 Not Found")


@dataclass
class Site:
    """Listens on a free port, and keeps what it was asked. Each request is answered beside the others."""

    pages: dict[str, Reply]
    asked: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    url: str = ""

    def __enter__(self) -> Site:
        site, self._lock = self, threading.Lock()

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    site.answer(self)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler: socketserver.StreamRequestHandler) -> None:
        """Read a request, and send each part of what stands there at its time."""
        path = handler.rfile.readline().decode().split()[1]
        headers = {}
        while line := handler.rfile.readline().strip().decode():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = json.loads(handler.rfile.read(int(headers.get("content-length", 0))) or b"{}")
        began = time.monotonic()
        with self._lock:
            self.asked.append((path, headers, body))
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        answering = True
        try:
            for at, data in self.pages.get(path, MISSING)(body):
                time.sleep(max(0.0, began + at - time.monotonic()))
                if answering and data.endswith(_LAST):
                    # Who has the last piece asks anew, before this thread goes on.
                    answering = False
                    self._ended()
                handler.wfile.write(data)
        finally:
            if answering:
                self._ended()

    def _ended(self) -> None:
        with self._lock:
            self.at_once -= 1
