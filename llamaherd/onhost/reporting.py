"""Report on long programs: when their progress is reported, and the line of a log that names why one failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

LINES = 200
"""Lines of a log that are searched: the reason is followed by what the engine gave up because of it."""

_MOST = 200
"""Characters of a reason."""
_MOST_LINE = 4000
"""Characters of a line that are searched: a line of a log may contain a whole prompt."""

_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_PREFIX = re.compile(r"^(?:[0-9][0-9.:]* )?[EWIF] +(?=\S)")
"""The time and the letter before each line of llama.cpp's own log."""

_CAUSE = re.compile(
    r"(?i)failed to allocate|unable to allocate|out of memory|OutOfMemory|cudaMalloc|cannot allocate|bad_alloc"
    r"|no available memory|(?:unknown|invalid|unrecognized|unsupported) (?:argument|option|value|model arch|magic)"
    r"|error: argument|unrecognized arguments|expected value for argument|error while handling argument"
    r"|address already in use|couldn't bind|could not bind|permission denied|no such file|failed to open"
    r"|cannot open shared object|undefined symbol|illegal instruction|CUDA error|no CUDA|no kernel image"
    r"|wrong number of tensors|missing tensor|tensor '[^']*' (?:not found|has)|data is not within the file bounds"
    r"|corrupted|GGML_ASSERT"
)
"""Patterns of lines that name a cause."""

_ERROR = re.compile(r"(?i)\b(?:error|fatal|exception|abort(?:ed)?|failed|cannot|could ?n.t|unable|segfault|what\(\))")
_GIVES_UP = re.compile(
    r"(?i)exiting due to|failed to load model|error loading model:? *$|failed to initialize|cleaning up before exit"
    r"|main process exited|failed with result|^failed to start|control process exited|scheduled restart"
    r"|build stopped|subcommand failed|terminate called|start request repeated|^traceback|see above|started record"
    r"|code=exited"
)
"""Patterns of lines that only follow from a cause, and of what systemd reports."""


def find_reason(lines: Sequence[str]) -> str:
    """Return the line of a log that names why the engine ended; empty if no line does."""
    read = [_PREFIX.sub("", _SEQUENCE.sub("", line[:_MOST_LINE]).strip()) for line in lines]
    errors = [line for line in read if _ERROR.search(line) and not _GIVES_UP.search(line)]
    causes = [line for line in read if _CAUSE.search(line)]
    given_up = [line for line in read if _ERROR.search(line)]
    # Of causes the last: an engine tries again with less before it gives up.
    found = next((each[-1] for each in (causes, errors, given_up) if each), "")
    return " ".join(found.split())[:_MOST]


_SOON, _LATER = 20, 300


def report_every(seconds: float) -> int:
    """Return the seconds between two reports of a step that has run for so many seconds."""
    return 2 if seconds < _SOON else 10 if seconds < _LATER else 30


@dataclass
class Pace:
    """Decides when a step that began at `began` reports its progress; both times are seconds of one clock."""

    began: float
    reported: float = 0.0

    def is_due(self, now: float) -> bool:
        """Return whether to report now. The first report is due two seconds after the step began."""
        if now - max(self.began, self.reported) < report_every(now - self.began):
            return False
        self.reported = now
        return True
