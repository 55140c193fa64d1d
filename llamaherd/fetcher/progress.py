"""What people see of a run: a line that is replaced, a log, and at last what failed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from llamaherd.fetcher.said import SaidError

_LOG_EVERY = 10.0  # seconds; the log keeps every line, and is read afterwards


def atomic_write(path: Path, text: str) -> None:
    """Replace a file by one with this text (0644), which is there whole or not at all. Raises OSError."""
    new = path.with_name(f"{path.name}.new")
    # The folder may belong to a user that is trusted less than the writer: no link of theirs is followed.
    new.unlink(missing_ok=True)
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    new.replace(path)


class Progress:
    """Tells of a run in its folder: `progress`, `failed`, and the same on stdout."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._logged = -_LOG_EVERY
        self._lock = threading.Lock()

    def show(self, line: str) -> None:
        """Make this the line that people see; for every second or so. The log gets one every ten seconds."""
        with self._lock:
            self._replace(line)
            if time.monotonic() - self._logged >= _LOG_EVERY:
                self._log(line)

    def note(self, line: str) -> None:
        """Say something that happens once: it is shown, and always logged."""
        with self._lock:
            self._replace(line)
            self._log(line)

    def warn(self, line: str) -> None:
        """Say something that a person should know even if all goes well: whoever awaits the run prints it."""
        with self._lock:
            with suppress(OSError), (self._run / "warnings").open("a", encoding="utf-8") as stream:
                stream.write(f"{line}\n")
            self._replace(line)
            self._log(line)

    def fail(self, errors: Sequence[SaidError]) -> None:
        """Say why the run failed, each error with its way out."""
        text = "\n\n".join(str(error) for error in errors)
        with self._lock:
            atomic_write(self._run / "failed", f"{text}\n")
            self._log(text)

    def _replace(self, line: str) -> None:
        # Where the folder is full or gone, files can still be fetched.
        with suppress(OSError):
            atomic_write(self._run / "progress", f"{line}\n")

    def _log(self, text: str) -> None:
        self._logged = time.monotonic()
        print(text, flush=True)
