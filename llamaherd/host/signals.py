"""Signals that end a program, and child processes that end with their parent."""

from __future__ import annotations

import ctypes
import signal

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a program to end: a person's, the system's, and that of a terminal that is gone."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

_prctl = getattr(ctypes.CDLL(None), "prctl", None)
"""The C library's; nothing where it is not Linux's."""


def end_with_parent() -> None:
    """Have this process sent SIGTERM when its parent is gone."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
