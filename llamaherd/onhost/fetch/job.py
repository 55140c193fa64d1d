"""The job of the fetcher, read into checked values, and its report: errors, the progress line and the log."""

from __future__ import annotations

import datetime
import json
import os
import re
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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


_SHA256 = re.compile(r"[0-9a-f]{64}")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # names that become names of files


@dataclass(frozen=True)
class Source:
    """A source of a file. `secret` names a file in RUN/secrets, which is optional."""

    name: str
    url: str
    secret: str


@dataclass(frozen=True)
class File:
    """A file by its content; `name` is for messages. Without sources it can only be adopted."""

    name: str
    sha256: str
    size: int
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Rule:
    """A limit from `begin` to `end`, by the host's clock; it may span midnight. Equal times mean always."""

    begin: datetime.time
    end: datetime.time
    bytes_per_second: int

    def covers(self, now: datetime.time) -> bool:
        """Return whether the rule holds at this time of day."""
        if self.begin < self.end:
            return self.begin <= now < self.end
        return self.begin == self.end or now >= self.begin or now < self.end


@dataclass(frozen=True)
class Job:
    """Files for `incoming`, and their sources."""

    id: str
    incoming: Path
    store: Path
    files: tuple[File, ...]
    folders: tuple[Path, ...] = ()
    connections: int = 8
    bandwidth: tuple[Rule, ...] = ()


def load_job(path: Path) -> Job:
    """Return the job in a file. Raise FetchError."""
    try:
        return _job(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise FetchError(f"the job {path} cannot be read: {error.strerror}", "run `herd up` again") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # Only `herd` writes jobs: this is a fault of its own, and no user can fix the file.
        raise FetchError(
            f"the job {path} cannot be read by this version: {type(error).__name__}: {error}",
            "run `herd up` again with one version of llamaherd; if this stays, report it",
        ) from None


def _job(data: dict[str, Any]) -> Job:
    return Job(
        id=_matching(_PLAIN, data["id"]),
        incoming=_absolute(data["incoming"]),
        store=_absolute(data["store"]),
        files=tuple(_file(each) for each in data["files"]),
        folders=tuple(_absolute(each) for each in data["folders"]),
        connections=_positive(data["connections"]),
        bandwidth=tuple(_rule(each) for each in data["bandwidth"]),
    )


def _rule(data: dict[str, Any]) -> Rule:
    begin, end = datetime.time.fromisoformat(data["begin"]), datetime.time.fromisoformat(data["end"])
    return Rule(begin, end, _positive(data["bytes_per_second"]))


def _file(data: dict[str, Any]) -> File:
    sources = tuple(
        Source(str(each["name"]), _url(each["url"]), _matching(_PLAIN, each["secret"])) for each in data["sources"]
    )
    size = int(data["size"])
    if size < 0:
        raise ValueError("a size is negative")
    return File(str(data["name"]), _matching(_SHA256, data["sha256"]), size, sources)


def _matching(pattern: re.Pattern[str], value: str) -> str:
    if not pattern.fullmatch(value):
        raise ValueError(f"`{value}` does not match {pattern.pattern}")
    return value


def _absolute(value: str) -> Path:
    path = Path(value)
    if not path.is_absolute():
        raise ValueError(f"`{value}` is not an absolute path")
    return path


def _positive(value: int) -> int:
    if int(value) < 1:
        raise ValueError(f"{value} is less than 1")
    return int(value)


def _url(value: str) -> str:
    parts = urlsplit(value)
    # The URL itself is not repeated: its query may be a signature.
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError(f"a URL at {parts.hostname} is not plain http or https")
    return value


@dataclass(frozen=True)
class Limits:
    """Limits in seconds, and the bytes of a block. The defaults are for homes; tests use shorter ones."""

    # Large enough that a long line does not wait for requests; small enough that the hash, which follows the first gap,
    # is not far behind when the last block arrives.
    block: int = 16 << 20
    connect: float = 10.0
    stall: float = 15.0  # without a byte of a response: then the rest is requested again
    first_rest: float = 1.0  # after a source failed; doubled each time it fails again
    longest_rest: float = 60.0
    patience: float = 900.0  # with a source that fails and gives no byte
    room: float = 60.0  # to wait for room on a full disk
    slowest: int = 512  # bytes a second on each connection, on average over `patience`
