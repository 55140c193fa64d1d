"""Signals that end a program, and child processes that end with their parent."""

from __future__ import annotations

import ctypes
import signal

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a program: of a user, of the system, and of a closed terminal."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

_prctl = getattr(ctypes.CDLL(None), "prctl", None)
"""The function of the C library, which only Linux has."""


def end_with_parent() -> None:
    """End this process with its parent: Linux sends it SIGTERM then."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
