"""The inputs and results of verbs that print the log of a server, stop it, start it or pause it."""

from __future__ import annotations

from dataclasses import dataclass

MOST_LINES = 10_000
"""Lines of a log that one command prints."""
LONGEST_PAUSE = 30 * 86_400
"""Seconds."""


@dataclass(frozen=True)
class LogsInput:
    """A part of a server's log: its last `lines`, of the last `since` seconds, with a text in them.

    `follow`: further lines are sent until the controller has ended.
    """

    name: str
    service: str
    unit: bool
    """Whether it is a unit of systemd, and not a container."""
    lines: int
    since: int | None = None
    grep: str = ""
    """Upper and lower case are the same. Empty for all lines."""
    follow: bool = False
