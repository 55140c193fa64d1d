"""HTTP with servers that may lie: no answer takes more bytes or more time than an honest one needs.

It imports the client, so it is itself imported where something is asked.
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
"""Under this name a request carries who watches it; redirects hand it on."""


_MOST_ON_THE_WAY = 1 << 20
"""Bytes of what stands beside a redirect, which nobody looks at."""


class ExcessError(Exception):
    """An answer that no honest server gives: a clause to follow the server's name."""


@dataclass(frozen=True)
class Bounds:
    """What an answer may take, redirects before it included: bytes of a body, and seconds.

    `silence` may pass before an answer begins and between two of its bytes. After twice that it must have come at
    `slowest` bytes a second at least, on average, and it must be there within `total`.
    """

    body: int
    silence: float = 30.0
    total: float = 300.0
    slowest: int = 4096


class BoundedClient(httpx2.Client):
    """A client whose every answer keeps within bounds. Raises ExcessError besides what httpx2 raises."""

    def __init__(self, bounds: Bounds, max_redirects: int = 5) -> None:
        super().__init__(
            timeout=bounds.silence,
            follow_redirects=True,
            max_redirects=max_redirects,
            # A few hundred bytes of an encoded answer can stand for gigabytes.
            headers={"Accept-Encoding": "identity"},
            # A connection that is used again would not be told to who watches.
            limits=httpx2.Limits(max_keepalive_connections=0),
            event_hooks={"response": [_bind]},
        )
        self._bounds = bounds

    @override
    def send(self, request: httpx2.Request, **how: Any) -> httpx2.Response:
        """Send a request, and see to it that its answer begins in time."""
        watch = _Watch(self._bounds)
        request.extensions = {**request.extensions, "trace": watch.trace, _WATCH: watch}
        try:
            with watch.minding():
                return super().send(request, **how)
        except BaseException:
            watch.stop()
            raise


class _Watch:
    """Cuts the connection once an answer is overdue: a byte now and then keeps every timeout of a socket waiting."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._began = time.monotonic()
        self._got = 0
        self._socket: socket.socket | None = None
        self._over = threading.Event()
        self._late = False
        threading.Thread(target=self._cut_when_due, daemon=True).start()

    def trace(self, _name: str, info: Mapping[str, Any]) -> None:
        """Learn which connection it is, which changes with TLS and with redirects."""
        get_extra_info = getattr(info.get("return_value"), "get_extra_info", None)
        if get_extra_info:
            self._socket = get_extra_info("socket")

    def body(self, pieces: Iterable[bytes], *, leads_on: bool) -> Iterator[bytes]:
        """The body of an answer, or of one that leads on to another, while it keeps within bounds."""
        most = min(self._bounds.body, _MOST_ON_THE_WAY) if leads_on else self._bounds.body
        size = 0
        with self.minding():
            for piece in pieces:
                size += len(piece)
                self._got += len(piece)
                if size > most:
                    raise ExcessError(f"answers with more than {show_size(most)}")
                self._refuse_late()
                yield piece

    @contextmanager
    def minding(self) -> Iterator[None]:
        """Turn what a cut connection looks like into what it is."""
        try:
            yield
        except httpx2.TransportError:
            self._refuse_late()
            raise

    def stop(self) -> None:
        """The answer is there, or not wanted any more."""
        self._over.set()

    def _refuse_late(self) -> None:
        if self._late or self._due() < time.monotonic():
            raise ExcessError("answers too slowly") from None

    def _due(self) -> float:
        bounds = self._bounds
        return self._began + min(bounds.total, 2 * bounds.silence + self._got / bounds.slowest)

    def _cut_when_due(self) -> None:
        while not self._over.wait(max(0.0, self._due() - time.monotonic())):
            if self._due() < time.monotonic():
                self._late = True
                if self._socket is not None:
                    # By the plain socket's own method: that of TLS would pull the rug from under who reads.
                    with suppress(OSError):
                        socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
                return


class _BoundedStream(httpx2.SyncByteStream):
    """A body that is counted while it comes."""

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
    """Have a body counted before anybody reads of it, be it that of a redirect."""
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        raise ExcessError("encodes its answer, though it was asked not to")
    if isinstance(response.stream, httpx2.SyncByteStream):
        watch = response.request.extensions[_WATCH]
        response.stream = _BoundedStream(response.stream, watch, leads_on=response.has_redirect_location)
