"""`Row`: one thing that preflight looked at, for its table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from llamaherd.text.terminal import MOST_HELP, one_line

Verdict = Literal["ok", "note", "refused"]


@dataclass(frozen=True)
class Row:
    """One thing that was looked at. `why` is a sentence where it is not as it must be, and `help` a way out."""

    what: str
    found: str
    wanted: str = ""
    verdict: Verdict = "ok"
    why: str = ""
    help: str = ""

    def __post_init__(self) -> None:
        for field in ("found", "why", "help"):
            object.__setattr__(self, field, one_line(getattr(self, field), MOST_HELP))  # it quotes what a host printed


def listed(each: Iterable[object]) -> str:
    """Things in one cell."""
    return ", ".join(map(str, each))
