"""How long to wait for what, and how much to ask for at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Seconds, and bytes of a block. What is here is right for homes; tests are in a hurry."""

    # Large enough that a long line does not wait for requests; small enough that the hash, which follows the first gap,
    # is not far behind when the last block is there.
    block: int = 16 << 20
    connect: float = 10.0
    stall: float = 15.0  # without a byte of an answer: then it is asked for the rest
    first_rest: float = 1.0  # after a source failed; doubled each time it fails again
    longest_rest: float = 60.0
    patience: float = 900.0  # with a source that fails and gives no byte
    room: float = 60.0  # for somebody to make room on a full disk
    slowest: int = 512  # bytes a second on each connection that is waited for, on average over `patience`
