"""Clients of a gateway that is measured: many at once, and one that is timed."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from dataclasses import dataclass
from itertools import count

NUMBERS = count(1)
"""Each request has a number of its own, which its answer names."""


@dataclass(frozen=True)
class Asked:
    """One request: whose, with which number, and how it is to be answered."""

    key: str
    number: int
    pieces: int
    pause: float
    letters: int
    model: str = "coder"

    @property
    def data(self) -> bytes:
        """It as a client sends it, with `model` behind its text."""
        said = {"n": self.number, "pieces": self.pieces, "pause": self.pause, "messages": text(self.letters)}
        body = json.dumps({**said, "model": self.model}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {self.key}\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def is_whole(self, answer: bytes) -> bool:
        """Whether an answer is this request's own, from its first piece to its last."""
        return answer == b"".join(f"data: {self.number}.{piece}\n\n".encode() for piece in range(self.pieces))


@dataclass(frozen=True)
class Came:
    """What came of a request: `status` is 0 where the line broke, or its client's patience ended."""

    asked: Asked
    status: int
    by: str
    fallback: bool
    whole: bool
    sent: float
    first: float
    ended: float

    @property
    def waited(self) -> float:
        """Seconds to the head of its answer, which a server sends when it begins."""
        return self.first - self.sent


def text(letters: int) -> str:
    """So much of a conversation, with marks that JSON escapes."""
    return ('Say "yes",\nor ä\tno. ' * (letters // 20 + 1))[:letters]


async def ask(port: int, asked: Asked, patience: float) -> Came:
    """Send a request by a connection of its own, and see what comes of it."""
    sent = first = time.monotonic()
    status, by, fallback, answer = 0, "", False, b""
    writer = None
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(asked.data)
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            first = time.monotonic()
            status = int(head.split(" ", 2)[1])
            by = _header(head, "x-herd-instance")
            fallback = bool(_header(head, "x-herd-fallback"))
            answer = await _chunks(reader) if "chunked" in head else b""
    except (TimeoutError, OSError, asyncio.IncompleteReadError):
        status = 0
    finally:
        if writer:
            writer.close()
    return Came(asked, status, by, fallback, asked.is_whole(answer), sent, first, time.monotonic())


def _header(head: str, name: str) -> str:
    return next((line.partition(": ")[2] for line in head.split("\r\n") if line.startswith(f"{name}:")), "")


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    whole = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        whole += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return whole


class Line:
    """A connection that stays, by which one request after the other is timed."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def timed(self, data: bytes) -> tuple[int, float]:
        """Send a request; its status, and the seconds to the end of its answer."""
        began = time.perf_counter()
        self._socket.sendall(data)
        answer = self._socket.recv(65536)
        while not _complete(answer):
            more = self._socket.recv(65536)
            if not more:
                raise ConnectionError("the line was closed in the middle of an answer")
            answer += more
        return int(answer[9:12]), time.perf_counter() - began

    def close(self) -> None:
        """End it."""
        self._socket.close()


def _complete(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return bool(end) and len(body) >= int(length or 0)
