"""The state of WSL around a host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class TextState(NamedTuple):
    """A file of the user's: when it was written (seconds since the epoch), and its bytes."""

    written: float
    content: bytes


class ScriptState(NamedTuple):
    """A script in Windows: its sha256, and that of the one which was run last."""

    sha256: str
    applied: str


class WslMachineState(NamedTuple):
    """The virtual machine: when it started (seconds since the epoch), its memory in bytes, its processors."""

    started: float
    memory: int
    processors: int


@dataclass
class WslState:
    """The WSL around a host; what was not there is not in it."""

    release: str
    """Of the kernel, which WSL 1 only plays."""
    profiles: dict[str, bool] = field(default_factory=dict)
    """The folders of Windows' users that WSL can open; of several, whether the disk of a distribution lies in each."""
    files: dict[str, TextState] = field(default_factory=dict)
    scripts: dict[str, ScriptState] = field(default_factory=dict)
    machine: WslMachineState | None = None
