"""How a fetch goes, in one line."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence

from llamaherd.fetcher.quantities import show_duration, show_part, show_size
from llamaherd.fetcher.source import Supplier
from llamaherd.fetcher.transfer import Transfer

_RATE_OVER = 10.0  # seconds


class Ticker:
    """Follows the bytes of all transfers; asked every second or so."""

    def __init__(self, transfers: Sequence[Transfer], suppliers: Mapping[str, Supplier]) -> None:
        self._transfers = transfers
        self._suppliers = suppliers
        self._size = sum(transfer.file.size for transfer in transfers)
        self._seen: deque[tuple[float, int]] = deque()

    def line(self) -> str:
        """What is going on now."""
        have = sum(transfer.have for transfer in self._transfers)
        rate = self._rate(have)
        amount = show_part(have, self._size)
        giving = next(((each, offer) for each in self._transfers if (offer := each.giving)), None)
        if waits := self._waits():
            return f"{waits} ({amount})"
        if giving:
            transfer, offer = giving
            left = f", {show_duration((self._size - have) / rate)} left" if rate >= 1 else ""
            return f"fetching {transfer.file.name} from {offer.source.name}: {amount}, {show_size(rate)}/s{left}"
        hashing = next((each for each in self._transfers if each.is_being_hashed), None)
        if hashing:
            return f"checking {hashing.file.name}: {show_part(hashing.hashed, hashing.file.size)} read"
        return f"fetching: {amount}"

    def _rate(self, have: int) -> float:
        """Bytes per second over the last seconds; a file that was begun anew makes it 0."""
        now = time.monotonic()
        self._seen.append((now, have))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _RATE_OVER:
            self._seen.popleft()
        then, had = self._seen[0]
        return max(0.0, (have - had) / (now - then)) if now > then else 0.0

    def _waits(self) -> str:
        """Why nothing comes, if nothing has come since the last look but one."""
        recent = [have for _, have in list(self._seen)[-3:]]
        failing = [supplier for supplier in self._suppliers.values() if supplier.fails]
        if recent[-1] != recent[0]:
            return ""
        return "; ".join(f"no answer from {each.name}: {each.reason}; {_again(each)}" for each in failing)


def _again(supplier: Supplier) -> str:
    rest = supplier.rest()
    return f"again in {show_duration(rest)}" if rest >= 0.5 else "asking again"
