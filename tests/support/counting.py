"""Bytes that a server sent, counted so that no client knows of more than was counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count


class Sent:
    """How many bytes were sent. A client may have a piece before its server has counted it: who asks waits for that."""

    LONGEST = 60
    """Seconds that a piece is waited for, on a machine that is busy, too: one that nobody takes stays on its way."""

    def __init__(self) -> None:
        self._bytes = 0
        self._changed = threading.Condition()
        self._numbers = count()
        self._under_way: set[int] = set()

    @contextmanager
    def piece(self) -> Iterator[Callable[[int], None]]:
        """While a piece is sent; called with how long it was."""
        with self._changed:
            self._under_way.add(number := next(self._numbers))
        try:
            yield self._add
        finally:
            with self._changed:
                self._under_way.discard(number)
                self._changed.notify_all()

    def _add(self, sent: int) -> None:
        with self._changed:
            self._bytes += sent

    @property
    def bytes(self) -> int:
        """What was sent by now, with every piece that was under way."""
        with self._changed:
            before = set(self._under_way)
            self._changed.wait_for(lambda: not before & self._under_way, self.LONGEST)
            return self._bytes

    def reset(self) -> None:
        """Count from nothing."""
        with self._changed:
            self._bytes = 0
