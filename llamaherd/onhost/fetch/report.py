"""Report a run: errors with a help, sizes and durations, the progress line and the log."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3), ("B", 1))


def show_size(size: float) -> str:
    """Return bytes in powers of ten: `105 GB`, `11.3 MB`."""
    unit, factor = _unit(size)
    return f"{_figure(size / factor)} {unit}" if factor > 1 else f"{size:.0f} B"


def show_part(part: int, whole: int) -> str:
    """Return a part and the whole, in the unit of the whole: `41.2 of 105 GB`."""
    unit, factor = _unit(whole)
    return f"{_figure(part / factor)} of {_figure(whole / factor)} {unit}"


def show_duration(seconds: float) -> str:
    """Return seconds in two units at most: `8 s`, `4 min 05 s`, `1 h 34 min`, `2 d 3 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def _unit(size: float) -> tuple[str, int]:
    return next((each for each in _UNITS if size >= each[1]), _UNITS[-1])


def _figure(value: float) -> str:
    return f"{value:.1f}" if 0 < value < 99.95 else f"{value:.0f}"


@dataclass(eq=False)
class FetchError(Exception):
    """A failure in one sentence, and a fix. Neither may hold a secret or a URL's query."""

    message: str
    help: str

    def __str__(self) -> str:
        return f"{self.message}\n  help: {self.help}"


_LOG_EVERY = 10.0  # seconds; the log keeps every line, and is read afterwards


def atomic_write(path: Path, text: str) -> None:
    """Replace a file by one with this text (0644), in one step. Raise OSError."""
    new = path.with_name(f"{path.name}.new")
    # The folder may belong to a user that is trusted less than the writer: no link of theirs is followed.
    new.unlink(missing_ok=True)
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    new.replace(path)


class Progress:
    """The reports of a run in its folder: `progress`, `failed`, and the same on stdout."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._logged = -_LOG_EVERY
        self._lock = threading.Lock()

    def show(self, line: str) -> None:
        """Show this line as the progress, every second or so. The log gets one every ten seconds."""
        with self._lock:
            self._replace(line)
            if time.monotonic() - self._logged >= _LOG_EVERY:
                self._log(line)

    def note(self, line: str) -> None:
        """Report something that happens once: it is shown, and always logged."""
        with self._lock:
            self._replace(line)
            self._log(line)

    def warn(self, line: str) -> None:
        """Report a problem that matters even if the run succeeds: `herd up` prints it."""
        with self._lock:
            with suppress(OSError), (self._run / "warnings").open("a", encoding="utf-8") as stream:
                stream.write(f"{line}\n")
            self._replace(line)
            self._log(line)

    def fail(self, errors: Sequence[FetchError]) -> None:
        """Report why the run failed, each error with its fix."""
        text = "\n\n".join(str(error) for error in errors)
        with self._lock:
            atomic_write(self._run / "failed", f"{text}\n")
            self._log(text)

    def _replace(self, line: str) -> None:
        # If the folder is full or unmounted, files can still be fetched.
        with suppress(OSError):
            atomic_write(self._run / "progress", f"{line}\n")

    def _log(self, text: str) -> None:
        self._logged = time.monotonic()
        print(text, flush=True)
