"""The state of WSL around a host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class TextState(NamedTuple):
    """A file of the user: the time of its last write (seconds since the epoch), and its bytes."""

    written: float
    content: bytes


class ScriptState(NamedTuple):
    """A script in Windows: its sha256, and the sha256 of the script that ran last."""

    sha256: str
    applied: str


class WslMachineState(NamedTuple):
    """The virtual machine: its start (seconds since the epoch), its memory in bytes, and its processors."""

    started: float
    memory: int
    processors: int


@dataclass
class WslState:
    """The WSL around a host. Absent items have no entry."""

    release: str
    """The release of the kernel, which WSL 1 emulates."""
    profiles: dict[str, bool] = field(default_factory=dict)
    """The folders of Windows' users that WSL can open. Of several, whether each contains the disk of a distribution."""
    files: dict[str, TextState] = field(default_factory=dict)
    scripts: dict[str, ScriptState] = field(default_factory=dict)
    machine: WslMachineState | None = None
