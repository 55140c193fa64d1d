"""A program on a terminal: what is typed, and what it prints."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import termios
import time
from collections.abc import Mapping
from pathlib import Path


def wait_for_idle(process: int) -> None:
    """Wait until a program sleeps."""
    until, seen = time.monotonic() + 30, 0
    while seen < 3:
        assert time.monotonic() < until
        state = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0]
        seen = seen + 1 if state == "S" else 0
        time.sleep(0.05)


class Terminal:
    """A program that runs on a terminal of its own."""

    def __init__(self, folder: Path, environment: Mapping[str, str], *words: str) -> None:
        here, there = pty.openpty()
        self._here, self._output = here, ""
        self._process = subprocess.Popen(
            words,
            cwd=folder,
            env=environment,
            stdin=there,
            stdout=there,
            stderr=there,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(there)

    def type(self, text: str) -> None:
        """Type a text: `\\x03` is Ctrl-C."""
        os.write(self._here, text.encode())

    def wait_for(self, text: str) -> str:
        """Return what was printed since the last call up to the end of a text, once that is there."""
        until = time.monotonic() + 30
        while text not in self._output:
            assert time.monotonic() < until, self._output
            if select.select([self._here], [], [], 0.2)[0]:
                self._output += os.read(self._here, 4096).decode(errors="replace")
        found, self._output = self._output.split(text, 1)
        return found + text

    def wait_for_idle(self) -> None:
        """Wait until the program sleeps, as it does at a prompt: Python loses a signal just before that."""
        wait_for_idle(self._process.pid)

    def end(self, typed: str = "\x04") -> int:
        """Type a last text, Ctrl-D, and return the exit code."""
        self.type(typed)
        try:
            return self._process.wait(30)
        finally:
            os.close(self._here)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
