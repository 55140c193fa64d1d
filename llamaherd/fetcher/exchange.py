"""One request for a range of a file, and whether the answer is what was asked for."""

from __future__ import annotations

import email.utils
import http.client
import re
import socket
import ssl
import time
from types import TracebackType
from urllib.parse import urljoin, urlsplit

from llamaherd.fetcher.lines import Lines, origin
from llamaherd.fetcher.refusals import not_as_asked, refused, wrong_size
from llamaherd.fetcher.source import LaterError, Offer, RefusedError

_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 10
# The unit's name has no case (RFC 9110, 14.1); no file has more digits.
_RANGE = re.compile(r"bytes +(\d{1,19})-(\d{1,19})/(\d{1,19}|\*)", re.IGNORECASE | re.ASCII)
_OF_SIZE = re.compile(r"bytes +\*/(\d{1,19})", re.IGNORECASE | re.ASCII)
_STRONG = re.compile(r'"[^"]*"')
_LITTLE = 64 << 10  # bytes of a body without use that are read, to keep the connection
_LONGEST_AFTER = 3600.0  # seconds; a server that wants more is asked earlier


class ChangedError(Exception):
    """The source has another file there than when it was asked first."""


class RangeIgnoredError(Exception):
    """The source gives files from the beginning only."""


class Body:
    """The bytes of an answer: of the file from `at`, which goes on as they are read, to `end`. A context manager.

    `is_sure` is False where the answer does not say how long it is: a page of somebody in between, which ends early,
    would be taken for the beginning of the file.
    """

    def __init__(
        self, lines: Lines, offer: Offer, url: str, response: http.client.HTTPResponse, part: tuple[int, int, int]
    ) -> None:
        self.at, self.end, self._size = part
        self.is_sure = response.length is not None
        self._lines = lines
        self._offer = offer
        self._url = url
        self._response = response

    def read_into(self, buffer: memoryview) -> int:
        """What there is now, at least a byte. Raises LaterError, RefusedError if there is no more of what is wanted."""
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


def ask(lines: Lines, offer: Offer, start: int, end: int, size: int) -> Body:
    """Ask for the bytes from `start` to before `end` of a file of this size; the answer may have fewer.

    Of a source that ignores ranges, only the whole file can be had. Raises RefusedError, LaterError, ChangedError,
    RangeIgnoredError.
    """
    first = offer.target
    try:
        return _asked(lines, offer, first, start, end, size)
    except (RefusedError, LaterError) as error:
        if first == offer.source.url:
            raise
        # Where a redirect leads to has an end: ask anew where it comes from, at once if nobody asks to be left alone.
        offer.forget_target()
        if isinstance(error, LaterError):
            raise
        return _asked(lines, offer, offer.source.url, start, end, size)


def _asked(lines: Lines, offer: Offer, url: str, start: int, end: int, size: int) -> Body:
    headers = {"Accept-Encoding": "identity", "User-Agent": "llamaherd"}
    # That ranges are ignored may have been found out since a part was claimed: it is not the whole for that.
    if not (offer.ignores_ranges and (start, end) == (0, size)):
        headers["Range"] = f"bytes={start}-{end - 1}"
        if offer.etag:
            headers["If-Range"] = offer.etag
    last, response = _followed(lines, offer, url, headers)
    try:
        # An ETag is that of the address which gave it, and not of where we are led next.
        etag = _etag(response, headers.get("If-Range") if last == url else None)
        first, past = _checked(offer, response, start, end, size)
    except Exception:
        lines.drop(last)
        raise
    offer.target, offer.etag = last, etag
    return Body(lines, offer, last, response, (first, past, size))


def _followed(lines: Lines, offer: Offer, url: str, headers: dict[str, str]) -> tuple[str, http.client.HTTPResponse]:
    """The answer at the end of redirects, and where that was."""
    for _ in range(_MOST_REDIRECTS + 1):
        # The token is for the source alone, not for whoever it sends us to.
        entitled = offer.token and origin(url) == origin(offer.source.url)
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
            raise not_as_asked(offer, "leads to an address that cannot be opened") from None
        if response.status not in _REDIRECTS:
            return url, response
        _drain(lines, url, response)
        url = _next(offer, url, response.getheader("Location", ""))
    raise not_as_asked(offer, f"redirects more than {_MOST_REDIRECTS} times")


def _next(offer: Offer, url: str, location: str) -> str:
    try:
        target = urljoin(url, location)
        scheme, _, _ = origin(target)
    except ValueError:
        raise not_as_asked(offer, "redirects to what is no http or https address") from None
    if not location:
        raise not_as_asked(offer, "redirects without saying where to")
    if urlsplit(url).scheme == "https" and scheme != "https":
        raise not_as_asked(offer, "redirects from https to http")
    return target


def _drain(lines: Lines, url: str, response: http.client.HTTPResponse) -> None:
    try:
        response.read(_LITTLE)
    except (OSError, http.client.HTTPException):
        lines.drop(url)
    if not response.isclosed():
        lines.drop(url)


def _checked(offer: Offer, response: http.client.HTTPResponse, start: int, end: int, size: int) -> tuple[int, int]:
    """From where to before where the answer's body is wanted, if its head is that of what was asked for."""
    status = response.status
    if status in (408, 425, 429) or status >= 500:
        raise LaterError(f"it answered with status {status}", _after(response.getheader("Retry-After", "")))
    said = response.getheader("Content-Range", "").strip()
    if status == 416 and (known := _OF_SIZE.fullmatch(said)):
        if int(known[1]) != size:
            raise wrong_size(offer, int(known[1]), size)
        if not offer.ignores_ranges:
            # It has the file, and will not part it.
            raise RangeIgnoredError
    if status not in (200, 206):
        raise refused(offer, status, response.getheader("X-Error-Code", ""))
    _refuse_another_kind(offer, response)
    first, past = _range(offer, said, start, size) if status == 206 else (0, size)
    if response.length is not None and response.length != past - first:
        if status == 200:
            raise wrong_size(offer, response.length, size)
        raise not_as_asked(offer, f"sends {response.length} bytes for a range of {past - first}")
    if status == 200 and (start, end) != (0, size):
        raise RangeIgnoredError
    return first, past if status == 200 else min(past, end)


def _refuse_another_kind(offer: Offer, response: http.client.HTTPResponse) -> None:
    encoding = response.getheader("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise not_as_asked(offer, f"sends files encoded as {encoding[:20]}")
    kind = response.getheader("Content-Type", "").partition(";")[0].strip().lower()
    if kind == "text/html" and not urlsplit(offer.source.url).path.lower().endswith((".html", ".htm")):
        raise not_as_asked(offer, "sends a web page instead of the file")


def _range(offer: Offer, said: str, start: int, size: int) -> tuple[int, int]:
    match = _RANGE.fullmatch(said)
    if match is None:
        raise not_as_asked(offer, "sends a part of the file without saying which")
    first, past = int(match[1]), int(match[2]) + 1
    if match[3] not in ("*", str(size)):
        raise wrong_size(offer, int(match[3]), size)
    if first != start or not first < past <= size:
        raise not_as_asked(offer, f"sends bytes {first} to {past - 1} where those from {start} on were asked for")
    return first, past


def _etag(response: http.client.HTTPResponse, before: str | None) -> str | None:
    """What tells this file from another one at the same address. Raises ChangedError if it is not as before."""
    if response.status not in (200, 206):
        return before
    etag = response.getheader("ETag", "")
    if not _STRONG.fullmatch(etag):
        return None
    if before and etag != before:
        raise ChangedError
    return etag


def _after(text: str) -> float | None:
    """Seconds that `Retry-After` asks for, given as a number or a date."""
    if re.fullmatch(r"\d{1,9}", text, re.ASCII):
        seconds = float(text)
    else:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(seconds, 0.0), _LONGEST_AFTER)


def _reason(error: Exception) -> str:
    """Why there is no answer, without what was asked for: a URL may be signed."""
    match error:
        case TimeoutError():
            return "no answer in time"
        case socket.gaierror():
            return f"its name is not known ({error.strerror})"
        case ssl.SSLError():
            return f"TLS failed ({error.reason})"
        case OSError(strerror=str(text)):
            return text[0].lower() + text[1:]
        case http.client.RemoteDisconnected():
            return "the connection was closed without an answer"
        case _:
            return f"no HTTP ({type(error).__name__})"
