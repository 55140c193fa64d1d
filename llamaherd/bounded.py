"""An HTTP client whose responses are limited in bytes and time.

The import takes time, so modules import it in the function that sends a request.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx2
from typing_extensions import override

from llamaherd.text.numbers import show_size

_WATCH = "llamaherd.watch"
"""The extension of a request that holds its watch; redirects pass it on."""


_MOST_ON_THE_WAY = 1 << 20
"""The most bytes in the body of a redirect, which is unused."""


class ExcessError(Exception):
    """A response beyond its limits. The message is a clause that follows the server's name."""


@dataclass(frozen=True)
class Bounds:
    """Limits of a response, including the redirects before it: bytes of a body, and seconds.

    `silence` is the limit before the first byte, and between two bytes. After twice that time, the average must be at
    least `slowest` bytes a second. `total` limits the whole response.
    """

    body: int
    silence: float = 30.0
    total: float = 300.0
    slowest: int = 4096


class BoundedClient(httpx2.Client):
    """A client that limits each response. Raises ExcessError and the errors of httpx2."""

    def __init__(self, bounds: Bounds, max_redirects: int = 5) -> None:
        super().__init__(
            timeout=bounds.silence,
            follow_redirects=True,
            max_redirects=max_redirects,
            # A few hundred bytes of an encoded response can stand for gigabytes.
            headers={"Accept-Encoding": "identity"},
            # A reused connection would not be traced.
            limits=httpx2.Limits(max_keepalive_connections=0),
            event_hooks={"response": [_bind]},
        )
        self._bounds = bounds

    @override
    def send(self, request: httpx2.Request, **how: Any) -> httpx2.Response:
        """Send a request. Raise ExcessError if the response does not begin in time."""
        watch = _Watch(self._bounds)
        request.extensions = {**request.extensions, "trace": watch.trace, _WATCH: watch}
        try:
            with watch.minding():
                return super().send(request, **how)
        except BaseException:
            watch.stop()
            raise


class _Watch:
    """Closes the connection of an overdue response: single bytes would reset the timeout of a socket for ever."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._began = time.monotonic()
        self._got = 0
        self._socket: socket.socket | None = None
        self._over = threading.Event()
        self._late = False
        threading.Thread(target=self._cut_when_due, daemon=True).start()

    def trace(self, _name: str, info: Mapping[str, Any]) -> None:
        """Store the current socket, which TLS and redirects replace."""
        get_extra_info = getattr(info.get("return_value"), "get_extra_info", None)
        if get_extra_info:
            self._socket = get_extra_info("socket")

    def body(self, pieces: Iterable[bytes], *, leads_on: bool) -> Iterator[bytes]:
        """Yield the body of a response, or of a redirect. Raise ExcessError beyond its limits."""
        most = min(self._bounds.body, _MOST_ON_THE_WAY) if leads_on else self._bounds.body
        size = 0
        with self.minding():
            for piece in pieces:
                size += len(piece)
                self._got += len(piece)
                if size > most:
                    raise ExcessError(f"sends more than {show_size(most)}")
                self._refuse_late()
                yield piece

    @contextmanager
    def minding(self) -> Iterator[None]:
        """Raise ExcessError instead of the transport error of a connection that the watch has closed."""
        try:
            yield
        except httpx2.TransportError:
            self._refuse_late()
            raise

    def stop(self) -> None:
        """End the watch: the response is complete, or no longer needed."""
        self._over.set()

    def _refuse_late(self) -> None:
        if self._late or self._due() < time.monotonic():
            raise ExcessError("responds too slowly") from None

    def _due(self) -> float:
        bounds = self._bounds
        return self._began + min(bounds.total, 2 * bounds.silence + self._got / bounds.slowest)

    def _cut_when_due(self) -> None:
        while not self._over.wait(max(0.0, self._due() - time.monotonic())):
            if self._due() < time.monotonic():
                self._late = True
                if self._socket is not None:
                    # The method of the plain socket: that of a TLS socket would break a reader in another thread.
                    with suppress(OSError):
                        socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
                return


class _BoundedStream(httpx2.SyncByteStream):
    """A body whose bytes are counted as they arrive."""

    def __init__(self, inner: httpx2.SyncByteStream, watch: _Watch, *, leads_on: bool) -> None:
        self._inner = inner
        self._watch = watch
        self._leads_on = leads_on

    @override
    def __iter__(self) -> Iterator[bytes]:
        return self._watch.body(self._inner, leads_on=self._leads_on)

    @override
    def close(self) -> None:
        if not self._leads_on:
            self._watch.stop()
        self._inner.close()


def _bind(response: httpx2.Response) -> None:
    """Limit the body of a response, also of a redirect."""
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        raise ExcessError("encodes its response, though the request allows only `identity`")
    if isinstance(response.stream, httpx2.SyncByteStream):
        watch = response.request.extensions[_WATCH]
        response.stream = _BoundedStream(response.stream, watch, leads_on=response.has_redirect_location)
