"""Connections that are kept, and GET requests on them."""

from __future__ import annotations

import functools
import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from llamaherd.fetcher.limits import Limits

Origin = tuple[str, str, int]
_PORTS = {"http": 80, "https": 443}
# What a server may put into a Location as it is; anything else is quoted.
_SAFE = "%/:=&?~#+!$,;'@()*[]"


def origin(url: str) -> Origin:
    """Scheme, host and port of an http or https URL. Raises ValueError for any other."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("no http or https URL")
    return parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme]


@functools.cache
def _trust() -> ssl.SSLContext:
    """The certificates of the host's system; to read them takes a while."""
    return ssl.create_default_context()


class _Watched(io.RawIOBase):
    """What comes on a connection, no later than in time."""

    def __init__(self, raw: io.RawIOBase, patience: float) -> None:
        self._raw = raw
        self._patience = patience
        self.begin()

    def begin(self) -> None:
        """Count the time anew: the head of an answer is wanted now, or a piece of its body."""
        self._deadline = time.monotonic() + self._patience

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if time.monotonic() > self._deadline:
            raise TimeoutError
        return self._raw.readinto(buffer)

    def close(self) -> None:
        # The connection counts who reads from it.
        self._raw.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    """An answer whose head may neither drip nor be put off for ever, by 100 Continue or 103 Early Hints.

    Nor may what lies between two pieces of its body: the size of a chunk, and the lines after the last one.
    """

    def __init__(self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None):
        super().__init__(sock, debuglevel, method, url)
        self._head = _Watched(sock.makefile("rb", buffering=0), sock.gettimeout() or 0.0)
        self.fp.close()
        self.fp = io.BufferedReader(self._head)

    def begin(self) -> None:
        super().begin()
        while 101 < self.status < 200:
            # It was no answer yet. Nothing but this tells a response that it has not begun.
            vars(self)["headers"] = None
            super().begin()

    def read(self, amt: int | None = None) -> bytes:
        self._head.begin()
        return super().read(amt)

    def read1(self, n: int = -1) -> bytes:
        self._head.begin()
        return super().read1(n)


class Lines:
    """One thread's connections, one for each origin."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._kept: dict[Origin, http.client.HTTPConnection] = {}

    def get(self, url: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        """The head of the answer. Raises OSError, http.client.HTTPException, ValueError."""
        parts = urlsplit(quote(url, safe=_SAFE))
        target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        connection = self._kept.get(origin(url))
        if connection and connection.sock:
            try:
                return self._ask(connection, target, headers)
            except TimeoutError:
                raise
            except (OSError, http.client.HTTPException):
                # The server may have closed it meanwhile, which is its right. On a new one it counts.
                pass
        return self._ask(self._opened(url), target, headers)

    def drop(self, url: str) -> None:
        """Close the connection to this origin: what is left on it is of no use."""
        connection = self._kept.pop(origin(url), None)
        if connection:
            connection.close()

    def close(self) -> None:
        """Close every connection."""
        for connection in self._kept.values():
            connection.close()
        self._kept.clear()

    def _opened(self, url: str) -> http.client.HTTPConnection:
        self.drop(url)
        scheme, host, port = origin(url)
        connection = (
            http.client.HTTPSConnection(host, port, timeout=self._limits.connect, context=_trust())
            if scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=self._limits.connect)
        )
        connection.response_class = _Answer
        connection.connect()
        connection.sock.settimeout(self._limits.stall)
        self._kept[origin(url)] = connection
        return connection

    def _ask(
        self, connection: http.client.HTTPConnection, target: str, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        connection.request("GET", target, headers=dict(headers))
        return connection.getresponse()
