"""Processes that end with whoever started them, however that one ends: where the system is Linux."""

from __future__ import annotations

import ctypes
import os
import signal

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a program to end: a person's, the system's, and that of a terminal that is gone."""

HERD = "LLAMAHERD_PARENT"
"""The environment variable in which `herd` tells the pyinfra that it starts who it is."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

_prctl = getattr(ctypes.CDLL(None), "prctl", None)
"""The C library's; nothing where it is not Linux's."""


def end_with_parent(parent: str | None = None) -> None:
    """Have this process sent SIGTERM when its parent is gone; at once, where that is no longer who is named."""
    if _prctl is None:
        return
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if parent and str(os.getppid()) != parent:
        os.kill(os.getpid(), signal.SIGTERM)
