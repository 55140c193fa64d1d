"""A server on loopback that says of its slots what llama-server does, and is as slow, silent or odd as it is told."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PROMPT = "canary-prompt-5b1e"
"""Stands in what slots say, and must never leave the host."""
KEY = "sk-status-canary-90ad"


class SlotsServer(ThreadingHTTPServer):
    """Two slots. Each busy one has written `step` tokens more when it is asked again; `paths` are answered as they say.

    What is `silent` is answered when nobody waits for it any more.
    """

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        self.busy, self.step, self.waiting = 0, 0, 0
        self.asked = 0
        self.reading = False
        self.health = 200
        self.ended = threading.Event()
        self.silent: set[str] = set()
        self.paths: dict[str, tuple[int, bytes]] = {}
        self.seen: list[tuple[str, str | None]] = []
        super().__init__(("127.0.0.1", port), _Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def handle_error(self, *_: object) -> None:
        """A client that leaves is none of our business."""

    def slots(self) -> list[dict[str, Any]]:
        """As llama.cpp b11434 says them."""
        self.asked += 1
        count = 0 if self.reading else self.asked * self.step
        idle = {"n_ctx": 4096, "speculative": False, "is_processing": False}
        works = idle | {"is_processing": True, "id_task": 7, "prompt": PROMPT, "next_token": [{"n_decoded": count}]}
        return [{"id": number, **(works if number < self.busy else idle)} for number in range(2)]

    def metrics(self) -> str:
        """As it says them; its counter of tokens moves at the end of an answer alone."""
        return (
            "# TYPE llamacpp:tokens_predicted_total counter\nllamacpp:tokens_predicted_total 0\n"
            f"llamacpp:requests_processing {self.busy}\nllamacpp:requests_deferred {self.waiting}\n"
        )

    def stop(self) -> None:
        """End it; whoever connects is refused."""
        self.ended.set()
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: SlotsServer

    def do_GET(self) -> None:
        server = self.server
        server.seen.append((self.path, self.headers.get("Authorization")))
        if self.path in server.silent:
            server.ended.wait(60)
        elif self.path in server.paths:
            self._say(*server.paths[self.path])
        elif self.path == "/health":
            self._say(server.health, b'{"status":"ok"}')
        elif self.headers.get("Authorization") != f"Bearer {KEY}":
            self._say(401, b'{"error":{"message":"Invalid API Key"}}')
        elif self.path == "/slots":
            self._say(200, json.dumps(server.slots()).encode())
        else:
            self._say(200, server.metrics().encode())

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""
