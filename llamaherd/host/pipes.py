"""Talking with a process by its pipes: it is told as fast as it listens, and heard as it speaks."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

PIECE = 1 << 16
"""Bytes that are read or written at once: a pipe holds as many."""


@dataclass(frozen=True)
class Patience:
    """How long is waited: seconds without a word either way, and the moment by which all must be over, if any."""

    silence: float
    until: float | None = None

    @classmethod
    def within(cls, seconds: float) -> Patience:
        """Patience for so many seconds in all."""
        return cls(seconds, time.monotonic() + seconds)

    def left(self) -> float:
        """Seconds to wait for the next word. Raises TimeoutError where the time is over."""
        if self.until is None:
            return self.silence
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return min(left, self.silence)


def talk(
    process: subprocess.Popen[bytes], told: Iterator[bytes], patience: Patience, *, more: bool = False
) -> Iterator[tuple[str, bytes]]:
    """Tell a process these pieces, and give what it says on `stdout` and `stderr` until it has closed both.

    Its stdin is closed after the last piece, unless there is `more` to tell later. Raises TimeoutError.
    """
    assert process.stdin
    assert process.stdout
    assert process.stderr
    os.set_blocking(process.stdin.fileno(), False)
    feed = _Feed(process.stdin.fileno(), told)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdin, selectors.EVENT_WRITE, "stdin")
        selector.register(process.stdout, selectors.EVENT_READ, "stdout")
        selector.register(process.stderr, selectors.EVENT_READ, "stderr")
        saying = 2
        while saying:
            ready = selector.select(patience.left())
            if not ready:
                raise TimeoutError
            # What comes on both at once: a script says what it does, then why it fails.
            for key, _ in sorted(ready, key=lambda each: str(each[0].data), reverse=True):
                if key.data == "stdin":
                    if not feed.goes_on():
                        selector.unregister(process.stdin)
                        if not more:
                            process.stdin.close()
                elif piece := os.read(key.fd, PIECE):
                    yield key.data, piece
                else:
                    selector.unregister(key.fileobj)
                    saying -= 1


class _Feed:
    """Pieces on their way into a pipe that takes no more than it has room for."""

    def __init__(self, pipe: int, told: Iterator[bytes]) -> None:
        self._pipe, self._told, self._piece = pipe, told, b""

    def goes_on(self) -> bool:
        """Write what there is room for; False where all is told, or nobody listens any more."""
        self._piece = self._piece or next(self._told, b"")
        if not self._piece:
            return False
        try:
            self._piece = self._piece[os.write(self._pipe, self._piece) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        return True
