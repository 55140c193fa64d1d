"""How sources behave: when to ask them again, and what each has said of a file."""

from __future__ import annotations

import random
import threading
import time

from llamaherd.fetcher.job import Source
from llamaherd.fetcher.limits import Limits
from llamaherd.fetcher.quantities import show_duration, show_size
from llamaherd.fetcher.said import SaidError

# How often in a row a source that has served may fail, and for how many seconds, until the next one is asked.
_STUMBLES, _SHORT = 3, 5.0


class RefusedError(SaidError):
    """A source will not give a file, however often it is asked. The message is a clause that begins with its name."""


class LaterError(Exception):
    """A source did not answer this time. `after` is the seconds that it wants to be left alone."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = after


class Supplier:
    """A source, whatever the file: it rests for a while after a failure, longer each time."""

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
        self._waited = 0.0  # seconds for the bytes that came since then
        self._got = 0
        self._is_too_slow = False

    def rest(self) -> float:
        """Seconds for which it is not to be asked."""
        return max(0.0, self._rests_until - time.monotonic())

    @property
    def slowest(self) -> int:
        """Bytes a second that each connection to it should bring at least."""
        return self._limits.slowest

    @property
    def fails(self) -> bool:
        """Whether its last answer was none."""
        return self._failures > 0

    def is_ready(self) -> bool:
        """Whether it may be asked now; while it fails, one request at a time finds out whether it still does."""
        with self._lock:
            return time.monotonic() >= self._rests_until and not (self._failures and self._probed)

    def is_worth_waiting_for(self) -> bool:
        """Whether it has stumbled only, so that no other source need be asked."""
        with self._lock:
            fails_since = time.monotonic() - self._failing_since
            return self._has_served and 0 < self._failures <= _STUMBLES and self.rest() < _SHORT > fails_since

    def asked(self) -> None:
        """A request begins."""
        with self._lock:
            self._probed = True

    def left(self) -> None:
        """A request is over, whatever came of it."""
        with self._lock:
            self._probed = False

    def served(self) -> None:
        """It sent bytes."""
        if self._failures or not self._has_served:
            with self._lock:
                self._failures, self._has_served = 0, True

    def is_too_slow(self, count: int, waited: float) -> bool:
        """So many bytes more took so many seconds of waiting; whether it is as good as dead by now."""
        with self._lock:
            self._got += count
            self._waited += waited
            if self._waited > self._limits.patience:
                self._is_too_slow = self._got < self._waited * self._limits.slowest
                self._got, self._waited = 0, 0.0
            return self._is_too_slow

    def failed(self, asked_at: float, later: LaterError) -> bool:
        """It did not answer a request of this (monotonic) time; returns whether there is no hope left."""
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
    """One source of one file, and what it has said so far."""

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
        """Ask the source itself again: what it redirects to has an end, and another one may call itself otherwise."""
        self.target = self.source.url
        self.etag = None

    def too_slow(self) -> RefusedError:
        """What to say when what comes from it would take years."""
        return RefusedError(
            f"{self.source.name} gave less than {show_size(self.supplier.slowest)} a second"
            f" for {show_duration(self._patience)}",
            "see what the line does, then run `herd up` again: it goes on from here",
        )

    def gave_up(self) -> RefusedError:
        """What to say when it has not answered for too long."""
        return RefusedError(
            f"{self.source.name} gave nothing for {show_duration(self._patience)}: {self.supplier.reason}",
            "see whether it runs and the network leads there, then run `herd up` again: it goes on from here",
        )
