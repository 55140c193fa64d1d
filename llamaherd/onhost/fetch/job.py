"""Read `job.json` into checked values: files, their sources, bandwidth rules; and the limits of a fetch."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from llamaherd.onhost.fetch.report import FetchError

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

    begin: time
    end: time
    bytes_per_second: int

    def covers(self, now: time) -> bool:
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
    begin, end = time.fromisoformat(data["begin"]), time.fromisoformat(data["end"])
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
