"""No more bytes than the rules of the hour allow."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import datetime

from llamaherd.fetcher.job import Rule

_SLICE = 0.05  # seconds of the allowed rate that one read may take
_LEAST = 512  # bytes of one read, where the rate is very low
_CREDIT = 0.1  # seconds for which a rate that was not used may be made up


class Throttle:
    """Spreads the allowed rate over all who read. The first rule that covers the local time counts."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._lock = threading.Lock()
        self._next = 0.0  # when the next byte is due

    def rate(self) -> int | None:
        """Bytes per second that are allowed now; None without a limit."""
        if not self._rules:
            return None
        now = datetime.now().time()
        return next((rule.bytes_per_second for rule in self._rules if rule.covers(now)), None)

    def admit(self, wanted: int) -> int:
        """Wait until bytes are due; returns how many may be read, up to `wanted`."""
        rate = self.rate()
        if rate is None:
            return wanted
        granted = min(wanted, max(_LEAST, round(rate * _SLICE)))
        with self._lock:
            now = time.monotonic()
            due = max(self._next, now - _CREDIT)
            self._next = due + granted / rate
        time.sleep(max(0.0, due - now))
        return granted

    def give_back(self, unread: int) -> None:
        """Let others have what was granted and not read."""
        rate = self.rate()
        if rate is not None and unread:
            with self._lock:
                self._next -= unread / rate
