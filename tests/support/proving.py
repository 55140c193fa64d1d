"""A server that says what it is told to, and the prompts that decide whether it stays after a switch."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

WELL = {
    "choices": [{"message": {"content": "red"}, "finish_reason": "stop"}],
    "usage": {"completion_tokens": 1},
    "timings": {},
}
STREAM = b"".join(
    b"data: " + each + b"\n\n"
    for each in (
        b'{"choices": [{"delta": {"content": "red"}, "finish_reason": null}]}',
        b'{"choices": [{"delta": {}, "finish_reason": "stop"}]}',
        b"[DONE]",
    )
)


class Scripted(ThreadingHTTPServer):
    """Answers each request with this status and body, and keeps what it was asked."""

    daemon_threads = True
    status = 200
    body = b""
    later = 0
    """The status of answers after the first, if another."""
    timings: list[dict[str, float]]
    """Those of each answer, the last one again and again."""
    proc: Path
    """What stands for /proc: while it answers, so many of 100 ticks for others, and so many its own as process 7."""
    others: list[int]
    own = 0
    in_flight: list[int]
    """Requests of others, each time that it is asked."""
    keys: list[str | None]
    told: list[dict[str, Any]]
    lock = threading.Lock()

    def computes(self, others: int) -> None:
        """A second goes by: this much of it for others."""
        with self.lock:
            stat, own = self.proc / "stat", self.proc / "7" / "stat"
            own.parent.mkdir(parents=True, exist_ok=True)
            was = [int(word) for word in stat.read_text().split()[1:9]] if stat.exists() else [0] * 8
            mine = int(own.read_text().split()[-1]) if own.exists() else 0
            was[0] += others + self.own
            was[3] += 100 - others - self.own
            stat.write_text(" ".join(["cpu ", *map(str, was), "0", "0"]) + "\ncpu0 1 2 3\n")
            own.write_text(f"7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 0 {mine + self.own}")


class Handler(BaseHTTPRequestHandler):
    """Of such a server."""

    server: Scripted

    def do_POST(self) -> None:
        told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if told.get("stream"):
            self.answers(200, STREAM, "text/event-stream")
            return
        self.server.told.append(told)
        self.server.keys.append(self.headers["Authorization"])
        if not self.server.status:
            self.close_connection = True
            return
        body = self.server.body
        if timings := self.server.timings:
            body = json.dumps(json.loads(body) | {"timings": timings.pop(0) if timings[1:] else timings[0]}).encode()
        others = self.server.others
        self.server.computes(others.pop(0) if others[1:] else others[0])
        again = self.server.later and len(self.server.told) > 1
        self.answers(self.server.later if again else self.server.status, body)

    def do_GET(self) -> None:
        busy = self.server.in_flight
        count = busy.pop(0) if busy[1:] else busy[0]
        self.answers(200, f"# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing {count}\n".encode())

    def answers(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def says(server: Scripted, *, status: int = 200, **other: object) -> None:
    server.status, server.body = status, json.dumps(WELL | other).encode()


@contextmanager
def scripted(handler: type[Handler] = Handler) -> Iterator[Scripted]:
    """Such a server, for as long as it is wanted."""
    with Scripted(("127.0.0.1", 0), handler) as made:
        made.keys, made.told, made.timings, made.in_flight, made.others = [], [], [], [0], [0]
        thread = threading.Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join()
