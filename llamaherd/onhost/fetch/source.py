"""Sources of files: when to request from one again, and why one does not deliver a file."""

from __future__ import annotations

import random
import re
import threading
import time
from urllib.parse import unquote, urlsplit

from llamaherd.onhost.fetch.job import Limits, Source
from llamaherd.onhost.fetch.report import FetchError, show_duration, show_size

# How often in a row a source that has served may fail, and for how many seconds, until the next one is tried.
_STUMBLES, _SHORT = 3, 5.0


class RefusedError(FetchError):
    """A source will not send a file, however often it is requested. The message is a clause that begins
    with its name.
    """


class LaterError(Exception):
    """A source did not respond this time. `after` is the pause in seconds that it requests."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = after


class Supplier:
    """A source, for all files: it rests for a while after a failure, longer each time."""

    def __init__(self, name: str, limits: Limits) -> None:
        self.name = name
        self.reason = ""
        self._limits = limits
        self._lock = threading.Lock()
        self._failures = 0
        self._failing_since = 0.0
        self._rests_until = 0.0
        self._probed = False
        self._has_served = False
        self._waited = 0.0  # seconds for the bytes that arrived since then
        self._got = 0
        self._is_too_slow = False

    def rest(self) -> float:
        """Return the seconds for which it must not be queried."""
        return max(0.0, self._rests_until - time.monotonic())

    @property
    def slowest(self) -> int:
        """The bytes a second that each connection to it should deliver at least."""
        return self._limits.slowest

    @property
    def fails(self) -> bool:
        """Return whether its last request failed."""
        return self._failures > 0

    def is_ready(self) -> bool:
        """Return whether it may be queried now; while it fails, single requests test it."""
        with self._lock:
            return time.monotonic() >= self._rests_until and not (self._failures and self._probed)

    def is_worth_waiting_for(self) -> bool:
        """Return whether it has failed only briefly, so that no other source needs to be tried."""
        with self._lock:
            fails_since = time.monotonic() - self._failing_since
            return self._has_served and 0 < self._failures <= _STUMBLES and self.rest() < _SHORT > fails_since

    def asked(self) -> None:
        """Record that a request begins."""
        with self._lock:
            self._probed = True

    def left(self) -> None:
        """Record that a request is over."""
        with self._lock:
            self._probed = False

    def served(self) -> None:
        """Record that it sent bytes."""
        if self._failures or not self._has_served:
            with self._lock:
                self._failures, self._has_served = 0, True

    def is_too_slow(self, count: int, waited: float) -> bool:
        """Add bytes and the seconds of waiting for them; return whether the source is too slow by now."""
        with self._lock:
            self._got += count
            self._waited += waited
            if self._waited > self._limits.patience:
                self._is_too_slow = self._got < self._waited * self._limits.slowest
                self._got, self._waited = 0, 0.0
            return self._is_too_slow

    def failed(self, asked_at: float, later: LaterError) -> bool:
        """Record a failed request of this (monotonic) time; return whether to give up."""
        with self._lock:
            now = time.monotonic()
            if not self._failures:
                self._failing_since = now
            # Many requests that fail together are one failure.
            if not self._failures or asked_at >= self._rests_until:
                pause = min(self._limits.longest_rest, self._limits.first_rest * 2**self._failures)
                self._rests_until = now + pause * random.uniform(0.75, 1.0)
                self._failures += 1
            if later.after is not None:
                self._rests_until = max(self._rests_until, now + later.after)
            self.reason = later.reason
            return now - self._failing_since > self._limits.patience


class Offer:
    """One source of one file, and the state of its requests."""

    def __init__(self, source: Source, supplier: Supplier, token: str | None, patience: float) -> None:
        self.source = source
        self.supplier = supplier
        self.token = token
        self.target = source.url  # where redirects led
        self.etag: str | None = None
        self.ignores_ranges = False
        self.changes = 0
        self.refused: RefusedError | None = None
        self._patience = patience

    def forget_target(self) -> None:
        """Query the source itself again: the target of its redirect expires, and another one may have another ETag."""
        self.target = self.source.url
        self.etag = None

    def too_slow(self) -> RefusedError:
        """Return the error for a source that would take years."""
        return RefusedError(
            f"{self.source.name} sent less than {show_size(self.supplier.slowest)} a second"
            f" for {show_duration(self._patience)}",
            "check the line, then run `herd up` again: it continues from here",
        )

    def gave_up(self) -> RefusedError:
        """Return the error for a source that has not responded for too long."""
        return RefusedError(
            f"{self.source.name} sent nothing for {show_duration(self._patience)}: {self.supplier.reason}",
            "check that it runs and is reachable, then run `herd up` again: it continues from here",
        )


_AGAIN = "run `herd up` again; if this stays, leave this source out"
_NOT_A_FILE = "open the source's address in a browser: a login page or a proxy may be in between"
_HUB_PATH = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/[^/]+/.+")


def refused_by_status(offer: Offer, status: int, code: str) -> RefusedError:
    """Return the error for a permanent status, with the `code` of a hub."""
    name, url = offer.source.name, urlsplit(offer.source.url)
    hub = _HUB_PATH.fullmatch(url.path)
    if status in (401, 403) and hub is None:
        kind = "does not accept the token" if offer.token else "requires a token, and there is none"
        return RefusedError(f"{name} {kind} ({status})", _AGAIN)
    if status in (404, 410) and hub is None:
        return RefusedError(f"{name} does not have it ({status})", "let another source have it too")
    if hub is None or status not in (400, 401, 403, 404, 410):
        return RefusedError(f"{name} returned status {status}", _AGAIN)
    repo = unquote(hub["repo"])
    if status == 400:
        # Single files of some 400 GB: https://github.com/huggingface/huggingface_hub/issues/4330
        return RefusedError(
            f"{name} does not send this file of {repo} over HTTP ({status}), as it may be too large for that",
            f"`hf download {repo}` on this host, then run `herd up` again: it adopts the file from that cache",
        )
    page = f"{url.scheme}://{url.netloc}/{repo}"
    if code == "GatedRepo":
        return RefusedError(
            f"{name} sends {repo} only to accounts that its owner has granted access ({status})",
            f"open {page} in a browser and request access, then give a token of that account as HF_TOKEN",
        )
    if code == "RevisionNotFound":
        return RefusedError(
            f"{name} no longer has this revision of {repo} ({status})",
            "lock an existing one: `herd lock --upgrade` with the model's name",
        )
    if code == "EntryNotFound":
        return RefusedError(
            f"{name} has no such file in this revision of {repo} ({status})",
            "lock existing files: `herd lock --upgrade` with the model's name",
        )
    if status in (404, 410):
        return RefusedError(f"{name} does not have {repo} ({status})", f"check {page}: it may be deleted, or renamed")
    if offer.token:
        return RefusedError(
            f"{name} does not accept the token for {repo} ({status})",
            "check HF_TOKEN: it may be mistyped or expired, or its account has no access",
        )
    return RefusedError(f"{name} requires a token for {repo} ({status})", "give one as HF_TOKEN")


def wrong_size(offer: Offer, size: int, expected: int) -> RefusedError:
    """Return the error for a file of another size."""
    return RefusedError(f"{offer.source.name} has {size} bytes where {expected} are expected", _NOT_A_FILE)


def unexpected_response(offer: Offer, what: str) -> RefusedError:
    """Return the error for an invalid response."""
    return RefusedError(f"{offer.source.name} {what}", _NOT_A_FILE)


def wrong_bytes(offer: Offer, sha256: str, expected: str) -> RefusedError:
    """Return the error for a complete file with another hash."""
    name = offer.source.name
    if _HUB_PATH.fullmatch(urlsplit(offer.source.url).path):
        fix = "lock the model anew by `herd lock --upgrade` and its name, if its files may have changed"
    else:
        fix = f"`herd verify --deep {name}` reports what is damaged there, and `herd up {name}` fetches it again"
    return RefusedError(
        f"it arrived from {name} with sha256 {sha256}, but {expected} was expected; nothing of it was kept", fix
    )
