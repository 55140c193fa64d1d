"""Talking with a process by its pipes: it is told as fast as it listens, and heard as it speaks."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

PIECE = 1 << 16
"""Bytes that are read or written at once: a pipe holds as many."""


@dataclass
class Patience:
    """The limits of a wait: seconds without a byte either way, and seconds in all since `began`.

    There is none without a total: a peer that sends a byte now and then is never silent. `what` is the subject of the
    sentence that reports the end of the wait.
    """

    silence: float
    total: float
    what: str = ""
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def within(cls, seconds: float, what: str = "") -> Patience:
        """Return the patience for so many seconds in all, silent or not."""
        return cls(seconds, seconds, what)

    def renew(self, total: float, what: str = "") -> None:
        """Begin to count anew, for the next response in a conversation."""
        self.total, self.what, self.began = total, what or self.what, time.monotonic()

    @property
    def rest(self) -> float:
        """Seconds of the total that are left; negative after its end."""
        return self.began + self.total - time.monotonic()

    def left(self) -> float:
        """Return the seconds to wait for the next byte. Raises TimeoutError after the end of the total."""
        if self.rest <= 0:
            raise TimeoutError
        return min(self.rest, self.silence)


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
