"""The longest time in seconds that a run waits for steps, builds, transfers and hashes on a host."""

from __future__ import annotations

from collections.abc import Iterable

HOUR = 3600

STEP_SECONDS = 24 * HOUR
"""For a step. Its longest parts end by themselves: the pull of an image after 12 h, the build of an engine as well."""

BUILD_SECONDS = 12 * HOUR
"""For the build of an engine: with CUDA it takes a slow laptop three hours."""

SOURCE_SECONDS = HOUR
"""For the source of an engine: 400 MB on a line of 1 Mbit/s."""

_SLOWEST_LINE = 500_000 // 8
"""Bytes a second, on average over a day and more. A slower fetch resumes with the next run."""

_SLOWEST_DISK = 1_000_000
"""Bytes a second that a host hashes with idle priority while its servers run."""

_UNKNOWN_SIZE = 500_000_000_000
"""Bytes that a file of unknown size is assumed to have: no published file is larger."""


def transfer_seconds(sizes: Iterable[int | None]) -> int:
    """Return the longest that files of these sizes may take to a host, in seconds. Other runs may come first."""
    return 24 * HOUR + _bytes(sizes) // _SLOWEST_LINE


def hash_seconds(sizes: Iterable[int | None]) -> int:
    """Return the longest that files of these sizes may take to be hashed on a host, in seconds."""
    return HOUR + _bytes(sizes) // _SLOWEST_DISK


def _bytes(sizes: Iterable[int | None]) -> int:
    return sum(_UNKNOWN_SIZE if size is None else size for size in sizes)


def show_limit(seconds: float) -> str:
    """Return a limit as text: `33 s`, `12 h`."""
    return f"{seconds / HOUR:.0f} h" if seconds >= 2 * HOUR else f"{seconds:.0f} s"
