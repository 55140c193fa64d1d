"""When the progress of a long step is reported: often at first, and seldom after minutes."""

from __future__ import annotations

from dataclasses import dataclass

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
