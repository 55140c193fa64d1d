"""A server that answers whatever it is asked with what no honest one does: bytes on a socket, from a generator."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType

Lie = Callable[["Liar"], Iterator[bytes]]

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BLOCK = b"x" * (64 << 10)
DRIP = 0.05
"""Seconds between two bytes."""


class Liar:
    """Listens on a free port of this machine and tells one lie to whoever comes."""

    def __init__(self, lie: Lie) -> None:
        self.requests = 0
        self.heads: list[bytes] = []
        liar = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                liar.requests += 1
                # Who is lied to hangs up at some point.
                with contextlib.suppress(OSError):
                    liar.heads.append(self.request.recv(1 << 16))
                    for piece in lie(liar):
                        self.request.sendall(piece)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"http://{self.host}"

    def __enter__(self) -> Liar:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def whole(body: bytes, head: bytes = OK) -> Lie:
    """One answer with this body."""
    return lambda _: iter([head + b"Content-Length: %d\r\n\r\n" % len(body) + body])


def raw(*pieces: bytes, then: bytes = b"", drip: bool = False) -> Lie:
    """These bytes, and then the same ones for ever; or each one after a while."""

    def lie(_: Liar) -> Iterator[bytes]:
        for piece in itertools.chain(pieces, itertools.repeat(then) if then else ()):
            if drip:
                time.sleep(DRIP)
            yield piece

    return lie


def redirect(to: str = "", then: bytes = b"") -> Lie:
    """To itself, or elsewhere; with a body that goes on for ever."""

    def lie(liar: Liar) -> Iterator[bytes]:
        yield f"HTTP/1.1 302 Found\r\nLocation: {to or liar.url}\r\n".encode()
        yield b"Content-Length: 0\r\n\r\n" if not then else b"\r\n"
        while then:
            yield then

    return lie


def bomb(_: Liar) -> Iterator[bytes]:
    """A gigabyte of blanks, in a megabyte."""
    body = gzip.compress(b" " * (16 << 20)) * 64
    yield OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body


LIES: dict[str, Lie] = {
    "a body without end": raw(OK + b"\r\n", then=BLOCK),
    "chunks without end": raw(OK + b"Transfer-Encoding: chunked\r\n\r\n", then=b"10000\r\n" + BLOCK + b"\r\n"),
    "an error without end": raw(b"HTTP/1.1 500 Oh\r\n\r\n", then=BLOCK),
    "a length of terabytes": raw(OK + b"Content-Length: 9999999999999\r\n\r\n", then=BLOCK),
    "a length that is no number": raw(OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n"),
    "a body that drips": raw(OK + b"\r\n", then=b" ", drip=True),
    "a head that drips": raw(OK, then=b"X", drip=True),
    "100 Continue without end": raw(then=b"HTTP/1.1 100 Continue\r\n\r\n"),
    "103 Early Hints that drip": raw(then=b"HTTP/1.1 103 Early Hints\r\n\r\n", drip=True),
    "one header of megabytes": raw(OK + b"X-Y: " + BLOCK * 32 + b"\r\n\r\n"),
    "headers without end": raw(OK, then=b"X-Y: z\r\n" * 1000),
    "silence": raw(b"", then=b"", drip=True),
    "no HTTP": raw(b"220 mail.lan ESMTP\r\n"),
    "another encoding that is a bomb": bomb,
    "a redirect to itself": redirect(),
    "a redirect to a file": redirect("file:///etc/passwd"),
    "a redirect to nowhere": redirect("http://[::1"),
    "a redirect with a body without end": redirect(then=BLOCK),
    "brackets": whole(b"[" * 200_000),
    "keys in keys": whole(b'{"a":' * 200_000),
    "a number of a million digits": whole(b'{"sha": ' + b"9" * 1_000_000 + b"}"),
    "a list": whole(b"[1, 2]"),
    "a text": whole(b'"hello"'),
    "nothing": whole(b""),
    "a page": whole(b"<html>please log in</html>"),
    "bytes": whole(bytes(range(256)) * 100),
}
