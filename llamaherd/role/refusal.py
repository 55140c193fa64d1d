"""`Refusal`: why nothing may be done to a host; and what a role says that it needs of a disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from llamaherd.text.terminal import MOST_HELP, one_line


@dataclass(frozen=True)
class Refusal:
    """Why nothing may be done to this host: a sentence, and a way out. `about` is the row of preflight's table."""

    message: str
    help: str
    about: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", one_line(self.message))  # it quotes what a host printed
        object.__setattr__(self, "help", one_line(self.help, MOST_HELP))

    def __str__(self) -> str:
        return f"{self.message}\n  help: {self.help}"


def disk_row(folder: str) -> str:
    """What preflight's table calls a disk."""
    return f"disk {folder}"


class Need(NamedTuple):
    """A folder, or its nearest parent that is there: bytes free in it, its device, and bytes that are yet to come."""

    folder: str
    free: int
    device: str
    need: int
