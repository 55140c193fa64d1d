"""Fetch the header of a GGUF file from a hub by HTTP ranges: megabytes of a file that has gigabytes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from llamaherd.diagnostics.findings import HubError
from llamaherd.gguf.parse import CHUNK, MAX_HEADER, GgufError, Parsed, bytes_to_fetch, parse_header
from llamaherd.text.numbers import whole_number

if TYPE_CHECKING:
    from httpx2 import Client, Response

_CONTENT_RANGE = re.compile(r"bytes (?P<first>\d{1,19})-\d+/(?P<size>\d{1,19}|\*)", re.ASCII)
_MAX_REDIRECTS = 5  # the public hub needs one, to the storage
_AGAIN = "try again; check the network and any proxy"
_RELOCK = "run `herd lock` again; if that does not help, the upload is broken: lock an earlier revision"


@dataclass(frozen=True)
class HubPatience:
    """Time limits for a hub, in seconds, and the number of attempts in a row that may bring nothing.

    `pause` is before the second attempt, and doubles; `longest` is the most that the hub may request by Retry-After;
    `silence` may pass without a byte; `total` is for everything.
    """

    attempts: int = 5
    pause: float = 1.0
    longest: float = 60.0
    silence: float = 30.0
    total: float = 600.0


DEFAULT_PATIENCE = HubPatience()


def fetch_header(
    url: str, token: str | None, size: int, patience: HubPatience = DEFAULT_PATIENCE
) -> tuple[Parsed, bytes]:
    """Return the header of a file of `size` bytes, parsed and as bytes. Raise HubError.

    The fetch reads at most one chunk (`reach`) more than the header. `token` is sent to the host of `url` and no other.
    """
    from llamaherd.bounded import BoundedClient, Bounds

    if not size:
        raise HubError(f"{url} is an empty file", _RELOCK)
    held = _Held(url, size)
    deadline = time.monotonic() + patience.total
    failures = 0
    bounds = Bounds(MAX_HEADER + bytes_to_fetch(MAX_HEADER, 0), patience.silence, patience.total)
    with _sentences(url), BoundedClient(bounds, _MAX_REDIRECTS) as client:
        while held.header is None:
            before, trouble = len(held.data), None
            try:
                _ask(client, held, token, deadline)
            except _TroubleError as error:
                trouble = error
            failures = 0 if len(held.data) > before else failures + 1
            if trouble:
                wait = patience.pause * 2 ** max(failures - 1, 0) if trouble.wait is None else trouble.wait
                if failures >= patience.attempts or wait > patience.longest or time.monotonic() + wait > deadline:
                    raise trouble.error
                time.sleep(wait)
        return held.header, bytes(memoryview(held.data)[: held.header.data_offset])


class _TroubleError(Exception):
    """A failure that may be over soon: the error to end with if it is not, and the seconds that the hub requests."""

    def __init__(self, error: HubError, wait: float | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.wait = wait


@dataclass
class _Held:
    """The bytes that have arrived, and the position that is needed next."""

    url: str
    size: int
    data: bytearray = field(default_factory=bytearray)
    wanted: int = 0
    etag: str | None = None
    header: Parsed | None = None

    def __post_init__(self) -> None:
        self.wanted = min(CHUNK, self.size)

    def accept(self, response: Response) -> None:
        """Check that the body continues where `data` ends, in the same file; else drop `data`, or raise HubError."""
        if response.status_code == 206:
            content_range = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if content_range is None or whole_number(content_range["first"]) != len(self.data):
                raise HubError(f"{self.url} returned another part than was requested", "check any proxy")
            size = content_range["size"]
        else:
            size = response.headers.get("Content-Length", "*")
        if size != "*" and whole_number(size) != self.size:
            raise HubError(f"{self.url} has {size} bytes, and not the expected {self.size}", _RELOCK)
        etag = response.headers.get("ETag")
        if self.etag and etag and etag != self.etag:
            raise HubError(f"{self.url} was changed while its header was read", _RELOCK)
        # A weak one does not promise the same bytes and may not be sent back (RFC 9110, 13.1.5).
        if etag and not etag.startswith("W/"):
            self.etag = etag
        if response.status_code != 206:
            # The whole file from its start: such a server supports no ranges.
            self.data.clear()

    def add(self, piece: bytes) -> None:
        """Add the bytes that arrived, and parse the header once there are enough. Raise HubError."""
        self.data += piece
        if len(self.data) < self.wanted:
            return
        try:
            found = parse_header(self.data)
        except GgufError as error:
            raise HubError(f"{self.url} cannot be used: {error}", "lock another file, or an earlier revision") from None
        if isinstance(found, Parsed) and found.size <= self.size:
            self.header = found
            return
        needed = found.size if isinstance(found, Parsed) else found.needed
        if needed > self.size or len(self.data) >= self.size:
            raise HubError(f"{self.url} ends too early: its header needs more than {self.size} bytes", _RELOCK)
        self.wanted = min(self.size, bytes_to_fetch(len(self.data), needed))


def _ask(client: Client, held: _Held, token: str | None, deadline: float) -> None:
    """Send one request for the bytes that are needed next. Raise HubError, or _TroubleError if it may be repeated."""
    import httpx2

    headers = {"Range": f"bytes={len(held.data)}-{held.wanted - 1}"}
    if held.etag:
        headers["If-Range"] = held.etag
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        with client.stream("GET", held.url, headers=headers) as response:
            if response.status_code not in (200, 206):
                raise _refusal(held, response, token)
            held.accept(response)
            before = len(held.data)
            for piece in response.iter_raw():
                held.add(piece)
                if held.header:
                    return
                if time.monotonic() > deadline:
                    raise HubError(f"{held.url} is sent too slowly to read its header", _AGAIN)
            # A body without a length may have been cut without a sign of it.
            if response.status_code == 200 or len(held.data) == before:
                raise _TroubleError(HubError(f"{held.url} returned fewer bytes than it has", _AGAIN))
    except (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError):
        raise
    except httpx2.TimeoutException:
        raise _TroubleError(HubError(f"{held.url} did not respond in time", _AGAIN)) from None
    except httpx2.TransportError as error:
        # Errors of the operating system about a connection are safe to repeat, and worth it.
        reason = str(error) if isinstance(error, httpx2.ConnectError) else type(error).__name__
        raise _TroubleError(HubError(f"the connection for {held.url} failed ({reason})", _AGAIN)) from None


def _refusal(held: _Held, response: Response, token: str | None) -> Exception:
    """Return the error for a status other than success: HubError, or _TroubleError if it may be over soon."""
    status, url = response.status_code, held.url
    if status == 429:
        wait = _retry_after(response)
        when = "in some minutes" if wait is None else f"in {wait:.0f} seconds"
        return _TroubleError(
            HubError(
                f"{url}: the hub has received too many requests (429)", f"try again {when}; a token raises the limit"
            ),
            wait,
        )
    if status == 408 or status >= 500:
        return _TroubleError(
            HubError(f"{url}: the hub has a failure ({status})", "try again later"), _retry_after(response)
        )
    if status in (401, 403):
        if token:
            help_ = "check that the token in use may read it, and that its account has accepted the owner's terms"
        else:
            help_ = "give a token that may read it as HF_TOKEN or by `hf auth login`"
        return HubError(f"{url} requires access ({status})", help_)
    if status in (404, 410):
        return HubError(f"{url} does not exist ({status})", _RELOCK)
    if status == 416:
        return HubError(f"{url} has fewer than the expected {held.size} bytes", _RELOCK)
    return HubError(f"{url} returned status {status}", "check HF_ENDPOINT and any proxy in between")


def _retry_after(response: Response) -> float | None:
    """Return the seconds that the hub requests, as a number or as a date."""
    text = response.headers.get("Retry-After", "")
    if (seconds := whole_number(text)) is not None:
        return float(seconds)
    try:
        then = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (then - datetime.now(UTC)).total_seconds()) if then.tzinfo else None


@contextmanager
def _sentences(url: str) -> Iterator[None]:
    """Turn failures that no repetition fixes into HubError; the client's own texts may quote the token."""
    import httpx2

    from llamaherd.bounded import ExcessError

    try:
        yield
    except ExcessError as error:
        raise HubError(f"{url}: the hub {error}", "check HF_ENDPOINT and any proxy in between; try again") from None
    except (httpx2.LocalProtocolError, UnicodeError):
        raise HubError(
            "the hub's token cannot be sent: it holds odd characters",
            "check HF_TOKEN, or log in anew by `hf auth login`; unset it for public models",
        ) from None
    except (httpx2.TooManyRedirects, httpx2.UnsupportedProtocol):
        raise HubError(f"{url} leads nowhere", "check HF_ENDPOINT and any proxy in between") from None
    except httpx2.InvalidURL:
        raise HubError("the model's URL cannot be opened", "check HF_ENDPOINT, and run `herd lock` again") from None
