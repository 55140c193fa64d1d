"""Request ranges of files over kept HTTP connections, and check that the response is the requested range."""

from __future__ import annotations

import email.utils
import functools
import http.client
import io
import re
import socket
import ssl
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from llamaherd.onhost.fetch.job import Limits
from llamaherd.onhost.fetch.transfer import (
    LaterError,
    Offer,
    RefusedError,
    refused_by_status,
    unexpected_response,
    wrong_size,
)

Origin = tuple[str, str, int]
_PORTS = {"http": 80, "https": 443}
# Characters that a server may put into a Location; anything else is quoted.
_SAFE = "%/:=&?~#+!$,;'@()*[]"


def origin_of(url: str) -> Origin:
    """Return scheme, host and port of an http or https URL. Raise ValueError for any other."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("not an http or https URL")
    return parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme]


@functools.cache
def _trust() -> ssl.SSLContext:
    """Return the certificates of the host's system, cached: reading them takes a while."""
    return ssl.create_default_context()


class _Watched(io.RawIOBase):
    """The bytes of a connection, within a time limit."""

    def __init__(self, raw: io.RawIOBase, patience: float) -> None:
        self._raw = raw
        self._patience = patience
        self.begin()

    def begin(self) -> None:
        """Restart the time limit, for the head of a response or a piece of its body."""
        self._deadline = time.monotonic() + self._patience

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if time.monotonic() > self._deadline:
            raise TimeoutError
        return self._raw.readinto(buffer)

    def close(self) -> None:
        # The connection counts its readers.
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """A response whose head can neither drip nor be delayed for ever by 100 Continue or 103 Early Hints.

    The same holds between two pieces of its body: the size of a chunk, and the lines after the last one.
    """

    def __init__(self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None):
        super().__init__(sock, debuglevel, method, url)
        self._head = _Watched(sock.makefile("rb", buffering=0), sock.gettimeout() or 0.0)
        self.fp.close()
        self.fp = io.BufferedReader(self._head)

    def begin(self) -> None:
        super().begin()
        while 101 < self.status < 200:
            # It was not a response yet. Only this resets a response to its beginning.
            vars(self)["headers"] = None
            super().begin()

    def read(self, amt: int | None = None) -> bytes:
        self._head.begin()
        return super().read(amt)

    def read1(self, n: int = -1) -> bytes:
        self._head.begin()
        return super().read1(n)


class Connections:
    """The connections of one thread, one for each origin."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._kept: dict[Origin, http.client.HTTPConnection] = {}

    def get(self, url: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        """Return a response with its head. Raise OSError, http.client.HTTPException or ValueError."""
        parts = urlsplit(quote(url, safe=_SAFE))
        target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        connection = self._kept.get(origin_of(url))
        if connection and connection.sock:
            try:
                return self._request_once(connection, target, headers)
            except TimeoutError:
                raise
            except (OSError, http.client.HTTPException):
                # The server may have closed it since, as it may. On a new connection it counts as a failure.
                pass
        return self._request_once(self._opened(url), target, headers)

    def drop(self, url: str) -> None:
        """Close the connection to this origin: the rest on it is useless."""
        connection = self._kept.pop(origin_of(url), None)
        if connection:
            connection.close()

    def close(self) -> None:
        """Close every connection."""
        for connection in self._kept.values():
            connection.close()
        self._kept.clear()

    def _opened(self, url: str) -> http.client.HTTPConnection:
        self.drop(url)
        scheme, host, port = origin_of(url)
        connection = (
            http.client.HTTPSConnection(host, port, timeout=self._limits.connect, context=_trust())
            if scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=self._limits.connect)
        )
        connection.response_class = _Response
        connection.connect()
        connection.sock.settimeout(self._limits.stall)
        self._kept[origin_of(url)] = connection
        return connection

    def _request_once(
        self, connection: http.client.HTTPConnection, target: str, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        connection.request("GET", target, headers=dict(headers))
        return connection.getresponse()


_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 10
# The unit's name has no case (RFC 9110, 14.1); no file has more digits.
_RANGE = re.compile(r"bytes +(\d{1,19})-(\d{1,19})/(\d{1,19}|\*)", re.IGNORECASE | re.ASCII)
_OF_SIZE = re.compile(r"bytes +\*/(\d{1,19})", re.IGNORECASE | re.ASCII)
_STRONG = re.compile(r'"[^"]*"')
_LITTLE = 64 << 10  # bytes of an unneeded body that are read, to keep the connection
_LONGEST_AFTER = 3600.0  # seconds; a server that requests more is tried earlier


class ChangedError(Exception):
    """The source has another file there than at the first request."""


class RangeIgnoredError(Exception):
    """The source sends files from the beginning only."""


class Body:
    """The bytes of a response: of the file from `at`, which moves as they are read, to `end`. A context manager.

    `is_sure` is False if the response has no length: a page of a proxy, which ends early, would pass for the beginning
    of the file.
    """

    def __init__(
        self, lines: Connections, offer: Offer, url: str, response: http.client.HTTPResponse, part: tuple[int, int, int]
    ) -> None:
        self.at, self.end, self._size = part
        self.is_sure = response.length is not None
        self._lines = lines
        self._offer = offer
        self._url = url
        self._response = response

    def read_into(self, buffer: memoryview) -> int:
        """Read the bytes that have arrived, at least one. Raise LaterError or RefusedError if no more arrive."""
        began = time.monotonic()
        try:
            count = self._response.readinto1(buffer[: self.end - self.at])
        except (OSError, http.client.HTTPException) as error:
            raise LaterError(_reason(error)) from None
        if not count and self._response.chunked and self._response.status == 200:
            raise wrong_size(self._offer, self.at, self._size)
        if not count:
            raise LaterError("the connection was closed half-way")
        self.at += count
        if self._offer.supplier.is_too_slow(count, time.monotonic() - began):
            raise self._offer.too_slow()
        return count

    def __enter__(self) -> Body:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Only a body that was read to its end leaves the connection fit for the next request.
        if self.at == self.end and self._response.length == 0:
            self._response.close()
        else:
            self._lines.drop(self._url)


def request_range(lines: Connections, offer: Offer, start: int, end: int, size: int) -> Body:
    """Request the bytes from `start` to before `end` of a file of this size; the response may have fewer.

    A source that ignores ranges can only send the whole file. Raise RefusedError, LaterError, ChangedError or
    RangeIgnoredError.
    """
    first = offer.target
    try:
        return _receive_head(lines, offer, first, start, end, size)
    except (RefusedError, LaterError) as error:
        if first == offer.source.url:
            raise
        # The target of a redirect expires: request the source again, at once if no server asks for a pause.
        offer.forget_target()
        if isinstance(error, LaterError):
            raise
        return _receive_head(lines, offer, offer.source.url, start, end, size)


def _receive_head(lines: Connections, offer: Offer, url: str, start: int, end: int, size: int) -> Body:
    headers = {"Accept-Encoding": "identity", "User-Agent": "llamaherd"}
    # Another thread may have found that ranges are ignored since a part was claimed: the part stays a part.
    if not (offer.ignores_ranges and (start, end) == (0, size)):
        headers["Range"] = f"bytes={start}-{end - 1}"
        if offer.etag:
            headers["If-Range"] = offer.etag
    last, response = _followed(lines, offer, url, headers)
    try:
        # An ETag belongs to the address that returned it, and not to the next one.
        etag = _etag(response, headers.get("If-Range") if last == url else None)
        first, past = _checked(offer, response, start, end, size)
    except Exception:
        lines.drop(last)
        raise
    offer.target, offer.etag = last, etag
    return Body(lines, offer, last, response, (first, past, size))


def _followed(
    lines: Connections, offer: Offer, url: str, headers: dict[str, str]
) -> tuple[str, http.client.HTTPResponse]:
    """Follow redirects; return the last response and its address."""
    for _ in range(_MOST_REDIRECTS + 1):
        # The token is for the source alone, not for the targets of its redirects.
        entitled = offer.token and origin_of(url) == origin_of(offer.source.url)
        own = {"Authorization": f"Bearer {offer.token}"} if entitled else {}
        try:
            response = lines.get(url, {**headers, **own})
        except ssl.SSLCertVerificationError as error:
            raise RefusedError(
                f"{offer.source.name} has no certificate for {urlsplit(url).hostname} that can be trusted"
                f" ({error.verify_message})",
                "check the host's clock, its package ca-certificates, and the address",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            lines.drop(url)
            raise LaterError(_reason(error)) from None
        except ValueError:
            raise unexpected_response(offer, "leads to an address that cannot be opened") from None
        if response.status not in _REDIRECTS:
            return url, response
        _drain(lines, url, response)
        url = _next(offer, url, response.getheader("Location", ""))
    raise unexpected_response(offer, f"redirects more than {_MOST_REDIRECTS} times")


def _next(offer: Offer, url: str, location: str) -> str:
    try:
        target = urljoin(url, location)
        scheme, _, _ = origin_of(target)
    except ValueError:
        raise unexpected_response(offer, "redirects to an address without http or https") from None
    if not location:
        raise unexpected_response(offer, "redirects without a target")
    if urlsplit(url).scheme == "https" and scheme != "https":
        raise unexpected_response(offer, "redirects from https to http")
    return target


def _drain(lines: Connections, url: str, response: http.client.HTTPResponse) -> None:
    try:
        response.read(_LITTLE)
    except (OSError, http.client.HTTPException):
        lines.drop(url)
    if not response.isclosed():
        lines.drop(url)


def _checked(offer: Offer, response: http.client.HTTPResponse, start: int, end: int, size: int) -> tuple[int, int]:
    """Return the range of the response's body that is needed, if its head matches the request."""
    status = response.status
    if status in (408, 425, 429) or status >= 500:
        raise LaterError(f"it returned status {status}", _after(response.getheader("Retry-After", "")))
    content_range = response.getheader("Content-Range", "").strip()
    if status == 416 and (known := _OF_SIZE.fullmatch(content_range)):
        if int(known[1]) != size:
            raise wrong_size(offer, int(known[1]), size)
        if not offer.ignores_ranges:
            # It has the file, and ignores ranges.
            raise RangeIgnoredError
    if status not in (200, 206):
        raise refused_by_status(offer, status, response.getheader("X-Error-Code", ""))
    _refuse_another_kind(offer, response)
    first, past = _range(offer, content_range, start, size) if status == 206 else (0, size)
    if response.length is not None and response.length != past - first:
        if status == 200:
            raise wrong_size(offer, response.length, size)
        raise unexpected_response(offer, f"sends {response.length} bytes for a range of {past - first}")
    if status == 200 and (start, end) != (0, size):
        raise RangeIgnoredError
    return first, past if status == 200 else min(past, end)


def _refuse_another_kind(offer: Offer, response: http.client.HTTPResponse) -> None:
    encoding = response.getheader("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise unexpected_response(offer, f"sends files encoded as {encoding[:20]}")
    kind = response.getheader("Content-Type", "").partition(";")[0].strip().lower()
    if kind == "text/html" and not urlsplit(offer.source.url).path.lower().endswith((".html", ".htm")):
        raise unexpected_response(offer, "sends a web page instead of the file")


def _range(offer: Offer, content_range: str, start: int, size: int) -> tuple[int, int]:
    match = _RANGE.fullmatch(content_range)
    if match is None:
        raise unexpected_response(offer, "sends a part of the file without its position")
    first, past = int(match[1]), int(match[2]) + 1
    if match[3] not in ("*", str(size)):
        raise wrong_size(offer, int(match[3]), size)
    if first != start or not first < past <= size:
        raise unexpected_response(
            offer, f"sends bytes {first} to {past - 1} where those from {start} on were requested"
        )
    return first, past


def _etag(response: http.client.HTTPResponse, before: str | None) -> str | None:
    """Return the ETag of this file. Raise ChangedError if it differs from the one before."""
    if response.status not in (200, 206):
        return before
    etag = response.getheader("ETag", "")
    if not _STRONG.fullmatch(etag):
        return None
    if before and etag != before:
        raise ChangedError
    return etag


def _after(text: str) -> float | None:
    """Return the seconds of `Retry-After`, given as a number or a date."""
    if re.fullmatch(r"\d{1,9}", text, re.ASCII):
        seconds = float(text)
    else:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(seconds, 0.0), _LONGEST_AFTER)


def _reason(error: Exception) -> str:
    """Return why there is no response, without the request: a URL may be signed."""
    match error:
        case TimeoutError():
            return "no response in time"
        case socket.gaierror():
            return f"its name is unknown ({error.strerror})"
        case ssl.SSLError():
            return f"TLS failed ({error.reason})"
        case OSError(strerror=str(text)):
            return text[0].lower() + text[1:]
        case http.client.RemoteDisconnected():
            return "the connection was closed without a response"
        case _:
            return f"no HTTP ({type(error).__name__})"
